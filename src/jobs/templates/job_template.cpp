#include "jobs/templates/job_template.h"

#include "core/ids.h"
#include "core/text.h"
#include "jobs/job_file.h"
#include "jobs/job_migration.h"
#include "jobs/values.h"

#include <boost/json/array.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace orrery::jobs {

namespace {

/// Fields of a task that are bound when it starts. A parameter stays in them as a reference; elsewhere it must be the whole value.
constexpr std::array<std::string_view, 7> late_fields{"with", "run", "check", "verify", "undo", "env", "artefacts"};
/// Fields of a Job that a template's body cannot set.
constexpr std::array<std::string_view, 4> run_fields{"template", "schedule", "due_at", "parameters"};
constexpr std::string_view person = "run"; ///< in the place of a schedule, in names of runs

/// Puts values of parameters where a job's structure needs them: `on: ${param.role}`. Values are not scanned again.
class StructureBinding {
public:
    StructureBinding(const json::object& values, std::vector<FieldError>& errors) : values_(values), errors_(errors) {}

    void bind_job(json::object& job) {
        for (auto& [key, value] : job) {
            const std::string path = fmt::format("spec.{}", std::string_view(key));
            if (key != "tasks") {
                bind_value(value, path);
            } else if (auto* list = value.if_array()) {
                for (std::size_t i = 0; i < list->size(); ++i) bind_task((*list)[i], fmt::format("{}[{}]", path, i));
            } else if (auto* named = value.if_object()) {
                for (auto& [name, task] : *named) bind_task(task, fmt::format("{}.{}", path, std::string_view(name)));
            }
        }
    }
    /// Where a value was put, and of which parameter.
    const std::vector<std::pair<std::string, std::string>>& bound() const { return bound_; }

private:
    void bind_task(json::value& task, const std::string& path) {
        auto* object = task.if_object();
        if (object == nullptr) return;
        for (auto& [key, value] : *object)
            if (std::find(late_fields.begin(), late_fields.end(), std::string_view(key)) == late_fields.end())
                bind_value(value, fmt::format("{}.{}", path, std::string_view(key)));
    }

    void bind_value(json::value& value, const std::string& path) {
        if (auto* list = value.if_array()) {
            for (std::size_t i = 0; i < list->size(); ++i) bind_value((*list)[i], fmt::format("{}[{}]", path, i));
        } else if (auto* object = value.if_object()) {
            for (auto& [key, item] : *object) bind_value(item, fmt::format("{}.{}", path, std::string_view(key)));
        } else if (const auto* text = value.if_string()) {
            bind_text(value, std::string(std::string_view(*text)), path);
        }
    }

    void bind_text(json::value& value, const std::string& text, const std::string& path) {
        for (const auto& found : references_in(value)) {
            if (!found.starts_with("param.")) continue;
            if (text != fmt::format("${{{}}}", found)) {
                errors_.push_back({path, fmt::format("${{{}}} must be the whole value here", found)});
                return;
            }
            const auto name = found.substr(6);
            if (const auto* given = values_.if_contains(name)) {
                value = *given;
                bound_.emplace_back(path, name);
            } else {
                errors_.push_back({path, fmt::format("${{{}}}: the template has no parameter {}", found, name)});
            }
            return;
        }
    }

