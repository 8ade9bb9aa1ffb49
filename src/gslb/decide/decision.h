#pragma once

#include "gslb/decide/pool_evaluation.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

/// The second step from health to answers: decides what one load balancer answers. The DNS server, the DNS providers, `why`,
/// replays and `whatif` all use this one function.
namespace orrery::gslb {

/// A member that a load balancer may answer with.
struct AnswerMember {
    std::string member, pool;
    Addresses addresses;
    std::uint32_t weight = 1;
    std::string site, rack;
    bool operator==(const AnswerMember&) const = default;
};

/// What clients of one class get.
struct Answer {
    std::string clients;            ///< the label of the client class; empty: the default class
    std::vector<std::string> pools; ///< the pools of the candidates
    std::vector<AnswerMember> candidates;
    Answers policy = Answers::all; ///< how one response is drawn from the candidates
    std::uint32_t max_answers = 0; ///< 0: no limit
    std::string name;              ///< sticky-by-name: the name that is queried; empty: any name below a wildcard
    std::uint32_t ttl = 30;
    bool panic = false;              ///< no pool is usable, and the load balancer answers anyway
    std::string alias;               ///< a CNAME target instead of addresses
    AllDown empty = AllDown::nodata; ///< without candidates: nodata, servfail or refuse
    bool operator==(const Answer&) const = default;
    json::object to_json() const; ///< what clients can observe
};

/// What later decisions about a load balancer need from earlier ones. Stored as `internal_state` in its status.
struct LoadBalancerState {
    struct Left {
        WallTime since{};             ///< when the pool became unusable
        std::optional<WallTime> back; ///< when the pool became usable again
        bool operator==(const Left&) const = default;
    };
    std::map<std::string, Left> left;                           ///< pools that clients left and have not returned to
    std::map<std::string, std::string> leading;                 ///< latency: the leading pool of each client class
    std::map<std::string, std::vector<AnswerMember>> last_good; ///< by client class, for `all_down: last-good`
    bool operator==(const LoadBalancerState&) const = default;
    json::object to_json() const;
    static LoadBalancerState from(const json::object& value);
};

/// Everything that the answers of one load balancer depend on. A decision record stores it as `inputs`.
struct Snapshot {
    LoadBalancerSpec spec;          ///< with all client classes, those of geo steering included; prefixes do not affect a decision
    std::vector<PoolViewPtr> pools; ///< the pools of the spec that exist
    LoadBalancerState state;
    WallTime time{};
    json::object to_json() const;
    /// `invalid` if `value` is not a snapshot. Also reads snapshots of earlier versions.
    static Result<Snapshot> from(const json::object& value);
};

/// normal: the preferred pools answer. failover: other pools answer. panic: no pool is usable, and members answer anyway. empty: no
/// address is answered.
enum class Condition { normal, failover, panic, empty };
std::string_view name_of(Condition condition);
/// The condition of that name in a stored decision; `normal` for any other text.
Condition condition_named(std::string_view name);

struct Decision {
    Condition condition = Condition::normal; ///< the worst over all client classes
    std::vector<Answer> answers;             ///< the default class first; then one for each client class of the spec
    std::vector<std::string> messages;       ///< why, for people
    std::vector<Withheld> withheld;
    LoadBalancerState state;
    std::optional<WallTime> next_evaluation; ///< the time at which time alone may change the decision
    /// What clients can observe, in canonical form: equal decisions give equal texts.
    json::object to_json() const;
    /// What the default class gets: {"condition", "pool", "answers": [addresses], "ttl", "panic"}.
    json::object summary() const;
    bool same_answers(const Decision& other) const { return condition == other.condition && answers == other.answers; }
};

/// Pure: equal snapshots give equal decisions, on any server and at any time.
Decision decide(const Snapshot& snapshot);

/// Whether a pool has enough healthy members.
struct Usable {
    bool usable = false;
    std::string message; ///< "2 of 3 healthy, needs 2"
};
/// `with_held`: counts members that only the default mass-failure guard holds in as healthy.
Usable is_usable(const PoolView& pool, bool with_held = false);

} // namespace orrery::gslb
