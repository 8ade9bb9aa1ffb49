#pragma once

#include "jobs/membership.h"
#include "jobs/scheduler/task_table.h"
#include "jobs/scheduler/timer_queue.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::jobs {

/// The barriers of one job: whether each is met and since when, which tasks wait for it, and the conditions of `done`. Missing
/// evidence closes a barrier, but does not restart its hold time. Private to the scheduler.
class BarrierTracker {
public:
    /// What a barrier counts now.
    struct View {
        std::optional<std::int64_t> seen; ///< nothing: no evidence
        bool met = false;
    };
    struct ExpiredDeadline {
        OnTimeout action = OnTimeout::fail;
        std::string message; ///< what is missing
    };

    BarrierTracker(TaskTable& table, TimerQueue& timers, const Membership& membership);

    /// Evaluates all barriers again and forgets the tasks that wait.
    void reset(Moment now);
    void clear_waiting();

    /// Whether all barriers of the group are open. Sets a timer for each whose hold time has not passed.
    bool is_open(std::uint32_t group, Moment now);
    void add_waiting(std::uint32_t group, std::uint32_t task) { groups_[group].waiting.push_back(task); }
    /// Evaluates the group's barriers again. Returns the tasks that waited, where all of them are open now.
    std::vector<std::uint32_t> evaluate(std::uint32_t group, Moment now);
    /// The groups whose barriers or re-runs depend on the service; empty name: all groups.
    std::vector<std::uint32_t> groups_using(std::string_view service) const;

    /// Tasks that wait until a value is known.
    void add_waiting_for_evidence(std::uint32_t task) { evidence_waiting_.push_back(task); }
    std::vector<std::uint32_t> take_waiting_for_evidence() { return std::exchange(evidence_waiting_, {}); }

    /// The closed barrier of the task whose deadline came first; nothing where none has a deadline.
    std::optional<ExpiredDeadline> expired_deadline(std::uint32_t task) const;

    /// Whether the job's `done` holds for as long as it must. Sets a timer where that is a matter of time.
    bool done_holds(Moment now);
    bool is_used_by_done(std::string_view service) const { return service.empty() || done_services_.contains(service); }

    View view(std::uint32_t group, std::size_t index) const;
    View done_view(std::size_t index) const;

private:
    struct Barrier {
        std::optional<SteadyTime> met_since;
        SteadyTime timer{}; ///< one is set for this moment
        bool open = false;
    };
    struct GroupBarriers {
        std::vector<Barrier> barriers;
        std::vector<std::uint32_t> waiting; ///< tasks; some may have left
    };
    void evaluate(const BarrierSpec& spec, std::int64_t wanted, Barrier& barrier, Moment now) const;
    void evaluate_group(std::uint32_t group, Moment now);
    std::optional<std::int64_t> count_members(const BarrierSpec& spec) const; ///< nothing: no evidence
    std::string missing_text(const BarrierSpec& spec, std::int64_t wanted) const;

    TaskTable& table_;
    TimerQueue& timers_;
    const Membership& membership_;
    std::vector<GroupBarriers> groups_;
    std::vector<Barrier> done_barriers_;
    std::optional<SteadyTime> done_since_;
    std::map<std::string, std::vector<std::uint32_t>, std::less<>> groups_by_service_;
    std::set<std::string, std::less<>> done_services_;
    std::vector<std::uint32_t> evidence_waiting_;
};

} // namespace orrery::jobs
