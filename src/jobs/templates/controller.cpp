#include "jobs/templates/controller.h"

#include "core/json_fields.h"
#include "core/log.h"
#include "jobs/records.h"
#include "resource/controller.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace orrery::jobs {

namespace {

/// The wall clock may be set: due runs are evaluated at least this often.
constexpr auto max_sleep = std::chrono::seconds(60);

/// The relevant parts of a Job that is a run.
struct Run {
    std::string name, state, schedule;
    WallTime created_at{};
    bool ended = false;    ///< its state is final
    bool finished = false; ///< ended, or converged: it has done its work
    bool removable = false;
};

Run run_of_job(const resource::Object& job) {
    Run out{job.name, text_at(job.status, "state"), text_at(job.spec, "schedule"), job.created_at};
    const auto state = job_state_named(out.state);
    out.ended = out.state == "refused" || (state && is_terminal(*state));
    out.finished = out.ended || state == JobState::converged;
    // The Job is needed to find what its attempts left on nodes.
    const auto* cleaned = job.status.if_contains("cleaned");
    out.removable = out.ended && (out.state == "refused" || (cleaned != nullptr && cleaned->is_bool() && cleaned->get_bool()));
    return out;
}

/// The job itself is wrong, and would be refused again.
bool is_refusal(const Error& error) {
    return error.code == Code::invalid || error.code == Code::not_found || error.code == Code::denied ||
           error.code == Code::unsupported;
}

} // namespace

struct TemplateController::State : std::enable_shared_from_this<State> {
    State(resource::Resources& of, store::Leadership& lead, Clock& time) : resources(of), leadership(lead), clock(time) {}

    resource::Resources& resources;
    store::Leadership& leadership;
    Clock& clock;
    std::unique_ptr<resource::Controller> controller;
    TaskGroup* timers = nullptr;
    std::map<std::string, SteadyTime> wakes; ///< by template: the earliest timer that runs
    /// Jobs are read again only when they change.
    struct ReadRun {
        store::Revision modified = 0;
        Run run;
    };
    std::map<std::string, std::map<std::string, ReadRun>> known; ///< by template, by Job

    const resource::Kind& kind() const { return *resources.registry().find("JobTemplate"); }
    const resource::Kind& jobs() const { return *resources.registry().find("Job"); }

    Result<std::vector<Run>> runs_of(const std::string& name) {
        std::vector<Run> out;
        std::map<std::string, ReadRun> read;
        auto& before = known[name];
        resource::ListQuery query;
        query.fields = {{"template", name}};
        query.limit = 5000;
        for (;;) {
            TRY(const auto page, resources.list(jobs(), query));
            for (const auto& record : page.records) {
                auto& one = read[record->key];
                if (const auto found = before.find(record->key);
                    found != before.end() && found->second.modified == record->modified) {
                    one = found->second;
                } else {
                    TRY(const auto job, resource::from_stored(*record));
                    one = {record->modified, run_of_job(job)};
                }
                out.push_back(one.run);
            }
            if (page.next.empty()) break;
            query.after = page.next;
        }
        before = std::move(read);
        std::sort(out.begin(), out.end(),
                  [](const Run& a, const Run& b) { return std::tie(a.created_at, a.name) < std::tie(b.created_at, b.name); });
        return out;
    }

    /// Reconciles the template again when the next run is due.
    void wake_for(const std::string& name, std::optional<WallTime> due) {
        if (!due || timers == nullptr) return;
        const auto wait = std::clamp<Duration>(*due - clock.wall(), Duration::zero(), max_sleep);
        const auto at = clock.steady() + wait;
        if (const auto found = wakes.find(name); found != wakes.end() && found->second <= at) return;
        wakes[name] = at;
        timers->spawn(wake_at(shared_from_this(), name, at));
    }
    static asio::awaitable<void> wake_at(std::shared_ptr<State> state, std::string name, SteadyTime at) {
        const auto slept = co_await state->clock.sleep_until(at);
        if (const auto found = state->wakes.find(name); found != state->wakes.end() && found->second == at)
            state->wakes.erase(found);
        if (slept.ok() && state->controller) state->controller->enqueue("jobtemplates/" + name);
    }

    Task<Unit> reconcile(Context ctx, std::string key, store::Fence fence);
    Task<json::object> reconcile_schedule(Context ctx, const JobTemplate& of, const Schedule& schedule, json::object status,
                                          bool& busy, std::vector<resource::EventDraft>& events, store::Fence fence);
    Task<std::string> start_scheduled(Context ctx, const JobTemplate& of, const Schedule& schedule, WallTime due,
                                      store::Fence fence);
    Task<Unit> remove_old_runs(Context ctx, const JobTemplate& of, const std::vector<Run>& runs, store::Fence fence);
};

