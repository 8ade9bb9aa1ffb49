#include "jobs/status_reporter.h"

#include "core/log.h"
#include "core/text.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <fmt/format.h>

#include <utility>

namespace orrery::jobs {

json::object status_of(const JobRun& run) {
    const auto& job = run.scheduler->job();
    const auto& counts = run.scheduler->counts();
    json::object tasks{{"total", run.plan.tasks}};
    for (std::size_t i = 0; i < task_states; ++i)
        if (counts.by_state[i] > 0) tasks[name_of(static_cast<TaskState>(i))] = counts.by_state[i];
    json::object status{{"uid", run.uid},
                        {"context", run.context_id},
                        {"submitted_by", run.submitted_by},
                        {"state", name_of(job.state)},
                        {"digest", run.plan.digest},
                        {"nodes", run.plan.hosts.size()},
                        {"tasks", std::move(tasks)}};
    std::uint32_t ended = 0;
    for (std::size_t i = 0; i < task_states; ++i)
        if (is_terminal(static_cast<TaskState>(i))) ended += counts.by_state[i];
    status["progress"] = fmt::format("{}/{}", ended, run.plan.tasks);
    if (is_terminal(job.state)) status["cleaned"] = run.at_work->is_idle();
    if (keeps_rolling_slots(job.state)) {
        json::array slots;
        for (const auto& [role, host] : run.limits->rolling_slots_of(run.name))
            slots.push_back(json::object{{"role", role}, {"node", host}});
        if (!slots.empty()) status["rolling_slots"] = std::move(slots);
    }
    if (job.paused) status["paused"] = true;
    if (auto message = job.text(); !message.empty()) status["message"] = message;
    if (job.began != 0) status["started_at"] = to_rfc3339(WallTime(std::chrono::milliseconds(job.began)));
    if (job.ended != 0) status["ended_at"] = to_rfc3339(WallTime(std::chrono::milliseconds(job.ended)));
    return status;
}

namespace {

/// The state of the job, or whether it is paused, differs from the last report.
bool has_news(const JobRun& run) {
    const auto& live = *run.at_work;
    return run.scheduler->job().state != live.reported || run.scheduler->job().paused != live.reported_paused;
}

} // namespace

std::vector<std::shared_ptr<JobRun>> StatusReporter::due_jobs(std::optional<SteadyTime>& next) const {
    std::vector<std::shared_ptr<JobRun>> due;
    for (const auto& [name, run] : engine_.runs) {
        const auto& live = *run->at_work;
        if (!live.status_stale || !live.first_entries.empty()) continue;
        const auto written = written_at_.find(name);
        const auto at = written == written_at_.end() ? SteadyTime{} : written->second + engine_.options.report;
        if (has_news(*run) || at <= engine_.clock.steady())
            due.push_back(run);
        else if (!next || at < *next)
            next = at;
    }
    return due;
}

asio::awaitable<bool> StatusReporter::report(std::shared_ptr<JobRun> run, const store::Fence& fence) {
    auto& live = *run->at_work;
    const auto ctx = run->context();
    const auto state = run->scheduler->job().state;
    const bool paused = run->scheduler->job().paused;
    const bool news = has_news(*run), idle = live.is_idle();
    live.status_stale = false;
    written_at_[run->name] = engine_.clock.steady();
    auto written = co_await engine_.resources.set_status(ctx, engine_.kind("Job"), run->name, status_of(*run), {.fence = &fence});
    if (!written.ok()) {
        if (written.error().code == Code::cancelled) co_return false;
        live.status_stale = written.error().code != Code::not_found;
        log::warn(ctx, "job status not stored job={} error=\"{}\"", run->name, written.error().text());
        co_return true;
    }
    const auto before = std::exchange(live.reported, state);
    live.reported_paused = paused;
    if (news) {
        auto recorded =
            co_await engine_.resources.record(ctx, {.subject = "Job/" + run->name,
                                                    .action = std::string(paused && before == state ? "paused" : name_of(state)),
                                                    .reason = run->scheduler->job().message,
                                                    .evidence = json::object{{"tasks", status_of(*run)["tasks"]}}});
        if (!recorded.ok() && recorded.error().code == Code::cancelled) co_return false;
        if (before != state) log::info(ctx, "job state changed job={} state={}", run->name, name_of(state));
    }
    if (is_terminal(state) && run->scheduler->job().state == state && idle && !live.status_stale) {
        run->live = false;
        run->note_change();
        engine_.runs.erase(run->name);
        written_at_.erase(run->name);
    }
    co_return true;
}

asio::awaitable<void> StatusReporter::run(Context ctx, store::Fence fence) {
    using namespace asio::experimental::awaitable_operators;
    written_at_.clear();
    for (;;) {
        std::optional<SteadyTime> next;
        const auto due = due_jobs(next);
        for (const auto& run : due)
            if (!co_await report(run, fence)) co_return;
        if (!due.empty()) continue;
        if (next) {
            auto waited = co_await (wake_.wait(ctx) || engine_.clock.sleep_until(*next));
            const auto& first = waited.index() == 0 ? std::get<0>(waited) : std::get<1>(waited);
            if (!first.ok()) co_return;
        } else {
            auto waited = co_await wake_.wait(ctx);
            if (!waited.ok()) co_return;
        }
    }
}

} // namespace orrery::jobs
