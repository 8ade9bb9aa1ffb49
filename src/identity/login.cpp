#include "core/ids.h"
#include "core/log.h"
#include "identity/identity.h"
#include "identity/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace orrery::identity {

namespace json = boost::json;

namespace {

constexpr std::size_t longest_name = 256, longest_password = 1024;

/// The one refusal, whatever was wrong.
Error refused_login() {
    return {Code::unauthenticated, "the user or the password is not right", "check both; an admin can set a new password"};
}

std::string lower_case(std::string_view text) {
    std::string out(text.substr(0, longest_name));
    std::transform(out.begin(), out.end(), out.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return out;
}

bool can_be_tried(std::string_view user, std::string_view password) {
    const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
    return !user.empty() && user.size() <= longest_name && std::none_of(user.begin(), user.end(), control) && !password.empty() &&
           password.size() <= longest_password;
}

/// Somebody whose password was right.
struct Proven {
    Principal principal;
    bool one_time = false;
    std::int64_t generation = 0;
    store::Revision revision = 0;
};

} // namespace

/// The part of a login that decides; it has no effects.
template <class State> static Task<Proven> prove(State& state, Context ctx, std::string user, std::string password) {
    const bool sensible = can_be_tried(user, password);
    password.resize(std::min(password.size(), longest_password));
    const auto* known = state.directory.user(user);
    if (sensible && known) {
        const auto account = *known; // it may change while the password is checked
        CO_TRY(const auto* kind, state.users());
        auto hash = account.has_password ? state.resources.reveal(*kind, user, "spec.password")
                                         : Result<std::string>(std::string(nobodys_hash()));
        if (!hash.ok()) log::error(ctx, "the password of {} cannot be unsealed: {}", user, hash.error().message);
        auto text = hash.ok() ? std::move(*hash) : std::string(nobodys_hash());
        CO_TRY(const bool right, co_await state.hasher.verify(ctx, std::move(text), password));
        if (!right || account.disabled) co_return refused_login();
        Proven proven;
        proven.principal.user = user;
        proven.principal.role = account.role;
        proven.principal.via = "password";
        proven.one_time = account.one_time;
        proven.generation = account.generation;
        proven.revision = account.revision;
        co_return proven;
    }
    // Whoever is not known here costs the same time.
    CO_TRY(std::ignore, co_await state.hasher.verify(ctx, std::string(nobodys_hash()), password));
    if (!sensible) co_return refused_login();
    for (auto& source : state.password_sources) {
        auto answer = co_await source->check(ctx, user, password);
        if (!answer.ok()) {
            // One that cannot be asked might know this user: asking the next one could let in somebody else of that name.
            if (answer.error().code == Code::unauthenticated) co_return refused_login();
            log::warn(ctx, "{} could not check a login: {}", source->name(), answer.error().text());
            co_return not_asked(source->name(), answer.error().code);
        }
        if (!*answer) continue;
        Proven proven;
        proven.principal = std::move(**answer);
        proven.principal.via = proven.principal.source = source->name();
        if (proven.principal.role == Role::nobody || proven.principal.user.empty()) co_return refused_login();
        co_return proven;
    }
    co_return refused_login();
}

/// Makes the session's token.
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
    write.because = "login";
    CO_TRY(auto made, co_await state.resources.create(ctx, *kind, std::move(token), std::move(write)));
    Login login;
    login.token = std::string(made.once.at("token").as_string());
    login.principal = std::move(principal);
    login.principal.token_name = made.object.name;
    CO_TRY(login.expires_at, from_rfc3339(std::string_view(made.object.status.at("expires_at").as_string())));
    login.principal.expires_at = login.expires_at;
    co_return login;
}

