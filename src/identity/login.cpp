#include "core/ascii.h"
#include "core/ids.h"
#include "core/log.h"
#include "identity/identity.h"
#include "identity/identity_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace orrery::identity {

namespace json = boost::json;

namespace {

constexpr std::size_t max_name_size = 256, max_password_size = 1024;

/// The same refusal for every cause.
Error refused_login() { return {Code::unauthenticated, "wrong user or password", "check both; an admin can set a new password"}; }

/// Clients recognise it by its field.
Error new_password_required() {
    Error error{Code::denied, "this is a one-time password", "set a new password"};
    error.fields.push_back({std::string(new_password_field), "is required: the password that replaces the one-time password"});
    return error;
}

bool is_well_formed_login(std::string_view user, std::string_view password) {
    const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
    return !user.empty() && user.size() <= max_name_size && std::none_of(user.begin(), user.end(), control) && !password.empty() &&
           password.size() <= max_password_size;
}

/// A user with a correct password.
struct VerifiedLogin {
    Principal principal;
    bool one_time = false;
    std::int64_t generation = 0;
    store::Revision revision = 0;
};

} // namespace

/// Checks a user name and password, without side effects. Sets `is_known` if an external source has the user.
template <class State>
static Task<VerifiedLogin> verify_login(State& state, Context ctx, std::string user, std::string password,
                                        std::shared_ptr<bool> is_known) {
    const bool is_well_formed = is_well_formed_login(user, password);
    password.resize(std::min(password.size(), max_password_size));
    const auto* known = state.accounts.user(user);
    if (is_well_formed && known) {
        const auto account = *known; // a copy: the account may change while the password is checked
        CO_TRY(const auto* kind, state.users());
        auto hash = account.has_password ? state.resources.reveal(*kind, user, "spec.password")
                                         : Result<std::string>(std::string(dummy_hash()));
        if (!hash.ok()) log::error(ctx, "cannot unseal password: user={} error={}", user, hash.error().message);
        auto text = hash.ok() ? std::move(*hash) : std::string(dummy_hash());
        CO_TRY(const bool right, co_await state.hasher.verify(ctx, std::move(text), password));
        if (!right || account.disabled) co_return refused_login();
        VerifiedLogin verified;
        verified.principal.user = user;
        verified.principal.role = account.role;
        verified.principal.via = "password";
        verified.one_time = account.one_time;
        verified.generation = account.generation;
        verified.revision = account.revision;
        co_return verified;
    }
    // The check of an unknown user takes the same time.
    CO_TRY(std::ignore, co_await state.hasher.verify(ctx, std::string(dummy_hash()), password));
    if (!is_well_formed) co_return refused_login();
    for (auto& source : state.password_sources) {
        auto answer = co_await source->check(ctx, user, password);
        if (!answer.ok()) {
            // An unavailable source might have this user: the next source could accept another user of the same name.
            if (answer.error().code == Code::unauthenticated) {
                *is_known = true;
                co_return refused_login();
            }
            log::warn(ctx, "external login check failed: source={} error={}", source->name(), answer.error().text());
            co_return source_unavailable(source->name(), answer.error().code);
        }
        if (!*answer) continue;
        VerifiedLogin verified;
        verified.principal = std::move(**answer);
        verified.principal.via = verified.principal.source = source->name();
        if (verified.principal.role == Role::nobody || verified.principal.user.empty()) co_return refused_login();
        co_return verified;
    }
    co_return refused_login();
}

/// Creates the token of the session.
template <class State> static Task<Login> begin_session(State& state, Context ctx, Principal principal) {
    CO_TRY(const auto* kind, state.tokens());
    resource::Object token;
    token.kind = "Token";
    token.name = "session-" + time_ordered_id(state.clock.wall());
    token.spec = {{"user", principal.user},
                  {"source", principal.source},
                  {"role", std::string(resource::name_of(principal.role))},
                  {"ttl", to_text(state.options.session_time)},
                  {"description", std::string(session_description)}};
    resource::WriteOptions write;
    write.reason = "login";
    CO_TRY(auto made, co_await state.resources.create(ctx, *kind, std::move(token), std::move(write)));
    Login login;
    login.token = std::string(made.once.at("token").as_string());
    login.principal = std::move(principal);
    login.principal.token_name = made.object.name;
    CO_TRY(login.expires_at, from_rfc3339(std::string_view(made.object.status.at("expires_at").as_string())));
    login.principal.expires_at = login.expires_at;
    co_return login;
}

/// Admits an attempt, or records that it was throttled.
template <class State>
static Task<Throttle::Attempt> admit_login(State& state, Throttle& throttle, std::string key, Context ctx, std::string printable,
                                           std::string peer, std::string reason) {
    auto attempt = co_await throttle.admit_or_wait(ctx, std::move(key));
    if (!attempt.ok() && attempt.error().code == Code::throttled)
        co_await state.record_login_event(ctx, State::Limit::one_a_minute, std::move(printable), std::move(peer), "login-throttled",
                                          std::move(reason), {});
    co_return attempt;
}

