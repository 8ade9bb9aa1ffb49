#include "identity/identity.h"

#include "core/ids.h"
#include "core/log.h"
#include "identity/identity_state.h"

#include <fmt/format.h>

#include <utility>

namespace orrery::identity {

namespace json = boost::json;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t max_tokens_per_pass = 500;

Throttle::Options throttle_options(const IdentityOptions& options, int max_failures, int max_concurrent) {
    Throttle::Options throttle;
    throttle.max_failures = max_failures;
    throttle.max_concurrent = max_concurrent;
    throttle.initial_delay = options.throttle_delay;
    return throttle;
}

constexpr std::size_t one_time_bytes = 15; // 24 characters

resource::Object admin_object(const std::string& password, bool one_time) {
    resource::Object admin;
    admin.kind = "User";
    admin.name = "admin";
    admin.spec = {
        {"role", "admin"}, {"full_name", "First admin"}, {"disabled", false}, {"password", password}, {"one_time", one_time}};
    return admin;
}

} // namespace

std::string printable_name(std::string_view input) {
    constexpr std::size_t max_length = 64;
    std::string printable;
    for (const char c : input.substr(0, max_length)) printable += c > ' ' && c < 0x7f && c != '/' ? c : '?';
    if (input.size() > max_length) printable += "...";
    return printable;
}

std::string pseudonym_of(const resource::Resources& resources, std::string_view input) {
    return "unknown-" + resources.keyed_hash("user name", input).substr(0, 12);
}

Error source_unavailable(const std::string& source, Code why) {
    const bool transient = why == Code::timeout || why == Code::throttled || why == Code::cancelled;
    return {transient ? why : Code::unavailable, fmt::format("{} is unavailable", source), "try again later"};
}

Identity::State::State(resource::Resources& resources_, Clock& clock_, IdentityOptions options_)
    : resources(resources_),
      clock(clock_),
      options(options_),
      accounts(resources.store()),
      hasher(2, 32),
      by_user(throttle_options(options, options.max_login_failures, options.max_login_failures), clock),
      by_peer(throttle_options(options, options.max_login_failures, 64), clock),
      // Clients keep using an expired token until an operator replaces it, and several clients may share an address.
      by_external_token_peer(throttle_options(options, 4 * options.max_login_failures, 64), clock),
      event_limiter({}, clock),
      external_tokens(options.external_cache_size) {}

Identity::Identity(resource::Resources& resources, Clock& clock, IdentityOptions options)
    : state_(std::make_unique<State>(resources, clock, options)) {}
Identity::~Identity() = default;

void Identity::add(std::unique_ptr<PasswordSource> source) { state_->password_sources.push_back(std::move(source)); }
void Identity::add(std::unique_ptr<TokenSource> source) { state_->token_sources.push_back(std::move(source)); }

asio::awaitable<void> Identity::State::record_login_event(Context ctx, Limit limit, std::string user, std::string peer,
                                                          std::string what, std::string reason, json::object evidence) {
    if (limit == Limit::one_a_minute) {
        if (!event_limiter.allow(fmt::format("{} {} {}", what, user, peer_key(peer)))) co_return;
        if (const auto suppressed = event_limiter.take_suppressed(); suppressed > 0) evidence["suppressed"] = suppressed;
    }
    evidence["peer"] = peer;
    resource::EventDraft event{fmt::format("User/{}", user), std::move(what), std::move(reason), std::move(evidence)};
    const auto recorded = co_await resources.record(ctx, std::move(event));
    if (!recorded.ok()) log::warn(ctx, "cannot record event: user={} error={}", user, recorded.error().message);
}

asio::awaitable<void> Identity::State::end_sessions(Context ctx, std::string user, std::string source, std::string keep,
                                                    std::size_t max_sessions, std::string reason) {
    auto names = accounts.sessions(user, source);
    std::erase(names, keep);
    if (names.size() <= max_sessions) co_return;
    names.resize(names.size() - max_sessions); // oldest first
    const auto kind = tokens();
    if (!kind.ok()) co_return;
    for (auto& name : names) {
        resource::WriteOptions write;
        write.reason = reason;
        const auto removed = co_await resources.remove(ctx, **kind, name, write);
        if (!removed.ok() && removed.error().code != Code::not_found)
            log::warn(ctx, "cannot remove session: token={} error={}", name, removed.error().message);
    }
}

Task<Unit> Identity::State::change_password(Context ctx, std::string user, std::string password, store::Revision expected,
                                            std::string reason) {
    CO_TRY(const auto* kind, users());
    json::object patch{{"spec", json::object{{"password", password}, {"one_time", false}}}};
    resource::WriteOptions write;
    write.if_revision = expected;
    write.reason = std::move(reason);
    CO_TRY(std::ignore, co_await resources.patch(ctx, *kind, user, std::move(patch), std::move(write)));
    co_return Unit{};
}

