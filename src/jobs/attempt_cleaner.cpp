#include "jobs/attempt_cleaner.h"

#include "core/log.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::jobs {

namespace {

/// Whether this phase of the task's last attempt has ended. A phase that has yet to start is left alone: a clean-up that waits for
/// its node could remove the files of a phase that has started in between.
bool has_ended(const TaskRecord& record, Phase phase) {
    return record.state == TaskState::running ? phase < record.phase : phase <= record.phase;
}

} // namespace

void AttemptCleaner::clean(std::shared_ptr<JobRun> run, std::uint32_t task, std::shared_ptr<RunningAttempt> running) {
    ++run->at_work->cleaning[task].pending;
    running->attempt.secrets.clear(); // the clean-up may take days
    running->attempt.environment.clear();
    auto ctx = run->context();
    engine_.term->spawn(clean_up(std::move(ctx), std::move(run), task, std::move(running)));
}

asio::awaitable<void> AttemptCleaner::clean_up(Context ctx, std::shared_ptr<JobRun> run, std::uint32_t task,
                                               std::shared_ptr<RunningAttempt> running) {
    Result<Unit> done = Unit{};
    for (Duration wait = engine_.options.clean_again;; wait = std::min<Duration>(wait * 2, std::chrono::hours(1))) {
        done = co_await running->executor->clean_up(ctx, running->attempt);
        if (done.ok()) break;
        const auto code = done.error().code;
        if (code == Code::cancelled) co_return;
        const auto ended = run->scheduler->job().ended;
        const bool too_late =
            ended != 0 && engine_.clock.wall() - WallTime(std::chrono::milliseconds(ended)) > engine_.options.clean_for;
        if ((code != Code::unavailable && code != Code::timeout && code != Code::throttled) || too_late) {
            log::info(ctx, "attempt not cleaned up attempt={} error=\"{}\"", running->attempt.id, done.error().text());
            break;
        }
        log::debug(ctx, "attempt not cleaned up yet attempt={} retry_in={} error=\"{}\"", running->attempt.id, to_text(wait),
                   done.error().text());
        if (!(co_await engine_.clock.sleep(wait)).ok()) co_return;
        if (const auto known = engine_.runs.find(run->name); known == engine_.runs.end() || known->second != run)
            break; // the job was deleted
    }
    note_end(*run, task, running->attempt.number, done.ok());
}

/// A task is clean when nothing of it is being cleaned any more: an earlier phase may take longer than the last one.
void AttemptCleaner::note_end(JobRun& run, std::uint32_t task, int number, bool ok) {
    auto& live = *run.at_work;
    auto& of_task = live.cleaning[task];
    of_task.failed = of_task.failed || !ok;
    of_task.newest = std::max(of_task.newest, number);
    if (--of_task.pending > 0) return;
    const auto ended = of_task;
    live.cleaning.erase(task);
    auto& record = run.scheduler->mutable_record(task);
    if (!ended.failed && record.state != TaskState::running && static_cast<int>(record.attempt) == ended.newest) {
        record.uncleaned = false;
        live.cleaned.push_back(task);
    }
    if (!live.cleaning.empty() || !is_terminal(run.scheduler->job().state)) return;
    live.status_stale = true; // nothing is left: the job can be unloaded
    on_cleaned_();
}

void AttemptCleaner::clean_leftovers(const std::shared_ptr<JobRun>& run) {
    const auto& plan = run->plan;
    for (std::uint32_t task = 0; task < plan.tasks; ++task) {
        const auto& record = run->scheduler->record(task);
        if (!record.uncleaned || record.attempt == 0) continue;
        const auto group = plan.group_of(task);
        const auto host = plan.host_in(group, task);
        std::vector<Target> at;
        const auto add = [&](std::uint32_t one) {
            if (auto found = builder_.target(plan.hosts[one]); found.ok()) at.push_back(**found);
        };
        if (host != Plan::none) {
            add(host);
        } else {
            for (const auto one : plan.groups[group].hosts) add(one);
        }
        for (const auto phase : {Phase::check, Phase::run, Phase::verify, Phase::undo}) {
            const auto& body = run_of(plan.spec.tasks[group], phase);
            auto* executor_of = engine_.executors.find(body.executor);
            if (executor_of == nullptr) continue;
            for (auto number = record.attempt; number > 0 && number + 2 > record.attempt; --number) { // the last two
                if (number == record.attempt && !has_ended(record, phase)) continue;
                auto left = std::make_shared<RunningAttempt>();
                left->executor = executor_of;
                left->attempt.job = plan.name;
                left->attempt.task = plan.task_name(task);
                left->attempt.number = static_cast<int>(number);
                left->attempt.id = fmt::format("{}-{}-{}{}", run->uid, task, number, name_of(phase)[0]);
                left->attempt.targets = at;
                left->attempt.body = body.body;
                clean(run, task, std::move(left));
            }
        }
    }
}

} // namespace orrery::jobs
