#pragma once

#include "core/clock.h"
#include "jobs/templates/cron.h"
#include "resource/kind.h"

#include <boost/json/object.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

/// The schedules of a JobTemplate. Pure: no clock, no store.
namespace orrery::jobs {

namespace json = boost::json;

struct Schedule {
    enum class Missed { skip, run_once, run_all };
    enum class Overlap { forbid, allow, queue };
    std::string name, cron_text, time_zone_name;
    CronExpression cron;
    TimeZone time_zone;
    json::object parameters;
    Missed missed = Missed::skip;
    Overlap overlap = Overlap::forbid;
    bool suspended = false;
    std::optional<Duration> start_deadline;
    /// A run that is later than this does not start.
    std::optional<Duration> max_delay() const;
};

/// The field of one schedule in the kind's declaration.
resource::Field schedule_field();
/// Reads schedules that the kind's table has validated. Errors that a table cannot find are added to `errors`, at
/// "spec.schedules[1].cron"; such a schedule is left out.
std::vector<Schedule> read_schedules(const json::object& spec, std::vector<FieldError>& errors);

/// The stored state of a schedule between two evaluations.
struct ScheduleState {
    WallTime evaluated_until{};   ///< all runs that were due until then are decided
    std::vector<WallTime> queued; ///< runs that wait for the end of the one before
};

/// `run_all` starts at most this many missed runs: the newest ones.
constexpr std::size_t max_missed_runs = 10;

struct ScheduleDecision {
    std::vector<WallTime> start;      ///< in this order
    std::vector<WallTime> overlapped; ///< not started because another run had not ended
    std::size_t missed = 0;           ///< number of runs that were too late to start
    WallTime last_missed{};
    ScheduleState state;
    std::optional<WallTime> next_due; ///< nothing: it is suspended
};

/// `busy`: a run of the template has not ended. `has_started`: the run of that due time exists, as when a server was killed before
/// it could record its start.
ScheduleDecision evaluate_schedule(const Schedule& schedule, ScheduleState state, WallTime now, bool busy,
                                   const std::function<bool(WallTime due)>& has_started);

} // namespace orrery::jobs
