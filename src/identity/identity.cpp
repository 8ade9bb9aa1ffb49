#include "identity/identity.h"

#include "core/ids.h"
#include "core/log.h"
#include "identity/state.h"

#include <fmt/format.h>

#include <utility>

namespace orrery::identity {

namespace json = boost::json;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t removals_a_pass = 500;

Throttle::Options throttle_options(const IdentityOptions& options, int failures, int parallel) {
    Throttle::Options throttle;
    throttle.failures = failures;
    throttle.parallel = parallel;
    throttle.first = options.throttle_time;
    return throttle;
}

} // namespace

std::string shown_name(std::string_view typed) {
    constexpr std::size_t longest = 64;
    std::string shown;
    for (const char c : typed.substr(0, longest)) shown += c > ' ' && c < 0x7f && c != '/' ? c : '?';
    if (typed.size() > longest) shown += "...";
    return shown;
}

Error not_asked(const std::string& source, Code why) {
    const bool passes = why == Code::timeout || why == Code::throttled || why == Code::cancelled;
    return {passes ? why : Code::unavailable, fmt::format("{} cannot be asked now", source), "try again later"};
}

Identity::State::State(resource::Resources& resources_, Pool& pool, Clock& clock_, IdentityOptions options_)
    : resources(resources_),
      clock(clock_),
      options(options_),
      directory(resources.store()),
      hasher(pool, 2, 32),
      by_user(throttle_options(options, options.failures_before_throttle, options.failures_before_throttle), clock),
      by_peer(throttle_options(options, options.failures_before_throttle, 64), clock),
      // Programs go on with a token that has expired until somebody looks after them; a few of them share an address.
      by_foreign_peer(throttle_options(options, 4 * options.failures_before_throttle, 64), clock),
      event_limit({}, clock),
      foreign(options.foreign_cache_size) {}

Identity::Identity(resource::Resources& resources, Pool& pool, Clock& clock, IdentityOptions options)
    : state_(std::make_unique<State>(resources, pool, clock, options)) {}
Identity::~Identity() = default;

void Identity::add(std::unique_ptr<PasswordSource> source) { state_->password_sources.push_back(std::move(source)); }
void Identity::add(std::unique_ptr<TokenSource> source) { state_->token_sources.push_back(std::move(source)); }

asio::awaitable<void> Identity::State::tell(Context ctx, Limit limit, std::string user, std::string peer, std::string what,
                                            std::string because, json::object evidence) {
    if (limit == Limit::one_a_minute) {
        if (!event_limit.allow(fmt::format("{} {} {}", what, user, peer_key(peer)))) co_return;
        if (const auto held_back = event_limit.take_held_back(); held_back > 0) evidence["held_back"] = held_back;
    }
    evidence["peer"] = peer;
    resource::EventDraft event{fmt::format("User/{}", user), std::move(what), std::move(because), std::move(evidence)};
    const auto recorded = co_await resources.record(ctx, std::move(event));
    if (!recorded.ok()) log::warn(ctx, "an event about {} could not be kept: {}", user, recorded.error().message);
}

asio::awaitable<void> Identity::State::end_sessions(Context ctx, std::string user, std::string source, std::string keep,
                                                    std::size_t most, std::string because) {
    auto names = directory.sessions(user, source);
    std::erase(names, keep);
    if (names.size() <= most) co_return;
    names.resize(names.size() - most); // oldest first
    const auto kind = tokens();
    if (!kind.ok()) co_return;
    for (auto& name : names) {
        resource::WriteOptions write;
        write.because = because;
        const auto removed = co_await resources.remove(ctx, **kind, name, write);
        if (!removed.ok() && removed.error().code != Code::not_found)
            log::warn(ctx, "session {} could not be removed: {}", name, removed.error().message);
    }
}

Task<Unit> Identity::State::change_password(Context ctx, std::string user, std::string password, store::Revision expected,
                                            std::string because) {
    CO_TRY(const auto* kind, users());
    json::object patch{{"spec", json::object{{"password", password}, {"one_time", false}}}};
    resource::WriteOptions write;
    write.if_revision = expected;
    write.because = std::move(because);
    CO_TRY(std::ignore, co_await resources.patch(ctx, *kind, user, std::move(patch), std::move(write)));
    co_return Unit{};
}

Task<std::optional<std::string>> Identity::ensure_admin(Context ctx, std::optional<std::string> password) {
    auto& state = *state_;
    CO_TRY(std::ignore, co_await state.resources.store().catch_up(ctx));
    if (state.resources.store().count("users/") > 0) co_return std::optional<std::string>();
    CO_TRY(const auto* kind, state.users());
    std::optional<std::string> made;
    if (!password) made = random_secret(15); // 24 characters
    resource::Object admin;
    admin.kind = "User";
    admin.name = "admin";
    admin.spec = {{"role", "admin"},
                  {"full_name", "First admin"},
                  {"disabled", false},
                  {"password", made ? *made : *password},
                  {"one_time", made.has_value()}};
    resource::WriteOptions write;
    write.because = "the first start";
    auto created = co_await state.resources.create(ctx, *kind, std::move(admin), std::move(write));
    if (!created.ok() && created.error().code == Code::conflict) co_return std::optional<std::string>(); // another server was first
    if (!created.ok()) co_return std::move(created).error().within("making the first admin");
    co_return made;
}

Task<Unit> Identity::logout(Context ctx, Principal principal) {
    if (principal.token_name.empty())
        co_return Error{Code::unsupported, fmt::format("there is no session of {} to end here", principal.user)};
    CO_TRY(const auto* kind, state_->tokens());
    const auto sessions = state_->directory.sessions(principal.user, principal.source);
    if (std::find(sessions.begin(), sessions.end(), principal.token_name) == sessions.end())
        co_return Error{Code::unsupported, fmt::format("{} is not a login's token", principal.token_name),
                        "remove the token itself where it is no longer needed"};
    resource::WriteOptions write;
    write.because = "logout";
    auto removed = co_await state_->resources.remove(ctx, *kind, principal.token_name, std::move(write));
    if (!removed.ok() && removed.error().code != Code::not_found) co_return std::move(removed).error();
    co_return Unit{};
}

Result<Principal> Identity::check_token(std::string_view token) const {
    const Error refused{Code::unauthenticated, "the token is not valid", "log in again"};
    if (!looks_like_token(token)) return refused;
    const auto held = state_->directory.holder(digest_of(token), state_->clock.wall());
    if (!held) return refused;
    const auto& [known, role] = *held;
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
    int gone = 0;
    for (auto& name : state.directory.dead(state.clock.wall(), removals_a_pass)) {
        resource::WriteOptions write;
        write.because = "expired";
        write.fence = &fence;
        auto removed = co_await state.resources.remove(ctx, *kind, std::move(name), std::move(write));
        if (removed.ok())
            ++gone;
        else if (removed.error().code != Code::not_found)
            co_return std::move(removed).error();
    }
    for (auto& [name, last_used] : state.directory.used_since(1h, removals_a_pass)) {
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
    co_return gone;
}

} // namespace orrery::identity