/// Creates the Job of a due run, unless it exists. Returns why it was refused, or "".
Task<std::string> TemplateController::State::start_scheduled(Context ctx, const JobTemplate& of, const Schedule& schedule,
                                                             WallTime due, store::Fence fence) {
    auto job = make_run(of, {schedule.parameters, schedule.name, due}, clock.wall());
    if (!job.ok()) co_return job.error().message;
    const auto name = job->name;
    resource::WriteOptions options;
    options.reason = fmt::format("schedule {} of job template {}, due {}", schedule.name, of.name, to_rfc3339(due));
    options.fence = &fence;
    const auto actor = Context::make(fmt::format("jobtemplate/{}", of.name));
    const auto made = co_await resources.create(actor, jobs(), std::move(*job), options);
    if (made.ok()) {
        log::info(actor, "scheduled run started job={} schedule={} due={}", name, schedule.name, to_rfc3339(due));
        co_return std::string();
    }
    if (made.error().code == Code::conflict && resources.exists(jobs(), name))
        co_return std::string(); // an earlier leader created it
    if (!is_refusal(made.error())) co_return made.error();
    std::string message = made.error().message;
    if (!made.error().fields.empty())
        message += fmt::format(": {} {}", made.error().fields.front().path, made.error().fields.front().message);
    co_return message;
}

Task<json::object> TemplateController::State::reconcile_schedule(Context ctx, const JobTemplate& of, const Schedule& schedule,
                                                                 json::object status, bool& busy,
                                                                 std::vector<resource::EventDraft>& events, store::Fence fence) {
    const auto now = clock.wall();
    const auto before = schedule_state(status, schedule.name).value_or(ScheduleState{now, {}});
    const auto decision = evaluate_schedule(schedule, before, now, busy, [&](WallTime due) {
        return resources.exists(jobs(), scheduled_run_name(of.name, schedule.name, due));
    });
    auto entry = to_json(schedule, decision.state);
    if (const auto* list = status.if_contains("schedules"); list != nullptr && list->is_array())
        for (const auto& one : list->get_array())
            if (const auto* old = one.if_object(); old != nullptr && text_at(*old, "name") == schedule.name)
                for (const auto* field : {"last_run", "message"})
                    if (const auto* value = old->if_contains(field)) entry[field] = *value;
    const auto note = [&](std::string event, std::string message) {
        entry["message"] = message;
        events.push_back(
            {"JobTemplate/" + of.name, std::move(event), std::move(message), json::object{{"schedule", schedule.name}}});
    };
    if (decision.missed > 0)
        note("run-missed", fmt::format("{} run{} of schedule {} could not start in time, the last was due {}", decision.missed,
                                       decision.missed == 1 ? "" : "s", schedule.name, to_rfc3339(decision.last_missed)));
    for (const auto due : decision.overlapped)
        note("run-skipped", fmt::format("the run of schedule {} due {} did not start: another run of the template had not ended",
                                        schedule.name, to_rfc3339(due)));
    for (const auto due : decision.start) {
        CO_TRY(auto refused, co_await start_scheduled(ctx, of, schedule, due, fence));
        if (!refused.empty()) {
            note("run-refused",
                 fmt::format("the run of schedule {} due {} was refused: {}", schedule.name, to_rfc3339(due), refused));
            continue;
        }
        busy = true;
        entry["last_run"] = scheduled_run_name(of.name, schedule.name, due);
        entry.erase("message");
    }
    if (schedule.suspended)
        entry["message"] = "suspended";
    else if (text_at(entry, "message") == "suspended")
        entry.erase("message");
    if (decision.next_due) entry["next_run"] = to_rfc3339(*decision.next_due);
    co_return entry;
}

Task<Unit> TemplateController::State::remove_old_runs(Context ctx, const JobTemplate& of, const std::vector<Run>& runs,
                                                      store::Fence fence) {
    auto excess = static_cast<std::size_t>(std::count_if(runs.begin(), runs.end(), [](const Run& run) { return run.ended; }));
    for (const auto& run : runs) { // oldest first
        if (excess <= of.max_finished_runs) break;
        if (!run.ended) continue;
        --excess;
        if (!run.removable) continue;
        resource::WriteOptions options;
        options.reason = fmt::format("job template {} keeps {} finished runs", of.name, of.max_finished_runs);
        options.fence = &fence;
        auto removed = co_await resources.remove(Context::make(fmt::format("jobtemplate/{}", of.name)), jobs(), run.name, options);
        if (!removed.ok() && removed.error().code != Code::not_found) co_return std::move(removed).error();
    }
    co_return Unit{};
}

