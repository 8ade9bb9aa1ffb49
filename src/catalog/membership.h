#pragma once

#include "core/context.h"
#include "core/result.h"
#include "core/task.h"
#include "store/store.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace orrery::catalog {

/// The state of an instance; each state includes the ones before it. *Registered*: it is known. *Usable*: no check of it or of its
/// node is critical. *Passing*: all of them pass.
enum class State { registered, usable, passing };
std::string_view name_of(State state);
Result<State> parse_state(std::string_view text);

/// Whether a check of this server has confirmed the state of an instance. After a start, or when it becomes the leader, a server
/// has only stored states.
enum class Evidence {
    confirmed,   ///< by a probe or a report in this term; or it has no checks
    awaited,     ///< not yet: the first round of checks is running
    unconfirmed, ///< the first round of checks ended without evidence
};

/// One instance of a service, for barriers and dynamic values.
struct Member {
    std::string node;
    std::string id;      ///< unique within the node
    std::string address; ///< its own, or that of its node; empty if unknown
    std::uint16_t port = 0;
    std::vector<std::string> tags; ///< sorted
    State state = State::registered;
    std::string why;      ///< explanation of the state: "http check \"api\" is critical: connection refused"
    bool checked = false; ///< it has a check, of its own or of its service
    Evidence evidence = Evidence::confirmed;
    bool operator==(const Member&) const = default;

    /// Whether a barrier on `wanted` counts it. A state from before this server started opens no barrier.
    bool counts_as(State wanted) const {
        return state >= wanted && (wanted == State::registered || evidence == Evidence::confirmed);
    }
};

/// The instances of one service at one time, sorted by node and id, so that equal instances are equal lists on all servers.
struct Members {
    std::vector<Member> all;
    store::Revision revision = 0; ///< of the last change of this service
    /// Instances that are not members, because they have a `member_problem`, which is their `why`. At most `max_invalid`, with
    /// truncated texts; `invalid_count` counts all.
    std::vector<Member> invalid;
    std::size_t invalid_count = 0;
    static constexpr std::size_t max_invalid = 20;
    void add_invalid(const Member& member, std::string problem);
    /// "2 instances are not members: its node name ... is not a valid host name"; empty when all are valid.
    std::string invalid_text() const;

    std::size_t count(State at_least) const;
    std::vector<Member> having(State at_least) const;
    /// 32 hexadecimal digits over node, id, address, port and tags of the members with at least this state; not over states and
    /// messages.
    std::string digest(State at_least) const;
};

/// Whether this is the name of a node: an IP address, a host name (which may have underscores), or the name of a Node.
bool is_node_name(std::string_view text);
/// Why an instance on this node, at this address, is not a member; empty for a valid one. Node names and addresses of members
/// become values of tasks, and clients that register instances choose them. An empty address is unknown yet, and valid.
std::string member_problem(std::string_view node, std::string_view address);

/// Logs each invalid member once. The memory is bounded: after `max_logged` members one line says that no more are logged.
class InvalidMemberLog {
public:
    void note(std::string_view service, const Member& member);
    static constexpr std::size_t max_logged = 1000;

private:
    std::unordered_set<std::size_t> logged_; ///< hashes: a collision costs one log line
};

/// What a Service declares, apart from its members.
struct DeclaredService {
    int port = 0;
    bool checked = false; ///< it has checks
    std::optional<std::int64_t> wanted;
};

/// Port: the members of services. Implemented by the built-in Catalog and by drivers/consul; barriers, late-bound values and load
/// balancers read it. Answers come from memory. Loop thread only.
class Membership {
public:
    virtual ~Membership() = default;
    /// All instances of the service that have the tag (all instances if it is empty). An unknown service has no members, which is
    /// evidence. Errors: `unavailable`: no evidence, because the catalog is unavailable or its answer may be incomplete. Callers
    /// must distinguish the two.
    virtual Result<Members> members(std::string_view service, std::string_view tag) const = 0;
    /// Calls `changed` with the name of a service after its members, or the availability of evidence, may have changed; with an
    /// empty name if that may be true for all services. The callback must not write or block, only enqueue work. It stays
    /// registered until the handle is destroyed. Read the members once after subscribing.
    virtual std::shared_ptr<void> subscribe(std::function<void(const std::string& service)> changed) = 0;
    /// Starts to follow a service of an external catalog, until the handle is destroyed. `members` is `unavailable` before the
    /// first answer.
    virtual std::shared_ptr<void> follow(std::string_view service) = 0;
    /// The Service of that name; nothing where it is not declared, or this catalog has no declarations.
    virtual std::optional<DeclaredService> declared(std::string_view) const { return {}; }
    /// Whether only instances of a declared Service are members.
    virtual bool requires_declaration() const { return false; }
    /// Waits, for a few seconds at most, until there is an answer about each of these services.
    virtual Task<Unit> await_answers(Context, std::vector<std::string>) { co_return Unit{}; }
};

} // namespace orrery::catalog
