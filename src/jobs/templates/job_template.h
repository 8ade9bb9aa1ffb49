#pragma once

#include "core/clock.h"
#include "jobs/executor.h"
#include "jobs/templates/parameters.h"
#include "jobs/templates/schedule.h"
#include "resource/object.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// A job that runs repeatedly: its body, parameters and schedules.
namespace orrery::jobs {

struct JobTemplate {
    std::string name;
    std::vector<Parameter> parameters;
    json::object job; ///< the spec of its runs
    std::vector<Schedule> schedules;
    std::size_t max_finished_runs = 20;
};

/// `invalid` has all errors with their paths: "spec.job.tasks[1].run", "spec.schedules[0].cron". `executors` may be null: then
/// bodies are not validated.
Result<JobTemplate> read_job_template(const std::string& name, const json::object& spec, const Executors* executors = nullptr);

/// The state of a schedule from a template's status; nothing where it has none yet.
std::optional<ScheduleState> schedule_state(const json::object& status, const std::string& schedule);
json::object to_json(const Schedule& schedule, const ScheduleState& state);

/// A request for a run of a template.
struct RunRequest {
    json::object parameters;
    std::string schedule;           ///< empty: a user started it
    std::optional<WallTime> due_at; ///< of a schedule
};
/// The Job of a run, to be created. A scheduled run has the same name on every server, so that it cannot be created twice; a run of
/// a user has a unique name. `invalid` where parameters are wrong.
Result<resource::Object> make_run(const JobTemplate& of, RunRequest request, WallTime now);
std::string scheduled_run_name(std::string_view job_template, std::string_view schedule, WallTime due);
/// The template of which a Job of this name may be a run: names are TEMPLATE.SCHEDULE.TIME. Empty: of no template.
std::string_view template_of_run(std::string_view job);

/// `clock`: runs that were due before a schedule was created, changed or resumed are not started.
resource::Kind job_template_kind(const Executors& executors, Clock& clock);

} // namespace orrery::jobs