    const json::object& values_;
    std::vector<FieldError>& errors_;
    std::vector<std::pair<std::string, std::string>> bound_;
};

/// A value of the right type, for checking a template before it is run.
json::value sample_of(const Parameter& parameter) {
    if (parameter.default_value) return *parameter.default_value;
    if (!parameter.allowed.empty())
        return parameter.type == Parameter::Type::list ? json::value(json::array{parameter.allowed.front()})
                                                       : parameter.allowed.front();
    switch (parameter.type) {
    case Parameter::Type::text: return json::value("sample");
    case Parameter::Type::integer: return json::value(static_cast<std::int64_t>(parameter.min.value_or(1)));
    case Parameter::Type::number: return json::value(parameter.min.value_or(1));
    case Parameter::Type::boolean: return json::value(true);
    case Parameter::Type::list: return json::value(json::array{"sample"});
    }
    return {};
}

/// "spec.tasks[0].on" of a job is "spec.job.tasks[0].on" of its template.
std::string in_template(const std::string& path) { return path.starts_with("spec.") ? "spec.job." + path.substr(5) : path; }

void check_bodies(const JobSpec& job, const Executors& executors, std::vector<FieldError>& errors) {
    for (const auto& task : job.tasks) {
        const std::array<std::pair<std::string_view, const RunSpec*>, 4> parts{
            {{"run", &task.run}, {"check", &task.check}, {"verify", &task.verify}, {"undo", &task.undo}}};
        for (const auto& [part, run] : parts) {
            if (!run->given()) continue;
            const auto path = fmt::format("{}.{}", in_template(task.path), part);
            const auto* executor = executors.find(run->executor);
            if (executor == nullptr) {
                errors.push_back({path, fmt::format("there is no executor {}", run->executor)});
                continue;
            }
            const auto checked = executor->check(run->body);
            if (checked.ok()) continue;
            if (checked.error().fields.empty()) errors.push_back({path, checked.error().message});
            for (const auto& field : checked.error().fields)
                errors.push_back(
                    {fmt::format("{}.{}{}{}", path, run->executor, field.path.empty() ? "" : ".", field.path), field.message});
        }
    }
}

void check_param_references(const JobTemplate& of, const json::value& value, const std::string& path,
                            std::vector<FieldError>& errors) {
    for (const auto& found : references_in(value)) {
        if (!found.starts_with("param.")) continue;
        const auto known = std::any_of(of.parameters.begin(), of.parameters.end(),
                                       [&](const Parameter& one) { return one.name == found.substr(6); });
        if (!known) errors.push_back({path, fmt::format("${{{}}}: the template has no parameter {}", found, found.substr(6))});
    }
}

/// The body, with sample values where no default is known.
void check_job(const JobTemplate& of, const Executors* executors, std::vector<FieldError>& errors) {
    for (const auto field : run_fields)
        if (of.job.contains(field)) errors.push_back({fmt::format("spec.job.{}", field), "is set by the run"});
    json::object samples;
    for (const auto& parameter : of.parameters) samples[parameter.name] = sample_of(parameter);
    auto job = of.job;
    std::vector<FieldError> found;
    StructureBinding binding(samples, found);
    binding.bind_job(job);
    for (auto& error : found) errors.push_back({in_template(error.path), std::move(error.message)});
    if (!found.empty()) return; // a parameter that is not bound would be reported twice
    auto read = read_job(job);
    if (!read.ok()) {
        // A sample is not a value of a user: a sample that does not fit proves nothing.
        const auto is_sample = [&](const std::string& path) {
            return std::any_of(binding.bound().begin(), binding.bound().end(), [&](const auto& bound) {
                const auto parameter = std::find_if(of.parameters.begin(), of.parameters.end(),
                                                    [&](const Parameter& one) { return one.name == bound.second; });
                return parameter->required && (path.starts_with(bound.first) || bound.first.starts_with(path));
            });
        };
        for (const auto& error : read.error().fields)
            if (!is_sample(error.path)) errors.push_back({in_template(error.path), error.message});
        return;
    }
    for (const auto& task : read->tasks) {
        const auto path = in_template(task.path);
        check_param_references(of, json::value(task.with), path + ".with", errors);
        for (const auto* run : {&task.run, &task.check, &task.verify, &task.undo})
            check_param_references(of, run->body, path, errors);
        for (const auto& [name, text] : task.environment)
            check_param_references(of, json::value(text), path + ".env." + name, errors);
    }
    if (executors != nullptr) check_bodies(*read, *executors, errors);
}

const json::object* schedule_entry(const json::object& status, const std::string& schedule) {
    const auto* list = status.if_contains("schedules");
    if (list == nullptr || !list->is_array()) return nullptr;
    for (const auto& one : list->get_array())
        if (const auto* object = one.if_object())
            if (const auto* name = object->if_contains("name"); name != nullptr && *name == json::value(schedule)) return object;
    return nullptr;
}

std::string compact_time(WallTime time, bool with_seconds) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
    const auto parts = fmt::gmtime(static_cast<std::time_t>(seconds));
    return with_seconds ? fmt::format("{:%Y%m%d-%H%M%S}", parts) : fmt::format("{:%Y%m%d-%H%M}", parts);
}

} // namespace