Task<std::optional<std::string>> Identity::ensure_admin(Context ctx, std::optional<std::string> password,
                                                        std::function<Result<Unit>(const std::string& one_time)> keep) {
    auto& state = *state_;
    CO_TRY(std::ignore, co_await state.resources.store().catch_up(ctx));
    if (state.resources.store().count("users/") > 0) co_return std::optional<std::string>();
    CO_TRY(const auto* kind, state.users());
    std::optional<std::string> generated;
    if (!password) generated = random_secret(one_time_bytes);
    if (generated && keep) {
        CO_TRY(std::ignore, keep(*generated));
    }
    auto admin = admin_object(generated ? *generated : *password, generated.has_value());
    resource::WriteOptions write;
    write.reason = "the first start";
    auto created = co_await state.resources.create(ctx, *kind, std::move(admin), std::move(write));
    if (!created.ok() && created.error().code == Code::conflict) co_return std::optional<std::string>(); // another server was first
    if (!created.ok()) co_return std::move(created).error().within("creating the first admin");
    co_return generated;
}

Task<std::optional<std::string>> Identity::reset_admin(Context ctx, std::optional<std::string> password) {
    auto& state = *state_;
    CO_TRY(std::ignore, co_await state.resources.store().catch_up(ctx));
    CO_TRY(const auto* kind, state.users());
    std::optional<std::string> generated;
    if (!password) generated = random_secret(one_time_bytes);
    resource::WriteOptions write;
    write.reason = "the admin was reset on the server's own files";
    auto admin = admin_object(generated ? *generated : *password, generated.has_value());
    if (state.accounts.user("admin")) {
        admin.spec.erase("full_name");
        CO_TRY(std::ignore, co_await state.resources.patch(ctx, *kind, "admin", json::object{{"spec", std::move(admin.spec)}},
                                                           std::move(write)));
    } else {
        CO_TRY(std::ignore, co_await state.resources.create(ctx, *kind, std::move(admin), std::move(write)));
    }
    co_await state.end_sessions(ctx, "admin", "built-in", {}, 0, "the password has changed");
    co_return generated;
}

Task<int> Identity::end_all_sessions(Context ctx, std::string reason) {
    auto& state = *state_;
    CO_TRY(const auto* kind, state.tokens());
    int ended = 0;
    for (;;) {
        const auto page = state.resources.store().range(kind->prefix(), max_tokens_per_pass);
        if (page.records.empty()) co_return ended;
        for (const auto& record : page.records) {
            resource::WriteOptions write;
            write.reason = reason;
            auto removed = co_await state.resources.remove(ctx, *kind, record->key.substr(kind->prefix().size()), std::move(write));
            if (removed.ok())
                ++ended;
            else if (removed.error().code != Code::not_found)
                co_return std::move(removed).error();
        }
    }
}

Task<Unit> Identity::logout(Context ctx, Principal principal) {
    if (principal.token_name.empty()) co_return Error{Code::unsupported, fmt::format("{} has no session to end", principal.user)};
    CO_TRY(const auto* kind, state_->tokens());
    const auto sessions = state_->accounts.sessions(principal.user, principal.source);
    if (std::find(sessions.begin(), sessions.end(), principal.token_name) == sessions.end())
        co_return Error{Code::unsupported, fmt::format("{} is not the token of a login session", principal.token_name),
                        "to revoke the token, remove it"};
    resource::WriteOptions write;
    write.reason = "logout";
    auto removed = co_await state_->resources.remove(ctx, *kind, principal.token_name, std::move(write));
    if (!removed.ok() && removed.error().code != Code::not_found) co_return std::move(removed).error();
    co_return Unit{};
}

Result<Principal> Identity::check_token(std::string_view token) const {
    const Error refused{Code::unauthenticated, "the token is invalid: it is unknown or was revoked",
                        "log in again, or use another token"};
    if (!has_token_format(token)) return refused;
    const auto digest = sha256(token);
    const auto found = state_->accounts.find_valid(digest, state_->clock.wall());
    // The holder of the token may know why it is refused.
    if (!found && state_->accounts.has_expired(digest, state_->clock.wall()))
        return Error{Code::unauthenticated, "the token has expired", "log in again, or create another token"};
    if (!found) return refused;
    const auto& [known, role] = *found;
    Principal principal;
    principal.user = known->user;
    principal.role = role;
    principal.via = "token";
    principal.source = known->source;
    principal.token_name = known->name;
    principal.expires_at = known->expires_at;
    principal.kinds = known->kinds;
    return principal;
}

Task<int> Identity::remove_expired(Context ctx, const store::Fence& fence) {
    auto& state = *state_;
    CO_TRY(const auto* kind, state.tokens());
    int removed_count = 0;
    for (auto& name : state.accounts.expired_tokens(state.clock.wall(), max_tokens_per_pass)) {
        resource::WriteOptions write;
        write.reason = "expired";
        write.fence = &fence;
        auto removed = co_await state.resources.remove(ctx, *kind, std::move(name), std::move(write));
        if (removed.ok())
            ++removed_count;
        else if (removed.error().code != Code::not_found)
            co_return std::move(removed).error();
    }
    for (auto& [name, last_used] : state.accounts.unstored_uses(1h, max_tokens_per_pass)) {
        const auto record = state.resources.find(*kind, name);
        if (!record) continue;
        CO_TRY(auto object, resource::from_stored(*record));
        object.status["last_used"] = to_rfc3339(last_used);
        resource::WriteOptions write;
        write.if_revision = record->modified;
        write.fence = &fence;
        auto written = co_await state.resources.set_status(ctx, *kind, name, std::move(object.status), std::move(write));
        if (!written.ok() && written.error().code != Code::conflict && written.error().code != Code::not_found)
            co_return std::move(written).error();
    }
    co_return removed_count;
}

} // namespace orrery::identity