Task<Unit> TemplateController::State::reconcile(Context ctx, std::string key, store::Fence fence) {
    constexpr std::string_view of_job = "jobs/", of_template = "jobtemplates/";
    if (key.starts_with(of_job)) { // a run may have ended
        const auto name = template_of_run(std::string_view(key).substr(of_job.size()));
        if (!name.empty() && resources.exists(kind(), name)) controller->enqueue(fmt::format("{}{}", of_template, name));
        co_return Unit{};
    }
    const auto name = key.substr(of_template.size());
    const auto object = resources.get(kind(), name);
    if (!object.ok()) {
        known.erase(name);
        co_return Unit{};
    }
    CO_TRY(const auto of, read_job_template(name, object->spec));
    CO_TRY(auto runs, runs_of(name));
    bool busy = std::any_of(runs.begin(), runs.end(), [](const Run& run) { return !run.finished; });
    const bool was_busy = busy;
    std::vector<resource::EventDraft> events;
    json::array schedules;
    std::optional<WallTime> next;
    for (const auto& schedule : of.schedules) {
        CO_TRY(auto entry, co_await reconcile_schedule(ctx, of, schedule, object->status, busy, events, fence));
        if (auto due = from_rfc3339(text_at(entry, "next_run")); due.ok()) next = next ? std::min(*next, *due) : *due;
        schedules.emplace_back(std::move(entry));
    }
    if (busy != was_busy) {
        CO_TRY(runs, runs_of(name));
    }
    json::object status{{"running", std::count_if(runs.begin(), runs.end(), [](const Run& run) { return !run.finished; })}};
    if (!runs.empty())
        status["last_run"] = json::object{
            {"job", runs.back().name}, {"state", runs.back().state}, {"created_at", to_rfc3339(runs.back().created_at)}};
    if (next) status["next_run"] = to_rfc3339(*next);
    if (!schedules.empty()) status["schedules"] = std::move(schedules);
    // Events first: one that is recorded twice, by a server that is killed here, is better than one that is lost.
    for (auto& event : events) std::ignore = co_await resources.record(ctx, std::move(event));
    if (status != object->status) {
        resource::WriteOptions options;
        options.fence = &fence;
        options.if_revision = object->revision; // a schedule that was changed meanwhile is evaluated again
        CO_TRY(std::ignore, co_await resources.set_status(ctx, kind(), name, std::move(status), options));
    }
    wake_for(name, next);
    co_return co_await remove_old_runs(ctx, of, runs, fence);
}

TemplateController::TemplateController(resource::Resources& resources, store::Leadership& leadership, Clock& clock)
    : state_(std::make_shared<State>(resources, leadership, clock)) {}
TemplateController::~TemplateController() = default;

asio::awaitable<void> TemplateController::run(Context ctx) {
    auto state = state_;
    TaskGroup timers(co_await asio::this_coro::executor);
    state->timers = &timers;
    auto* raw = state.get(); // the controller belongs to the state
    state->controller = std::make_unique<resource::Controller>(
        state->resources.store(), state->leadership, state->clock, std::vector<std::string>{"jobtemplates/", "jobs/"},
        [raw](Context of, std::string key, store::Fence fence) {
            return raw->reconcile(std::move(of), std::move(key), std::move(fence));
        },
        resource::Controller::Options{});
    co_await state->controller->run(ctx.with_actor("job-templates"));
    state->timers = nullptr;
    // Also when this was cancelled: the timers refer to the controller.
    co_await asio::this_coro::throw_if_cancelled(false);
    co_await timers.stop();
    state->wakes.clear();
}

Result<resource::Object> TemplateController::make(const std::string& job_template, json::object parameters) const {
    TRY(const auto object, state_->resources.get(state_->kind(), job_template));
    TRY(const auto of, read_job_template(job_template, object.spec));
    return make_run(of, {std::move(parameters), {}, {}}, state_->clock.wall());
}

Task<resource::Outcome> TemplateController::start(Context ctx, std::string job_template, json::object parameters,
                                                  resource::WriteOptions options) {
    CO_TRY(auto job, make(job_template, std::move(parameters)));
    co_return co_await state_->resources.create(std::move(ctx), state_->jobs(), std::move(job), std::move(options));
}

} // namespace orrery::jobs