Result<JobTemplate> read_job_template(const std::string& name, const json::object& spec, const Executors* executors) {
    JobTemplate out;
    out.name = name;
    std::vector<FieldError> errors;
    out.parameters = read_parameters(spec, errors);
    out.schedules = read_schedules(spec, errors);
    if (const auto* job = spec.if_contains("job"); job != nullptr && job->is_object())
        out.job = job->get_object();
    else
        errors.push_back({"spec.job", "must be the spec of a Job: {tasks, limits, done, approve}"});
    if (const auto* max = spec.if_contains("max_finished_runs"); max != nullptr && max->is_int64())
        out.max_finished_runs = static_cast<std::size_t>(max->get_int64());
    if (errors.empty()) check_job(out, executors, errors);
    if (errors.empty())
        for (std::size_t i = 0; i < out.schedules.size(); ++i)
            if (auto values = parameter_values(out.parameters, out.schedules[i].parameters); !values.ok())
                for (const auto& field : values.error().fields)
                    errors.push_back({fmt::format("spec.schedules[{}].{}", i, field.path), field.message});
    if (errors.empty()) return out;
    Error error{Code::invalid, fmt::format("the job template has {} mistake{}", errors.size(), errors.size() == 1 ? "" : "s")};
    error.fields = std::move(errors);
    return error;
}

std::optional<ScheduleState> schedule_state(const json::object& status, const std::string& schedule) {
    const auto* entry = schedule_entry(status, schedule);
    const auto* until = entry == nullptr ? nullptr : entry->if_contains("evaluated_until");
    if (until == nullptr || !until->is_string()) return {};
    auto time = from_rfc3339(std::string_view(until->get_string()));
    if (!time.ok()) return {};
    ScheduleState out{*time, {}};
    if (const auto* queued = entry->if_contains("queued"); queued != nullptr && queued->is_array())
        for (const auto& one : queued->get_array())
            if (one.is_string())
                if (auto due = from_rfc3339(std::string_view(one.get_string())); due.ok()) out.queued.push_back(*due);
    return out;
}

json::object to_json(const Schedule& schedule, const ScheduleState& state) {
    json::object out{{"name", schedule.name}, {"evaluated_until", to_rfc3339(state.evaluated_until)}};
    if (!state.queued.empty()) {
        json::array queued;
        for (const auto due : state.queued) queued.emplace_back(to_rfc3339(due));
        out["queued"] = std::move(queued);
    }
    return out;
}

std::string scheduled_run_name(std::string_view job_template, std::string_view schedule, WallTime due) {
    return fmt::format("{}.{}.{}", job_template, schedule, compact_time(due, false));
}

std::string_view template_of_run(std::string_view job) {
    for (int part = 0; part < 2; ++part) {
        const auto dot = job.rfind('.');
        if (dot == job.npos) return {};
        job = job.substr(0, dot);
    }
    return job;
}

Result<resource::Object> make_run(const JobTemplate& of, RunRequest request, WallTime now) {
    TRY(auto values, parameter_values(of.parameters, request.parameters));
    resource::Object out;
    out.kind = "Job";
    out.name = request.schedule.empty()
                   ? fmt::format("{}.{}.{}-{}", of.name, person, compact_time(now, true), random_id().substr(0, 6))
                   : scheduled_run_name(of.name, request.schedule, request.due_at.value_or(now));
    out.spec = of.job;
    Error wrong{Code::invalid, fmt::format("job template {} cannot be run", of.name)};
    StructureBinding binding(values, wrong.fields);
    binding.bind_job(out.spec);
    if (!wrong.fields.empty()) return wrong;
    out.spec["template"] = of.name;
    if (!request.schedule.empty()) out.spec["schedule"] = request.schedule;
    if (request.due_at) out.spec["due_at"] = to_rfc3339(*request.due_at);
    if (!values.empty()) out.spec["parameters"] = std::move(values);
    return out;
}

