#pragma once

#include "identity/directory.h"
#include "identity/hasher.h"
#include "identity/identity.h"
#include "identity/throttle.h"

#include <boost/json/object.hpp>

#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

/// The inside of Identity, shared by the files that implement it. Nobody else includes it.
namespace orrery::identity {

/// Answers about foreign tokens, by digest, for as long as they may be believed. The longest unused goes first.
class ForeignAnswers {
public:
    explicit ForeignAnswers(std::size_t size) : size_(size) {}
    struct Known {
        Principal principal;
        WallTime expires_at; ///< of the token
        SteadyTime fresh_until;
    };
    /// Null where it was never heard of; may be stale. Valid until the next call.
    const Known* find(const Digest& digest);
    void keep(const Digest& digest, Known known);
    void drop(const Digest& digest);
    std::size_t size() const { return by_digest_.size(); }

private:
    using Entry = std::pair<Digest, Known>;
    std::size_t size_;
    std::list<Entry> entries_; // longest unused first
    std::unordered_map<Digest, std::list<Entry>::iterator, DigestHash> by_digest_;
};

struct Identity::State {
    State(resource::Resources& resources_, Pool& pool, Clock& clock_, IdentityOptions options_);

    resource::Resources& resources;
    Clock& clock;
    IdentityOptions options;
    Directory directory;
    Hasher hasher;
    Throttle by_user, by_peer, by_foreign_peer;
    EventLimit event_limit;
    std::vector<std::unique_ptr<PasswordSource>> password_sources;
    std::vector<std::unique_ptr<TokenSource>> token_sources;
    ForeignAnswers foreign;
    /// Foreign tokens being asked about now: others with the same token wait for that answer.
    std::unordered_map<Digest, std::shared_ptr<Notifier>, DigestHash> being_asked;

    Result<const resource::Kind*> users() const { return resources.registry().get("User"); }
    Result<const resource::Kind*> tokens() const { return resources.registry().get("Token"); }

    /// An event about somebody who tries to get in. `limited`: at most one a minute for the user and peer.
    enum class Limit { none, one_a_minute };
    asio::awaitable<void> tell(Context ctx, Limit limit, std::string user, std::string peer, std::string what, std::string because,
                               boost::json::object evidence);
    /// Ends sessions of a user: all but `keep`, or with `most` given only the oldest beyond that.
    asio::awaitable<void> end_sessions(Context ctx, std::string user, std::string source, std::string keep, std::size_t most,
                                       std::string because);
    /// Writes a built-in user's new password, for good; `expected` is the revision it must stand at.
    Task<Unit> change_password(Context ctx, std::string user, std::string password, store::Revision expected, std::string because);
};

/// What is said to somebody whose login could not be checked: that `source` did not answer, not why.
Error not_asked(const std::string& source, Code why);

/// What is safe to show of a name that anybody may have typed: printable, and not long.
std::string shown_name(std::string_view typed);

} // namespace orrery::identity
