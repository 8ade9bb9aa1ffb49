#pragma once

#include "core/task.h"
#include "identity/password.h"
#include "resource/kind.h"
#include "resource/resources.h"
#include "resource/role.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::identity {

using resource::Role;

/// Who is asking, once that is known.
struct Principal {
    std::string user;
    Role role = Role::nobody;
    std::string via;                    ///< "token", "password", "ldap", "keystone", "certificate"
    std::string source = "built-in";    ///< who knows the user: "built-in", "ldap", "keystone"
    std::string token_name;             ///< the Token resource that was used, if one was
    std::optional<WallTime> expires_at; ///< of that token
    /// Names only what it may touch, from the token's scope; empty: all kinds its role allows.
    std::vector<std::string> kinds;
};

/// Port: a directory that can say whether a name and password belong together, and which role its groups give. Implemented by
/// drivers/ldap.
class PasswordSource {
public:
    virtual ~PasswordSource() = default;
    virtual std::string name() const = 0; ///< "ldap"
    /// nothing: it does not know this user (ask the next source). `unauthenticated`: it does, and the password is wrong or no group
    /// gives a role. `unavailable`, `timeout`: it cannot be asked now.
    virtual Task<std::optional<Principal>> check(Context ctx, std::string user, std::string password) = 0;
};

/// Port: something that can say who holds a foreign token. Implemented by drivers/keystone.
class TokenSource {
public:
    virtual ~TokenSource() = default;
    virtual std::string name() const = 0; ///< "keystone"
    struct Answer {
        Principal principal;
        WallTime expires_at;
    };
    /// `unauthenticated`: not valid, or no role of it maps to one of ours. `unavailable`, `timeout`.
    virtual Task<Answer> check(Context ctx, std::string token) = 0;
};

/// The kinds. `user_kind` is for admins only; it hashes passwords (argon2id) on the pool, and keeps the last enabled admin from
/// being removed, disabled or demoted. `token_kind` makes the token's secret, which the answer to its creation shows this once; the
/// store keeps its SHA-256. Each token belongs to its user; that it may do no more than its maker is for the API to check, which
/// alone knows the maker's role.
resource::Kind user_kind(Pool& pool);
resource::Kind token_kind(Clock& clock);

struct IdentityOptions {
    Duration session_time = std::chrono::hours(12);    ///< what a login's token lives
    int failures_before_throttle = 5;                  ///< per user and per peer address
    Duration throttle_time = std::chrono::seconds(30); ///< doubles with each further failure, up to 15 minutes
    Duration foreign_cache_time = std::chrono::seconds(60);
    std::size_t foreign_cache_size = 10'000;
    std::size_t sessions_per_user = 100; ///< a further login ends the oldest
};

struct Login {
    std::string token; ///< shown once
    Principal principal;
    WallTime expires_at;
};

/// Users, passwords, tokens. Passwords are tried against built-in users first, then against each PasswordSource in order. Tokens
/// are looked up by their hash, in memory. Every login, refusal and throttle leaves an event. Loop thread only.
class Identity {
public:
    Identity(resource::Resources& resources, Pool& pool, Clock& clock, IdentityOptions options);
    ~Identity();
    void add(std::unique_ptr<PasswordSource> source);
    void add(std::unique_ptr<TokenSource> source);

    /// Where there is no user yet, makes "admin". With a password given (from a file) that is it; without, a one-time password is
    /// made and returned, to be shown once.
    Task<std::optional<std::string>> ensure_admin(Context ctx, std::optional<std::string> password);

    /// `denied` with remedy "give a new password" when a one-time password is used without `new_password`, and only then.
    /// `throttled` after too many failures. `invalid` when the new password is not good enough. `unavailable`, `timeout`: a
    /// directory cannot be asked. All other refusals are the same `unauthenticated`, whatever was wrong.
    Task<Login> login(Context ctx, std::string user, std::string password, std::optional<std::string> new_password,
                      std::string peer);
    /// Ends the session: its token is removed.
    Task<Unit> logout(Context ctx, Principal principal);
    /// Who holds this bearer token ("orr_..."). `unauthenticated` when unknown, expired, or its user is gone or disabled. Answers
    /// from memory.
    Result<Principal> check_token(std::string_view token) const;
    /// The holder of a foreign token (X-Auth-Token), cached for a minute.
    Task<Principal> check_foreign_token(Context ctx, std::string token, std::string peer);
    /// A user changes the own password (`current` must be right, else `denied`) or an admin somebody's. Ends all sessions of that
    /// user but the one that asks.
    Task<Unit> set_password(Context ctx, Principal by, std::string user, std::optional<std::string> current, std::string password,
                            std::string peer);

    /// Removes tokens that have expired or whose user is gone, and writes down when the others were last used, to the hour; how
    /// many went. Called by a controller.
    Task<int> remove_expired(Context ctx, const store::Fence& fence);

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::identity
