#include "jobs/attempt_runner.h"

#include "core/log.h"
#include "core/text.h"
#include "core/truncate.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>

namespace orrery::jobs {

namespace {

void log_end(const JobRun& run, const RunningAttempt& running) {
    const auto& outcome = running.outcome;
    if (running.not_started || running.attempt.task.empty()) return;
    if (outcome.ended == Outcome::Ended::succeeded)
        log::debug(run.context(), "attempt succeeded task={} attempt={} phase={}", running.attempt.task, running.attempt.number,
                   name_of(running.phase));
    else
        log::warn(run.context(), "attempt {} task={} attempt={} phase={} message=\"{}\"", name_of(outcome.ended),
                  running.attempt.task, running.attempt.number, name_of(running.phase), outcome.message);
}

} // namespace

void AttemptRunner::start(std::shared_ptr<JobRun> run, Scheduler::Start start, SteadyTime due, std::shared_ptr<void> owner) {
    auto running = std::make_shared<RunningAttempt>();
    running->phase = start.phase;
    running->due = due;
    run->at_work->running[start.task] = running;
    ++running_;
    auto finished = [this, owner = std::move(owner), run, start, running](std::exception_ptr failure) {
        finish(run, start, running, failure);
    };
    asio::co_spawn(engine_.executor, run_attempt(run->context(), run, start, running),
                   asio::bind_cancellation_slot(running->detach.slot(), std::move(finished)));
}

void AttemptRunner::finish(const std::shared_ptr<JobRun>& run, Scheduler::Start start,
                           const std::shared_ptr<RunningAttempt>& running, std::exception_ptr failure) {
    --running_;
    if (running->sink) running->sink->on_pending = nullptr; // it holds the run, which holds the attempt
    bool detached = false;
    if (failure) {
        try {
            std::rethrow_exception(failure);
        } catch (const boost::system::system_error&) {
            detached = true; // this server stops, or gave the attempt up
        } catch (const std::exception& error) {
            log::error(run->context(), "attempt ended with an exception task={} error=\"{}\"", run->plan.task_name(start.task),
                       error.what());
            running->outcome = Outcome::failure(ErrorClass::refused, fmt::format("a bug: {}", error.what()));
        }
    }
    if (detached && running->killed) running->outcome = Outcome::failure(ErrorClass::lost, "it did not end after it was killed");
    if (!detached || running->killed) {
        if (running->ended_at == SteadyTime{}) running->ended_at = engine_.clock.steady();
        log_end(*run, *running);
        ended_.push_back({run, start.task, running});
        on_ended_();
    }
    if (running_ == 0) emptied_.notify_all();
}

bool AttemptRunner::set_up(const Context& ctx, const JobRun& run, Scheduler::Start start, RunningAttempt& running,
                           std::vector<std::string>& missing_secrets) {
    const auto& record = run.scheduler->record(start.task);
    const auto& body = run_of(run.plan.spec.tasks[run.plan.group_of(start.task)], start.phase);
    if (!body.given()) {
        running.outcome = Outcome::success(Outcome::Change::unchanged);
        return false;
    }
    running.executor = engine_.executors.find(body.executor);
    if (running.executor == nullptr) {
        running.outcome = Outcome::failure(ErrorClass::refused, fmt::format("this server has no executor {}", body.executor));
        return false;
    }
    const json::object* with = record.detail && record.detail->inputs.is_object() ? &record.detail->inputs.get_object() : nullptr;
    auto made = builder_.make_attempt(run.plan, &run.scheduler->records(), run.uid, start.task, start.phase, with,
                                      start.reattach ? &missing_secrets : nullptr);
    if (!made.ok()) {
        running.outcome = Outcome::failure(ErrorClass::refused, made.error().message);
        return false;
    }
    running.attempt = std::move(*made);
    auto& environment = running.attempt.environment;
    environment["ORRERY_CONTEXT"] = ctx.id();
    environment["ORRERY_JOB"] = running.attempt.job;
    environment["ORRERY_TASK"] = running.attempt.task;
    environment["ORRERY_ATTEMPT"] = running.attempt.id;
    environment["ORRERY_ATTEMPT_NUMBER"] = std::to_string(running.attempt.number);
    return true;
}

asio::awaitable<void> AttemptRunner::run_attempt(Context ctx, std::shared_ptr<JobRun> run, Scheduler::Start start,
                                                 std::shared_ptr<RunningAttempt> running) {
    std::vector<std::string> missing_secrets;
    if (!set_up(ctx, *run, start, *running, missing_secrets)) co_return;
    const auto& attempt = running->attempt;
    running->sink = output_.log().open({run->uid, start.task, attempt.number, start.phase}, attempt.secrets, engine_.clock);
    output_.watch(run, running->sink);
    log::debug(ctx, "attempt {} task={} attempt={}", start.reattach ? "reattached" : "started", attempt.task, attempt.number);
    Result<Outcome> outcome;
    if (start.reattach) {
        outcome = co_await reattach(ctx, *run, start, *running, std::move(missing_secrets));
    } else {
        if (on_dispatch) on_dispatch(engine_.clock.steady() - running->due);
        outcome = co_await running->executor->start(ctx, attempt, *running->sink);
    }
    if (outcome.ok() && !running->not_started && !attempt.artefacts.empty()) {
        running->has_ended = true;
        co_await artefacts_.fetch(ctx, run, start.task, *running, *outcome);
    }
    // A cancelled attempt is not recorded: the next leader re-attaches to it.
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) throw boost::system::system_error(asio::error::operation_aborted);
    running->sink->on_pending = nullptr;
    running->sink->finish();
    co_await output_.flush_all(ctx, *running);
    running->ended_at = engine_.clock.steady();
    if (!running->not_started) store_outcome(*running, std::move(outcome));
}