Task<Login> Identity::login(Context ctx, std::string user, std::string password, std::optional<std::string> new_password,
                            std::string peer) {
    auto& state = *state_;
    auto printable = state.accounts.user(user) ? printable_name(user) : pseudonym_of(state.resources, user);
    CO_TRY(auto from_peer,
           co_await admit_login(state, state.by_peer, peer_key(peer), ctx, printable, peer, "too many failures from this address"));
    CO_TRY(auto of_user, co_await admit_login(state, state.by_user, ascii_lower(user.substr(0, max_name_size)), ctx, printable,
                                              peer, "too many failures of this user"));

    const auto is_known = std::make_shared<bool>(false);
    auto verified = co_await verify_login(state, ctx, user, password, is_known);
    if (!verified.ok()) {
        if (verified.error().code != Code::unauthenticated) co_return std::move(verified).error();
        from_peer.failed();
        of_user.failed();
        if (*is_known) printable = printable_name(user);
        co_await state.record_login_event(ctx, State::Limit::one_a_minute, printable, peer, "login-refused",
                                          "wrong user or password", {});
        co_return std::move(verified).error();
    }
    from_peer.succeeded();
    of_user.succeeded();

    auto principal = verified->principal;
    const auto as_user = ctx.with_actor(principal.user);
    if (verified->one_time && !new_password) co_return new_password_required();
    if (new_password) {
        if (principal.source != "built-in")
            co_return Error{Code::unsupported, fmt::format("the password of {} is managed by {}", principal.user, principal.source),
                            "change it there"};
        CO_TRY(std::ignore, check_password_quality(principal.user, *new_password));
        if (*new_password == password) co_return Error{Code::invalid, "the new password is the old one", "choose another password"};
        CO_TRY(std::ignore,
               co_await state.change_password(as_user, principal.user, *new_password, verified->revision,
                                              verified->one_time ? "a one-time password was used" : "changed at login"));
        ++verified->generation;
        co_await state.end_sessions(as_user, principal.user, principal.source, {}, 0, "the password has changed");
    }

    CO_TRY(auto login, co_await begin_session(state, as_user, std::move(principal)));
    const auto* account = state.accounts.user(login.principal.user);
    if (login.principal.source == "built-in" && (!account || account->generation != verified->generation || account->disabled)) {
        // The password was changed after it was checked.
        std::ignore = co_await logout(as_user, login.principal);
        co_return refused_login();
    }
    co_await state.end_sessions(as_user, login.principal.user, login.principal.source, login.principal.token_name,
                                state.options.max_sessions_per_user - 1, "too many sessions");
    co_await state.record_login_event(as_user, State::Limit::none, printable_name(login.principal.user), peer, "login",
                                      "correct password", {{"via", login.principal.via}, {"token", login.principal.token_name}});
    co_return login;
}

Task<bool> Identity::verify_user_password(Context ctx, std::string user, std::string password) {
    auto& state = *state_;
    const auto* known = state.accounts.user(user);
    if (!known || !known->has_password) co_return false;
    CO_TRY(const auto* kind, state.users());
    CO_TRY(auto hash, state.resources.reveal(*kind, user, "spec.password"));
    co_return co_await state.hasher.verify(ctx, std::move(hash), std::move(password));
}

Task<Unit> Identity::set_password(Context ctx, Principal by, std::string user, std::optional<std::string> current,
                                  std::string password, std::string peer) {
    auto& state = *state_;
    const bool own = by.user == user && by.source == "built-in";
    if (!by.kinds.empty() && std::find(by.kinds.begin(), by.kinds.end(), "User") == by.kinds.end())
        co_return Error{Code::denied, "this token has no access to users"};
    if (!own && by.role < Role::admin) co_return Error{Code::denied, "only an admin can set the password of another user"};
    const auto* known = state.accounts.user(user);
    if (!known)
        co_return Error{Code::not_found, fmt::format("there is no built-in user {}", printable_name(user)),
                        "users of a directory change their password in the directory"};
    const auto revision = known->revision;
    CO_TRY(std::ignore, check_password_quality(user, password));
    if (own) {
        auto attempt = state.by_user.admit(ascii_lower(user.substr(0, max_name_size)));
        if (!attempt.ok()) co_return std::move(attempt).error();
        auto verified = co_await verify_login(state, ctx, user, current.value_or(""), std::make_shared<bool>());
        if (!verified.ok() && verified.error().code != Code::unauthenticated) co_return std::move(verified).error();
        if (!verified.ok()) {
            attempt->failed();
            co_await state.record_login_event(ctx, State::Limit::one_a_minute, user, peer, "password-refused",
                                              "wrong current password", {});
            co_return Error{Code::denied, "the current password is wrong", "give the current password (field current)"};
        }
        attempt->succeeded();
        if (password == *current) co_return Error{Code::invalid, "the new password is the old one", "choose another"};
    }
    CO_TRY(std::ignore, co_await state.change_password(ctx, user, std::move(password), revision,
                                                       own ? "changed by the user" : "set by an admin"));
    // That write ended all sessions of the user. Move the caller's own session to the new generation.
    const auto* account = state.accounts.user(user);
    const auto sessions = state.accounts.sessions(user, "built-in");
    const bool is_own_session = own && std::find(sessions.begin(), sessions.end(), by.token_name) != sessions.end();
    if (is_own_session && account) {
        CO_TRY(const auto* kind, state.tokens());
        if (const auto record = state.resources.find(*kind, by.token_name)) {
            CO_TRY(auto token, resource::from_stored(*record));
            token.status["generation"] = account->generation;
            resource::WriteOptions write;
            write.if_revision = record->modified;
            CO_TRY(std::ignore,
                   co_await state.resources.set_status(ctx, *kind, by.token_name, std::move(token.status), std::move(write)));
        }
    }
    co_await state.end_sessions(ctx, user, "built-in", is_own_session ? by.token_name : std::string(), 0,
                                "the password has changed");
    co_return Unit{};
}

} // namespace orrery::identity
