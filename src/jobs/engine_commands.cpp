#include "jobs/engine_state.h"

#include <fmt/format.h>

/// The commands of users (approve, pause, resume, cancel, retry, undo), applied to a run.
namespace orrery::jobs {

namespace {

/// Whether the user who submitted the job must not approve it, or that task of it.
bool by_another(const Plan& plan, std::optional<std::uint32_t> task) {
    return task ? plan.spec.tasks[plan.group_of(*task)].approve_by_another : plan.spec.approve_by_another;
}

} // namespace

Result<Unit> Engine::State::apply_command(const ReceivedCommand& received, JobRun& run, std::optional<std::uint32_t> task,
                                          Moment now) {
    using Action = JobCommand::Action;
    const auto& command = received.command;
    auto& scheduler = *run.scheduler;
    auto message = fmt::format("by {}{}{}", received.actor, command.reason.empty() ? "" : ": ", command.reason);
    switch (command.action) {
    case Action::approve:
        if (command.digest != run.plan.digest)
            return Error{Code::conflict,
                         fmt::format("the plan of job {} is {}, not {}", received.job, run.plan.digest, command.digest),
                         "review the plan again, then approve it by its digest"};
        if (by_another(run.plan, task) && received.actor == run.submitted_by)
            return Error{
                Code::denied,
                fmt::format("job {} was submitted by {}, and must be approved by another user", received.job, received.actor),
                "ask another user to review the plan and approve it"};
        return scheduler.approve(task, now);
    case Action::pause: return scheduler.pause(std::move(message), now);
    case Action::resume: return scheduler.unpause(now);
    case Action::cancel: return scheduler.cancel(std::move(message), command.undo, now);
    case Action::retry: return scheduler.retry(task, now);
    case Action::undo: return scheduler.undo(std::move(message), now);
    }
    return Unit{};
}

} // namespace orrery::jobs