Task<Outcome> AttemptRunner::reattach(Context ctx, const JobRun& run, Scheduler::Start start, RunningAttempt& running,
                                      std::vector<std::string> missing_secrets) {
    const auto& record = run.scheduler->record(start.task);
    const auto& attempt = running.attempt;
    const auto started_on = record.detail ? record.detail->server : std::string();
    const auto& this_server = engine_.options.server;
    if (engine_.options.shared && running.executor->runs_on_server() && !started_on.empty() && started_on != this_server)
        co_return Outcome::failure(
            ErrorClass::lost,
            fmt::format("it was started on the server {}, and this one ({}) cannot reach it", started_on, this_server));
    auto from = co_await output_.stored(ctx, {run.uid, start.task, attempt.number, start.phase});
    running.sink->resume(from.offsets, from.size);
    // The attempt knows the earlier value of the secret, which the masker of this server does not.
    if (const auto secret = builder_.changed_secret(attempt, missing_secrets, record.started); !secret.empty())
        running.sink->withhold(fmt::format("the secret {} was changed while this ran and no server read its output: output after "
                                           "that is not stored, because a secret in it could not be recognised",
                                           secret));
    CO_TRY(auto found, co_await running.executor->reattach(ctx, attempt, std::move(from.offsets), *running.sink));
    switch (found.state) {
    case Reattached::State::ended: co_return std::move(found.outcome);
    case Reattached::State::unknown: co_return Outcome::failure(ErrorClass::lost, found.message);
    case Reattached::State::not_started: break;
    }
    running.not_started = true;
    co_return Outcome{};
}

/// Masks and bounds what is recorded.
void AttemptRunner::store_outcome(RunningAttempt& running, Result<Outcome> outcome) {
    constexpr std::size_t max_message = 4096, max_values = 64u << 10;
    auto& out = running.outcome;
    if (outcome.ok()) {
        out = std::move(*outcome);
    } else {
        const auto code = outcome.error().code;
        out = Outcome::failure(code == Code::unavailable ? ErrorClass::connect
                               : code == Code::timeout   ? ErrorClass::timeout
                                                         : ErrorClass::refused,
                               outcome.error().message);
    }
    const auto& masker = running.sink->masker();
    out.message = valid_utf8(truncate(masker.mask_cut(out.message), max_message));
    if (running.sink->withholds()) {
        if (!out.message.empty()) out.message = "its message is not stored: see its output";
        out.values.clear();
    }
    if (out.values.empty()) return;
    const auto text = to_json_text(out.values);
    if (text.size() > max_values) {
        out.values.clear();
        out.message += " (its values were over 64 KiB and are not stored)";
    } else if (masker.mask(text) != text) {
        out.values.clear();
        out.message += " (its values held a secret and are not stored)";
    }
}

asio::awaitable<void> AttemptRunner::kill(std::shared_ptr<JobRun> run, Scheduler::Kill which) {
    const auto ctx = run->context();
    const auto found = run->at_work->running.find(which.task);
    if (found == run->at_work->running.end()) co_return;
    const auto victim = found->second;
    if (victim->has_ended) co_return;
    victim->killed = true;
    victim->timed_out = victim->timed_out || which.timeout;
    if (victim->executor != nullptr) {
        auto cancelled = co_await victim->executor->cancel(ctx, victim->attempt);
        if (!cancelled.ok())
            log::warn(ctx, "attempt cannot be ended task={} job={} error=\"{}\"", victim->attempt.task, run->name,
                      cancelled.error().text());
    }
    auto waited = co_await engine_.clock.sleep(engine_.options.give_up);
    if (!waited.ok()) co_return;
    const auto still = run->at_work->running.find(which.task);
    if (still != run->at_work->running.end() && still->second == victim) victim->detach.emit(asio::cancellation_type::terminal);
}

asio::awaitable<void> AttemptRunner::detach_all() {
    for (auto& [name, run] : engine_.runs)
        for (auto& [task, running] : run->at_work->running) {
            running->killed = false;
            running->detach.emit(asio::cancellation_type::terminal);
        }
    co_await asio::this_coro::reset_cancellation_state();
    while (running_ > 0) std::ignore = co_await emptied_.wait(Context::background());
    ended_.clear();
}

} // namespace orrery::jobs
