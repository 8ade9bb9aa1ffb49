#pragma once

#include "core/task.h"
#include "identity/password.h"
#include "resource/kind.h"
#include "resource/resources.h"
#include "resource/role.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::identity {

using resource::Role;

/// The authenticated caller of a request.
struct Principal {
    std::string user;
    Role role = Role::nobody;
    std::string via;                    ///< how: "token", "password", "ldap", "keystone", "certificate"
    std::string source = "built-in";    ///< where the user is defined: "built-in", "ldap", "keystone"
    std::string token_name;             ///< name of the Token resource; empty without one
    std::optional<WallTime> expires_at; ///< of that token
    /// The kinds that the token is restricted to; empty: all kinds that the role allows.
    std::vector<std::string> kinds;
};

/// Port: an external directory that checks passwords and maps groups to a role. Implemented by drivers/ldap.
class PasswordSource {
public:
    virtual ~PasswordSource() = default;
    virtual std::string name() const = 0; ///< "ldap"
    /// nullopt: the directory does not have this user, and the next source is asked. `unauthenticated`: the password is wrong, or
    /// no group maps to a role. `unavailable`, `timeout`: the directory did not respond.
    virtual Task<std::optional<Principal>> check(Context ctx, std::string user, std::string password) = 0;
};

/// Port: an external service that validates its own tokens. Implemented by drivers/keystone.
class TokenSource {
public:
    virtual ~TokenSource() = default;
    virtual std::string name() const = 0; ///< "keystone"
    struct Answer {
        Principal principal;
        WallTime expires_at;
    };
    /// `unauthenticated`: the token is invalid, or none of its roles maps to a role. `unavailable`, `timeout`: no response.
    virtual Task<Answer> check(Context ctx, std::string token) = 0;
};

/// The kinds of this module. `user_kind` is restricted to admins. It hashes passwords (argon2id) on its own thread, and refuses to
/// remove, disable or demote the last enabled admin. `token_kind` generates the token, which only the response to its creation
/// contains; the store keeps its SHA-256. A token belongs to its user. The API checks that a token gets no more rights than its
/// creator has.
resource::Kind user_kind();
resource::Kind token_kind(Clock& clock);

/// The field of the error that a login with a one-time password and without a new password gets.
inline constexpr std::string_view new_password_field = "new_password";

struct IdentityOptions {
    Duration session_time = std::chrono::hours(12);     ///< lifetime of a login session
    int max_login_failures = 5;                         ///< per user and per peer address, before throttling
    Duration throttle_delay = std::chrono::seconds(30); ///< doubles with each further failure, up to 15 minutes
    Duration external_cache_ttl = std::chrono::seconds(60);
    std::size_t external_cache_size = 10'000;
    std::size_t max_sessions_per_user = 100; ///< a further login ends the oldest session
};

struct Login {
    std::string token; ///< the only copy
    Principal principal;
    WallTime expires_at;
};

/// Authentication: logins, sessions, passwords and tokens. Passwords are checked against the built-in users first, then against
/// each PasswordSource in order. Tokens are looked up in memory by their digest. Every login, refusal and throttling records an
/// event. Loop thread only.
class Identity {
public:
    Identity(resource::Resources& resources, Clock& clock, IdentityOptions options);
    ~Identity();
    void add(std::unique_ptr<PasswordSource> source);
    void add(std::unique_ptr<TokenSource> source);

    /// Removes all tokens, and with them all sessions, of all users. Returns their number. For a restored store, which contains
    /// tokens that were revoked after the backup.
    Task<int> end_all_sessions(Context ctx, std::string reason);

    /// Creates "admin" in a store without users. Without a password, it generates a one-time password and returns it. `keep`
    /// receives the generated password before the user is written, so that a failure in between cannot create an admin with an
    /// unknown password; an error from `keep` ends the call before the write. Returns nullopt if no password was generated, or if
    /// another server created the user first.
    Task<std::optional<std::string>> ensure_admin(Context ctx, std::optional<std::string> password,
                                                  std::function<Result<Unit>(const std::string& one_time)> keep = {});
    /// Sets a new password for the built-in user "admin" and makes it an enabled admin; creates the user if it does not exist.
    /// Without a password, it generates a one-time password and returns it. Ends all sessions of the user.
    Task<std::optional<std::string>> reset_admin(Context ctx, std::optional<std::string> password);
    /// True if the password belongs to the built-in user. For the server's own checks: neither throttled nor recorded.
    Task<bool> verify_user_password(Context ctx, std::string user, std::string password);

    /// `denied` with the field `new_password_field` when a one-time password is used without `new_password`, and only then.
    /// `throttled` after too many failures. `invalid`: the new password is too weak. `unavailable`, `timeout`: a directory did
    /// not respond. All other refusals are the same `unauthenticated`, which does not reveal the cause.
    Task<Login> login(Context ctx, std::string user, std::string password, std::optional<std::string> new_password,
                      std::string peer);
    /// Ends the session by removing its token.
    Task<Unit> logout(Context ctx, Principal principal);
    /// The principal of this bearer token ("orr_..."), from memory. `unauthenticated`: the token is unknown or expired, or its user
    /// was removed or disabled.
    Result<Principal> check_token(std::string_view token) const;
    /// The principal of an external token (X-Auth-Token). Valid tokens are cached for `external_cache_ttl`.
    Task<Principal> check_external_token(Context ctx, std::string token, std::string peer);
    /// Changes the caller's own password (`denied` if `current` is wrong), or, for an admin, the password of any built-in user.
    /// Ends all sessions of that user except the one that made the call.
    Task<Unit> set_password(Context ctx, Principal by, std::string user, std::optional<std::string> current, std::string password,
                            std::string peer);

    /// Removes tokens that have expired or whose user was removed, and stores the last use of the others, with a resolution of one
    /// hour. Returns the number of removed tokens. Called periodically by the leader.
    Task<int> remove_expired(Context ctx, const store::Fence& fence);

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::identity
