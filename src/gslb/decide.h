#pragma once

#include "gslb/settle.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

/// The second step: a rule, the pools it uses, what is remembered, and the time become the answers of a name. The one function that
/// the DNS server's table, the publishers, `why`, replays and what-ifs all rest on.
namespace orrery::gslb {

/// A member that a name may answer with.
struct Serving {
    std::string member, pool;
    Addresses addresses;
    std::uint32_t weight = 1;
    std::string site, rack;
    bool operator==(const Serving&) const = default;
};

/// What clients of one class get.
struct Answer {
    std::string clients;            ///< the class's label; empty: all who are in none
    std::vector<std::string> pools; ///< where the candidates come from
    std::vector<Serving> candidates;
    Answers picking = Answers::all;
    std::uint32_t most = 0;
    std::string name; ///< sticky-by-name: the one that is asked for; empty: any below a wildcard
    std::uint32_t ttl = 30;
    bool panic = false;              ///< nothing is well, and this is served all the same
    std::string alias;               ///< a CNAME in place of addresses
    AllDown empty = AllDown::nodata; ///< where there is no candidate: nodata, servfail or refuse
    bool operator==(const Answer&) const = default;
    json::object to_json() const; ///< what clients would notice, and nothing else
};

/// What must be remembered of a name from one time to the next. Kept in its status.
struct Memory {
    struct Left {
        WallTime since{};             ///< when it was found unusable
        std::optional<WallTime> back; ///< when it became usable again
        bool operator==(const Left&) const = default;
    };
    std::map<std::string, Left> left;                      ///< pools that clients have left and not returned to
    std::map<std::string, std::string> leading;            ///< latency: by class, the pool that leads
    std::map<std::string, std::vector<Serving>> last_good; ///< by class, where the rule wants it
    bool operator==(const Memory&) const = default;
    json::object to_json() const;
    static Memory from(const json::object& value);
};

/// Everything the answers of one name depend on.
struct Snapshot {
    Rule rule;                      ///< its classes are those of the clients, geo's included; their prefixes do not matter here
    std::vector<PoolViewPtr> pools; ///< those that the rule names, as far as they exist
    Memory memory;
    WallTime time{};
    json::object to_json() const;
    static Result<Snapshot> from(const json::object& value);
};

/// normal: the preferred pools answer. failover: others do. panic: nothing is well, and something is answered all the same. empty:
/// nothing is answered.
enum class Condition { normal, failover, panic, empty };
std::string_view name_of(Condition condition);

struct Decision {
    Condition condition = Condition::normal; ///< the worst over the classes
    std::vector<Answer> answers;             ///< the first is for clients of no class; then one a class of the rule
    std::vector<std::string> because;        ///< in words, for people
    std::vector<Withheld> withheld;
    Memory memory;
    std::optional<WallTime> look_again; ///< when time alone may change it
    /// The whole decision as clients see it, canonical: the same decision is the same text.
    json::object to_json() const;
    /// What clients of no class get, in short: {"condition", "pool", "answers": [addresses], "ttl", "panic"}.
    json::object summary() const;
    bool same_answers(const Decision& other) const { return condition == other.condition && answers == other.answers; }
};

Decision decide(const Snapshot& snapshot);

/// Whether a pool has enough healthy members, and in words how it stands.
struct Usable {
    bool usable = false;
    std::string words; ///< "2 of 3 healthy, needs 2"
};
Usable is_usable(const PoolView& pool);

} // namespace orrery::gslb
