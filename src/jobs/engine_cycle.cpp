#include "core/json_fields.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/engine_state.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>

/// One cycle of the engine: ingest events, let the schedulers decide, write, and then execute.
namespace orrery::jobs {

namespace {

constexpr std::size_t max_cycle_changes = 100;
constexpr std::size_t max_cycle_bytes = 1 << 20;

store::Transaction& room_in(std::vector<store::Transaction>& transactions, std::size_t bytes) {
    const auto full = [&](const store::Transaction& transaction) {
        std::size_t size = 0;
        for (const auto& change : transaction.changes) size += change.key.size() + change.value.size();
        return transaction.changes.size() >= max_cycle_changes || size + bytes > max_cycle_bytes;
    };
    if (transactions.empty() || full(transactions.back())) transactions.emplace_back();
    return transactions.back();
}

void put_entry(std::vector<store::Transaction>& transactions, Journal::Entry entry) {
    const auto size = entry.first.size() + entry.second.size();
    room_in(transactions, size).put(entry.first, std::move(entry.second));
}

} // namespace

std::string history_key(std::string_view signature) { return fmt::format("jobs.history/{}", signature); }

void Engine::State::ingest_end(const AttemptRunner::Ended& ended, Moment now, Cycle& cycle) {
    auto& running = ended.run->at_work->running;
    const auto found = running.find(ended.task);
    if (found == running.end() || found->second != ended.attempt) return;
    running.erase(found);
    auto& attempt = *ended.attempt;
    if (attempt.not_started) return ended.run->scheduler->not_started(ended.task, now);
    if (attempt.timed_out && attempt.outcome.ended != Outcome::Ended::succeeded) {
        const auto limit = to_text(ended.run->plan.spec.tasks[ended.run->plan.group_of(ended.task)].timeout);
        attempt.outcome =
            attempt.outcome.error == ErrorClass::lost
                ? Outcome::failure(ErrorClass::lost, fmt::format("it did not end within {}, and cannot be ended", limit))
                : Outcome::failure(ErrorClass::timeout, fmt::format("it did not end within {}", limit), attempt.outcome.exit_code);
    }
    ended.run->scheduler->finished(ended.task, attempt.outcome, now);
    if (attempt.executor != nullptr && attempt.outcome.ended != Outcome::Ended::lost) cycle.completed.push_back(ended);
}

void Engine::State::ingest_events(const Context&, Moment now, Cycle& cycle) {
    for (const auto& ended : attempts.take_ended()) ingest_end(ended, now, cycle);
    const auto received = commands.take_received();
    for (const auto& command : received) changed_jobs.insert(command.job); // it may be so new that it is not loaded
    for (const auto& name : std::exchange(changed_jobs, {})) accept(name, now);
    leader_seen.reset();
    for (const auto& command : received) execute_command(command, now, cycle);
    for (const auto& service : std::exchange(changed_services, {}))
        for (auto& [name, run] : context.runs) run->scheduler->membership_changed(service, now);
}

/// Shares the free slots of the server among the jobs: each gets an equal part, starting with the job after the one that was served
/// last; slots that one job cannot use go to the others.
void Engine::State::dispatch_all(Moment now) {
    auto& runs = context.runs;
    std::vector<JobRun*> order;
    for (auto at = runs.upper_bound(served_last); at != runs.end(); ++at) order.push_back(at->second.get());
    for (auto at = runs.begin(); at != runs.end() && order.size() < runs.size(); ++at) order.push_back(at->second.get());
    for (bool more = !order.empty(); more;) {
        more = false;
        const auto share = std::max<std::size_t>(1, static_cast<std::size_t>(limits->slots() - limits->running()) / order.size());
        for (auto* run : order) {
            const auto before = limits->running();
            const bool all = run->scheduler->dispatch(now, share);
            if (limits->running() > before) served_last = run->name;
            more = more || (!all && limits->slot_free());
        }
    }
}

/// While the deadline of a barrier runs, the leader records every few seconds in the store that it runs: time without one must not
/// count. Returns when the next mark is due; nothing where no deadline runs.
std::optional<SteadyTime> Engine::State::mark_alive(Moment now, Cycle& cycle) {
    constexpr auto interval = std::chrono::seconds(5);
    if (std::none_of(context.runs.begin(), context.runs.end(),
                     [](const auto& one) { return one.second->scheduler->has_deadlines(); }))
        return {};
    if (now.steady >= next_mark) {
        const auto text = std::to_string(now.wall);
        room_in(cycle.transactions, text.size()).put(std::string(alive_key), text);
        next_mark = now.steady + interval;
    }
    return next_mark;
}

/// Loads a job that is new, or that an earlier leader left.
void Engine::State::accept(const std::string& name, Moment) {
    if (context.runs.contains(name)) return; // its spec does not change
    auto object = context.resources.get(context.kind("Job"), name);
    if (!object.ok()) return;
    const auto state = text_at(object->status, "state");
    const auto* cleaned = object->status.if_contains("cleaned");
    const bool is_clean = cleaned != nullptr && cleaned->is_bool() && cleaned->get_bool();
    // It has ended and left nothing behind. It is loaded again if an operator retries or undoes it.
    if (const auto known = job_state_named(state); state == "refused" || (is_clean && known && is_terminal(*known))) {
        if (const auto* slots = object->status.if_contains("rolling_slots"); slots != nullptr && slots->is_array())
            for (const auto& slot : slots->get_array())
                if (slot.is_object())
                    limits->take_rolling_slot(text_at(slot.get_object(), "role"), text_at(slot.get_object(), "node"), name);
        return;
    }
    auto loaded = load(*object, true);
    if (!loaded.ok()) {
        const auto of_job = Context::make("job/" + name, context_id_of(object->status));
        log::warn(of_job, "job refused job={} error=\"{}\"", name, loaded.error().text());
        if (context.term != nullptr) context.term->spawn(refuse(of_job, name, text_at(object->status, "uid"), loaded.error()));
        return;
    }
    context.runs[name] = *loaded;
    registrar.enqueue_all(*loaded);
    cleaner.clean_leftovers(*loaded);
    reporter.wake();
    log::info((*loaded)->context(), "job loaded job={} tasks={} nodes={}", name, (*loaded)->plan.tasks,
              (*loaded)->plan.hosts.size());
}

asio::awaitable<void> Engine::State::refuse(Context ctx, std::string job, std::string uid, Error error) {
    json::array fields;
    for (const auto& field : error.fields) fields.push_back(json::object{{"path", field.path}, {"message", field.message}});
    const auto fence = context.leadership.fence();
    if (!fence) co_return;
    json::object status{
        {"uid", uid}, {"context", ctx.id()}, {"state", "refused"}, {"message", error.message}, {"problems", std::move(fields)}};
    auto written = co_await context.resources.set_status(ctx, context.kind("Job"), job, std::move(status), {.fence = &*fence});
    if (!written.ok()) log::warn(ctx, "job status not stored job={} error=\"{}\"", job, written.error().text());
}

void Engine::State::execute_command(const ReceivedCommand& received, Moment now, Cycle& cycle) {
    using Action = JobCommand::Action;
    const auto& command = received.command;
    const auto refuse_command = [&](const Error& error) {
        auto text = CommandQueue::refusal(error);
        room_in(cycle.transactions, text.size()).put(received.key, std::move(text));
    };
    auto& runs = context.runs;
    auto found = runs.find(received.job);
    if (found == runs.end() &&
        (command.action == Action::retry || command.action == Action::undo || command.action == Action::cancel)) {
        if (auto object = context.resources.get(context.kind("Job"), received.job); object.ok())
            if (auto loaded = load(*object, true); loaded.ok()) found = runs.emplace(received.job, *loaded).first;
    }
    if (found == runs.end()) return refuse_command(Error{Code::conflict, fmt::format("job {} has ended", received.job)});
    auto& run = *found->second;
    std::optional<std::uint32_t> task;
    if (!command.task.empty()) {
        task = run.plan.find(command.task);
        if (!task) return refuse_command(Error{Code::not_found, fmt::format("job {} has no task {}", received.job, command.task)});
    }
    if (const auto done = apply_command(received, run, task, now); !done.ok()) return refuse_command(done.error());
    room_in(cycle.transactions, 0).remove(received.key);
    run.at_work->status_stale = true;
    log::info(run.context(), "command executed job={} command={} task={} actor={} reason=\"{}\" request={}", received.job,
              name_of(command.action), command.task, received.actor, command.reason, received.context);
}

/// Adds to the record of a task that starts what only the engine knows: its bound inputs, and the server where only that one can
/// re-attach to it.
void Engine::State::note_start(JobRun& run, const Scheduler::Start& start) {
    if (start.reattach) return;
    auto& scheduler = *run.scheduler;
    auto& prepared = run.at_work->prepared;
    if (const auto with = prepared.find(start.task); with != prepared.end()) {
        auto& detail = scheduler.mutable_record(start.task).more();
        detail.inputs = std::move(with->second);
        detail.inputs_new = true;
    }
    if (!context.options.shared) return;
    const auto& body = run_of(run.plan.spec.tasks[run.plan.group_of(start.task)], start.phase);
    const auto* executor = context.executors.find(body.executor);
    if (executor == nullptr || !executor->runs_on_server()) return;
    auto& detail = scheduler.mutable_record(start.task).more();
    detail.server = context.options.server;
    detail.server_new = true;
}

void Engine::State::build_transactions(const std::shared_ptr<JobRun>& run, Cycle& cycle) {
    auto& scheduler = *run->scheduler;
    auto& live = *run->at_work;
    for (auto& start : scheduler.take_starts()) {
        note_start(*run, start);
        cycle.starts.emplace_back(run, start);
    }
    live.prepared.clear();
    for (auto& kill : scheduler.take_kills()) cycle.kills.emplace_back(run, kill);
    for (const auto task : scheduler.take_provided()) registrar.enqueue(run, task);
    const auto dirty = scheduler.take_dirty();
    const bool job_dirty = scheduler.take_job_dirty();
    if (job_dirty) registrar.enqueue_all(run);
    for (auto& entry : std::exchange(live.first_entries, {})) put_entry(cycle.transactions, std::move(entry));
    if (dirty.empty() && !job_dirty) return;
    transitions += dirty.size();
    live.status_stale = true;
    const auto cleaned = std::exchange(live.cleaned, {});
    for (auto& entry : live.journal.record(scheduler, dirty, job_dirty, cleaned)) put_entry(cycle.transactions, std::move(entry));
    if (auto compaction = live.journal.compact(scheduler); !compaction.remove.empty()) {
        auto& transaction = cycle.transactions.emplace_back(); // all of it or nothing
        for (auto& [key, value] : compaction.entries) transaction.put(key, std::move(value));
        for (auto& key : compaction.remove) transaction.remove(std::move(key));
        cycle.transactions.emplace_back();
    }
    const auto state = scheduler.job().state;
    if (job_dirty && (is_terminal(state) || state == JobState::converged)) add_history(*run, cycle);
}

/// Stores how long each sort of task took, for the next plan.
void Engine::State::add_history(const JobRun& run, Cycle& cycle) {
    constexpr std::size_t max_entries = 200;
    const auto is_written = [&](const std::string& key) {
        return std::any_of(cycle.transactions.begin(), cycle.transactions.end(), [&](const store::Transaction& transaction) {
            return std::any_of(transaction.changes.begin(), transaction.changes.end(),
                               [&](const store::Change& change) { return change.key == key; });
        });
    };
    std::size_t written = 0;
    for (std::uint32_t g = 0; g < run.plan.groups.size() && written < max_entries; ++g) {
        const auto& of = run.plan.groups[g];
        std::int64_t sum = 0, count = 0;
        for (std::uint32_t i = 0; i < of.count; ++i) {
            const auto& record = run.scheduler->record(of.first + i);
            if (record.state != TaskState::succeeded || record.ended < record.started) continue;
            sum += record.ended - record.started;
            ++count;
        }
        const auto& signature = run.at_work->signatures[g];
        if (count == 0 || signature.empty()) continue;
        const auto key = history_key(signature);
        double mean = static_cast<double>(sum) / static_cast<double>(count);
        if (const auto before = context.store().find(key)) {
            boost::system::error_code failed;
            const auto old = json::parse(before->value, failed);
            if (!failed && old.is_object())
                if (const auto* value = old.get_object().if_contains("mean_ms"); value != nullptr && value->is_number())
                    mean = value->to_number<double>() * 0.5 + mean * 0.5;
        }
        if (is_written(key)) continue;
        const auto text = to_json_text(json::object{{"task", run.plan.spec.tasks[g].name}, {"mean_ms", mean}, {"runs", count}});
        room_in(cycle.transactions, text.size() + key.size()).put(key, text);
        ++written;
    }
}

Task<Unit> Engine::State::write(Context ctx, store::Fence fence, Cycle& cycle) {
    for (auto& transaction : cycle.transactions) {
        if (transaction.changes.empty()) continue;
        fence.guard(transaction);
        for (Duration wait = std::chrono::milliseconds(100);; wait = std::min<Duration>(wait * 2, std::chrono::seconds(5))) {
            auto written = co_await context.store().apply(ctx, transaction);
            if (written.ok()) break;
            const auto code = written.error().code;
            if (code == Code::cancelled || code == Code::conflict || code == Code::invalid || code == Code::too_large)
                co_return std::move(written).error();
            // The store is unavailable or full: nothing starts, nothing that runs is lost, and the same is written again.
            log::warn(ctx, "journal not written retry_in={} error=\"{}\"", to_text(wait), written.error().text());
            CO_TRY(std::ignore, co_await context.clock.sleep(wait));
            if (!context.leadership.leads()) co_return Error{Code::conflict, "this server no longer leads"};
        }
    }
    ++cycles;
    co_return Unit{};
}

void Engine::State::execute(Cycle& cycle) {
    for (auto& [run, start] : cycle.starts) {
        attempts.start(run, start, cycle.due, shared_from_this());
        run->note_change();
    }
    for (auto& [run, which] : cycle.kills) context.term->spawn(attempts.kill(run, which));
    for (auto& ended : cycle.completed) cleaner.clean(ended.run, ended.task, ended.attempt);
}

} // namespace orrery::jobs