namespace {

/// Schedules begin at the moment they are made, changed or resumed: in the same write, so that it applies on every server.
void begin_schedules(const JobTemplate& of, const resource::Object* before, resource::Object& after, WallTime now) {
    std::vector<FieldError> ignored;
    const auto old = before == nullptr ? std::vector<Schedule>() : read_schedules(before->spec, ignored);
    json::array entries;
    for (const auto& schedule : of.schedules) {
        const auto same = std::find_if(old.begin(), old.end(), [&](const Schedule& one) {
            return one.name == schedule.name && one.cron_text == schedule.cron_text &&
                   one.time_zone_name == schedule.time_zone_name && (one.suspended == schedule.suspended || schedule.suspended);
        });
        const auto* entry = before == nullptr ? nullptr : schedule_entry(before->status, schedule.name);
        if (same != old.end() && entry != nullptr)
            entries.push_back(*entry);
        else
            entries.push_back(to_json(schedule, {now, {}}));
    }
    if (entries.empty())
        after.status.erase("schedules");
    else
        after.status["schedules"] = std::move(entries);
}

} // namespace

static Task<Unit> prepare_template(resource::Draft& draft, const Executors& executors, Clock& clock) {
    constexpr std::size_t max_template_name = 150; // names of runs are longer
    if (draft.after.name.size() > max_template_name)
        co_return Error{Code::invalid, fmt::format("the name of a JobTemplate has at most {} characters", max_template_name),
                        "its runs are named after it"};
    CO_TRY(const auto read, read_job_template(draft.after.name, draft.after.spec, &executors));
    begin_schedules(read, draft.before, draft.after, clock.wall());
    co_return Unit{};
}

resource::Kind job_template_kind(const Executors& executors, Clock& clock) {
    using namespace resource;
    Kind kind("JobTemplate", "jobtemplates", "A job that runs repeatedly, with parameters, started by users and by schedules.");
    kind.spec(text("description", "What it is for.").format(Format::one_line).between(0, 1024))
        .spec(list("parameters", "What a run may be given.", parameter_field()).between(0, 100))
        .spec(any("job", "The spec of each run: tasks, limits, done, approve, as in a Job. ${param.NAME} is a parameter's value.")
                  .required())
        .spec(list("schedules", "When it runs by itself.", schedule_field()).between(0, 20))
        .spec(integer("max_finished_runs", "Runs that have ended are kept up to this number; older ones are deleted.")
                  .between(0, 1000)
                  .default_value(20))
        .status(integer("running", "Runs that have not ended."))
        .status(object("last_run", "The newest run.")
                    .with(text("job", "Its Job."))
                    .with(text("state", "Of that Job."))
                    .with(time("created_at", "When it was submitted.")))
        .status(time("next_run", "When the next run is due, of all schedules."))
        .status(any("schedules", "Of each schedule: evaluated_until, next_run, last_run, queued, message."))
        .column("NAME", "name")
        .column("RUNNING", "status.running")
        .column("LAST RUN", "status.last_run.job")
        .column("STATE", "status.last_run.state")
        .column("NEXT RUN", "status.next_run")
        .column("AGE", "age")
        .wide_column("DESCRIPTION", "spec.description")
        .also_called({"jt"})
        .example(R"(kind: JobTemplate
name: restart
spec:
  description: restart a service, some nodes at a time
  parameters:
    - {name: role, required: true, pattern: "[a-z0-9-]+", description: the role of the nodes}
    - {name: unit, default: nginx, allowed: [nginx, haproxy]}
    - {name: at_once, type: integer, default: 1, min: 1, max: 10}
  job:
    tasks:
      - name: restart
        on: ${param.role}
        batch: ${param.at_once}
        env: {UNIT: "${param.unit}"}
        run: systemctl restart "$UNIT"
  schedules:
    - name: weekly
      cron: 30 2 * * sun
      time_zone: Europe/Berlin
      parameters: {role: web}
      missed: run-once
)");
    kind.migrate([](json::object& spec, json::object&) {
        if (auto* job = spec.if_contains("job"); job != nullptr && job->is_object()) migrate_job_spec(job->get_object());
    });
    kind.prepare([&executors, &clock](Context, Draft& draft) { return prepare_template(draft, executors, clock); });
    return kind;
}

} // namespace orrery::jobs
