#pragma once

#include "gslb/compile.h"
#include "gslb/decision_record.h"
#include "gslb/foresee.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orrery::gslb {

/// What came of looking at a name again.
struct Outcome {
    std::string name;             ///< of the LoadBalancer
    bool answers_changed = false; ///< what clients get is another
    bool gone = false;            ///< the LoadBalancer is no more; nothing below counts
    RecordDraft record;           ///< the Decision's spec; nothing where neither answers nor what is withheld changed
    std::shared_ptr<const Decision> decision;
};

/// Everything that decisions are made from, in memory, and who depends on what: a change marks the names it may matter to, and
/// `turn` decides those again and no others. No clock, no store, no network: time comes in. Loop thread only.
class Engine {
public:
    Engine();
    ~Engine();

    // --- Inputs. Each notes what set it off. Of several before a turn a person's word counts first, then that a member was found
    // otherwise, and the rest is told as what also happened. What is the same as before changes nothing.
    void set_rule(Rule rule, Clients clients, const Trigger& trigger);
    void remove_rule(const std::string& name);
    void set_pool(PoolSpec pool, const Trigger& trigger);
    void remove_pool(const std::string& name, const Trigger& trigger);
    /// Its signal stays what it was.
    void set_member(MemberInput member, const Trigger& trigger);
    void remove_member(const std::string& name, const Trigger& trigger);
    /// Unknown members are not minded: their signal may be ahead of them.
    void set_signal(const std::string& member, Signal signal, std::string cause = "probe");
    void set_monitor(MonitorSpec monitor);
    void remove_monitor(const std::string& name);
    /// What was remembered before a restart. Before the first turn.
    void remember(const std::string& name, Memory memory, std::int64_t decisions, std::optional<json::object> last_summary = {});
    void remember_pool(const std::string& name, PoolMemory memory);

    /// What the server that leads remembers of a pool: whom a guard lets go must be the same everywhere. Holds until it says
    /// another, or until `lead`.
    void follow_pool(const std::string& name, PoolMemory leaders);
    /// How many decisions about a name the leader has counted: whoever leads next goes on from there.
    void follow_count(const std::string& name, std::int64_t decisions);
    /// From now on this server's own memory counts, which is what it last followed and what it saw since.
    void lead();

    /// The time of day was set: what lasts for so long from some instant lasts no shorter and no longer for it. What a person said
    /// is to hold until some time of day holds until then.
    void clock_stepped(std::chrono::milliseconds by);

    /// Decides all names again whose inputs changed, or whose time has come.
    std::vector<Outcome> turn(WallTime now);
    bool has_work() const;
    /// When time alone may change something; nothing: never.
    std::optional<WallTime> next() const;

    // --- What there is. Null and nothing where there is no such name.
    std::shared_ptr<const Decision> decision(std::string_view name) const;
    std::optional<Snapshot> snapshot(std::string_view name, WallTime now) const;
    const Rule* rule(std::string_view name) const;
    const Clients* clients(std::string_view name) const;
    /// The LoadBalancer that answers for a domain name.
    std::string name_of_fqdn(std::string_view fqdn) const;
    std::optional<dns::Tailored> tailored(std::string_view name) const;
    /// `publication`: how long it takes from a decision until every name server answers by it.
    FailoverTime failover_time(std::string_view name, Duration publication = {}) const;
    std::int64_t decisions(std::string_view name) const;
    Result<Foresight> what_if(std::string_view name, const Hypothesis& change, WallTime now) const;
    struct PoolNowView {
        PoolViewPtr view;
        const PoolMemory* memory = nullptr;
        const std::vector<Withheld>* withheld = nullptr;
    };
    std::optional<PoolNowView> pool(std::string_view name) const;
    /// Pools whose view, memory or held changes are others since this was last asked.
    std::vector<std::string> take_changed_pools();
    const MemberInput* member(std::string_view name) const;
    std::set<std::string> names_using(std::string_view pool) const;
    /// How long after a member of this pool was taken out resolvers may still give it to clients: the longest of what its names'
    /// answers may be kept for, and what it takes until every name server answers anew (by domain name).
    Duration kept_by_resolvers(std::string_view pool, const std::function<Duration(const std::string& fqdn)>& publication) const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::gslb