Task<Login> Identity::login(Context ctx, std::string user, std::string password, std::optional<std::string> new_password,
                            std::string peer) {
    auto& state = *state_;
    const auto shown = shown_name(user);
    auto from_peer = co_await state.by_peer.admit_in_turn(ctx, peer_key(peer));
    if (!from_peer.ok()) {
        if (from_peer.error().code != Code::throttled) co_return std::move(from_peer).error();
        co_await state.tell(ctx, State::Limit::one_a_minute, shown, peer, "login-throttled", "too many failures from this address",
                            {});
        co_return std::move(from_peer).error();
    }
    auto of_user = co_await state.by_user.admit_in_turn(ctx, lower_case(user));
    if (!of_user.ok()) {
        if (of_user.error().code != Code::throttled) co_return std::move(of_user).error();
        co_await state.tell(ctx, State::Limit::one_a_minute, shown, peer, "login-throttled", "too many failures of this user", {});
        co_return std::move(of_user).error();
    }

    auto proven = co_await prove(state, ctx, user, password);
    if (!proven.ok()) {
        if (proven.error().code != Code::unauthenticated) co_return std::move(proven).error();
        from_peer->failed();
        of_user->failed();
        co_await state.tell(ctx, State::Limit::one_a_minute, shown, peer, "login-refused", "the user or the password was not right",
                            {});
        co_return std::move(proven).error();
    }
    from_peer->succeeded();
    of_user->succeeded();

    auto principal = proven->principal;
    const auto as_user = ctx.with_actor(principal.user);
    if (proven->one_time && !new_password)
        co_return Error{Code::denied, "this password is for one use only", "give a new password"};
    if (new_password) {
        if (principal.source != "built-in")
            co_return Error{Code::unsupported, fmt::format("the password of {} is kept by {}", principal.user, principal.source),
                            "change it there"};
        CO_TRY(std::ignore, check_password_quality(principal.user, *new_password));
        if (*new_password == password) co_return Error{Code::invalid, "the new password is the old one", "choose another"};
        CO_TRY(std::ignore, co_await state.change_password(as_user, principal.user, *new_password, proven->revision,
                                                           proven->one_time ? "a one-time password was used" : "changed at login"));
        ++proven->generation;
        co_await state.end_sessions(as_user, principal.user, principal.source, {}, 0, "the password has changed");
    }

    CO_TRY(auto login, co_await begin_session(state, as_user, std::move(principal)));
    const auto* account = state.directory.user(login.principal.user);
    if (login.principal.source == "built-in" && (!account || account->generation != proven->generation || account->disabled)) {
        // The password was changed by somebody else after it was checked.
        std::ignore = co_await logout(as_user, login.principal);
        co_return refused_login();
    }
    co_await state.end_sessions(as_user, login.principal.user, login.principal.source, login.principal.token_name,
                                state.options.sessions_per_user - 1, "too many sessions");
    co_await state.tell(as_user, State::Limit::none, shown_name(login.principal.user), peer, "login", "the password was right",
                        {{"via", login.principal.via}, {"token", login.principal.token_name}});
    co_return login;
}

Task<Unit> Identity::set_password(Context ctx, Principal by, std::string user, std::optional<std::string> current,
                                  std::string password, std::string peer) {
    auto& state = *state_;
    const bool own = by.user == user && by.source == "built-in";
    if (!by.kinds.empty() && std::find(by.kinds.begin(), by.kinds.end(), "User") == by.kinds.end())
        co_return Error{Code::denied, "this token may not touch users"};
    if (!own && by.role < Role::admin) co_return Error{Code::denied, "only an admin sets the passwords of others"};
    const auto* known = state.directory.user(user);
    if (!known)
        co_return Error{Code::not_found, fmt::format("there is no built-in user {}", shown_name(user)),
                        "users of a directory change their password there"};
    const auto revision = known->revision;
    CO_TRY(std::ignore, check_password_quality(user, password));
    if (own) {
        auto attempt = state.by_user.admit(lower_case(user));
        if (!attempt.ok()) co_return std::move(attempt).error();
        auto proven = co_await prove(state, ctx, user, current.value_or(""));
        if (!proven.ok() && proven.error().code != Code::unauthenticated) co_return std::move(proven).error();
        if (!proven.ok()) {
            attempt->failed();
            co_await state.tell(ctx, State::Limit::one_a_minute, user, peer, "password-refused",
                                "the current password was not right", {});
            co_return Error{Code::denied, "the current password is not right", "give it as current"};
        }
        attempt->succeeded();
        if (password == *current) co_return Error{Code::invalid, "the new password is the old one", "choose another"};
    }
    CO_TRY(std::ignore, co_await state.change_password(ctx, user, std::move(password), revision,
                                                       own ? "changed by the user" : "set by an admin"));
    // All sessions of the user ended with that write. The one that asks is taken over into the new generation.
    const auto* account = state.directory.user(user);
    const auto sessions = state.directory.sessions(user, "built-in");
    const bool asks = own && std::find(sessions.begin(), sessions.end(), by.token_name) != sessions.end();
    if (asks && account) {
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
    co_await state.end_sessions(ctx, user, "built-in", asks ? by.token_name : std::string(), 0, "the password has changed");
    co_return Unit{};
}

} // namespace orrery::identity
