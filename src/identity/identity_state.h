#pragma once

#include "identity/account_cache.h"
#include "identity/event_rate_limiter.h"
#include "identity/identity.h"
#include "identity/password_hasher.h"
#include "identity/throttle.h"

#include <boost/json/object.hpp>

#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

/// The state of Identity, shared by the files that implement it. Private to this module.
namespace orrery::identity {

/// An LRU cache of validated external tokens, by digest.
class ExternalTokenCache {
public:
    explicit ExternalTokenCache(std::size_t size) : size_(size) {}
    struct CachedToken {
        Principal principal;
        WallTime expires_at; ///< of the token
        SteadyTime fresh_until;
    };
    /// Null if the token is not cached. The entry may be stale. The pointer is valid until the next call.
    const CachedToken* find(const Digest& digest);
    void put(const Digest& digest, CachedToken token);
    void erase(const Digest& digest);
    std::size_t size() const { return by_digest_.size(); }

private:
    using Entry = std::pair<Digest, CachedToken>;
    std::size_t size_;
    std::list<Entry> entries_; // least recently used first
    std::unordered_map<Digest, std::list<Entry>::iterator, DigestHash> by_digest_;
};

struct Identity::State {
    State(resource::Resources& resources_, Clock& clock_, IdentityOptions options_);

    resource::Resources& resources;
    Clock& clock;
    IdentityOptions options;
    AccountCache accounts;
    PasswordHasher hasher;
    Throttle by_user, by_peer, by_external_token_peer;
    EventRateLimiter event_limiter;
    std::vector<std::unique_ptr<PasswordSource>> password_sources;
    std::vector<std::unique_ptr<TokenSource>> token_sources;
    ExternalTokenCache external_tokens;
    /// Checks of external tokens in progress: further requests with the same token wait for the result.
    std::unordered_map<Digest, std::shared_ptr<Notifier>, DigestHash> checks_in_progress;

    Result<const resource::Kind*> users() const { return resources.registry().get("User"); }
    Result<const resource::Kind*> tokens() const { return resources.registry().get("Token"); }

    /// Records an authentication event. `one_a_minute`: at most one a minute per user and peer.
    enum class Limit { none, one_a_minute };
    asio::awaitable<void> record_login_event(Context ctx, Limit limit, std::string user, std::string peer, std::string what,
                                             std::string reason, boost::json::object evidence);
    /// Ends the oldest sessions of a user until at most `max_sessions` are left besides `keep`.
    asio::awaitable<void> end_sessions(Context ctx, std::string user, std::string source, std::string keep,
                                       std::size_t max_sessions, std::string reason);
    /// Writes a built-in user's new password and clears `one_time`. `expected` is the revision the user must have.
    Task<Unit> change_password(Context ctx, std::string user, std::string password, store::Revision expected, std::string reason);
};

/// The error for a client whose login could not be checked: names the source, but not the cause.
Error source_unavailable(const std::string& source, Code why);

/// A user name from an unauthenticated client in a form that is safe to display: printable and short.
std::string printable_name(std::string_view input);

/// The replacement for an unknown user name in events, because people type passwords there by mistake. The same name gives the same
/// text, which reveals nothing about the name without the key of this store.
std::string pseudonym_of(const resource::Resources& resources, std::string_view input);

} // namespace orrery::identity
