#include "core/log.h"
#include "core/text.h"
#include "jobs/engine_state.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>

/// One round of the engine: what came in, what follows from it, the write, and then the effects.
namespace orrery::jobs {

namespace {

constexpr std::size_t round_changes = 100;
constexpr std::size_t round_bytes = 1 << 20;

store::Transaction& room_in(std::vector<store::Transaction>& transactions, std::size_t bytes) {
    const auto full = [&](const store::Transaction& transaction) {
        std::size_t size = 0;
        for (const auto& change : transaction.changes) size += change.key.size() + change.value.size();
        return transaction.changes.size() >= round_changes || size + bytes > round_bytes;
    };
    if (transactions.empty() || full(transactions.back())) transactions.emplace_back();
    return transactions.back();
}

std::string history_key(const std::string& signature) { return "jobs.history/" + signature; }

} // namespace

void Engine::State::take_in(const Context& ctx, Moment now, Round& round) {
    for (auto& one : std::exchange(ended, {})) {
        const auto place = one.run->at_work->running.find(one.task);
        if (place == one.run->at_work->running.end() || place->second != one.attempt) continue;
        one.run->at_work->running.erase(place);
        auto& attempt = *one.attempt;
        if (attempt.never_began) {
            one.run->scheduler->never_began(one.task, now);
            continue;
        }
        if (attempt.timed_out && attempt.outcome.ended != Outcome::Ended::succeeded) {
            const auto limit = to_text(one.run->plan.spec.tasks[one.run->plan.group_of(one.task)].timeout);
            attempt.outcome =
                attempt.outcome.error == ErrorClass::lost
                    ? Outcome::failure(ErrorClass::lost, fmt::format("not over after {}, and it cannot be ended", limit))
                    : Outcome::failure(ErrorClass::timeout, fmt::format("not over after {}", limit), attempt.outcome.exit_code);
        }
        one.run->scheduler->finished(one.task, attempt.outcome, now);
        if (attempt.executor != nullptr && attempt.outcome.ended != Outcome::Ended::lost)
            round.over.push_back({one.run, one.task, one.attempt});
    }
    for (const auto& name : std::exchange(changed_jobs, {})) accept(ctx, name, now);
    for (; !orders.empty(); orders.pop_front()) apply_order(ctx, orders.front(), now, round);
    for (const auto& service : std::exchange(changed_services, {}))
        for (auto& [name, run] : runs) run->scheduler->membership_changed(service, now);
}

/// Looks at a job that is new, or was changed, or is gone.
void Engine::State::accept(const Context& ctx, const std::string& name, Moment now) {
    if (runs.contains(name)) return; // its spec does not change
    auto object = resources.get(kind("Job"), name);
    if (!object.ok()) return;
    const auto state = text_in(object->status, "state");
    const auto* cleaned = object->status.if_contains("cleaned");
    const bool put_away = cleaned != nullptr && cleaned->is_bool() && cleaned->get_bool();
    // Over, and nothing of it is left anywhere; should somebody want to retry it, it is loaded then.
    if (state == "refused" || (put_away && (state == "succeeded" || state == "failed" || state == "cancelled"))) return;
    auto made = load(*object, true);
    if (!made.ok()) {
        log::warn(ctx, "job {} is refused: {}", name, made.error().text());
        auto refuse = [](State& self, Context with, std::string job, std::string uid, Error why) -> asio::awaitable<void> {
            json::array fields;
            for (const auto& field : why.fields) fields.push_back(json::object{{"path", field.path}, {"message", field.message}});
            const auto fence = self.leadership.fence();
            if (!fence) co_return;
            auto written = co_await self.resources.set_status(
                with, self.kind("Job"), job,
                json::object{{"uid", uid}, {"state", "refused"}, {"words", why.message}, {"problems", std::move(fields)}},
                {.fence = &*fence});
            if (!written.ok()) log::warn(with, "the status of job {} is not kept: {}", job, written.error().text());
        };
        if (term != nullptr) term->spawn(refuse(*this, ctx, name, text_in(object->status, "uid"), made.error()));
        return;
    }
    runs[name] = *made;
    clean_leftovers(ctx, *made);
    report_wake.notify_all();
    log::info(ctx, "job {}: {} tasks on {} machines", name, (*made)->plan.tasks, (*made)->plan.hosts.size());
}

void Engine::State::apply_order(const Context& ctx, const GivenOrder& given, Moment now, Round& round) {
    const auto refuse = [&](const Error& error) {
        const auto text = to_json_text(json::object{
            {"error", json::object{{"code", name_of(error.code)}, {"message", error.message}, {"remedy", error.remedy}}}});
        room_in(round.transactions, text.size()).put(given.key, text);
    };
    auto found = runs.find(given.job);
    if (found == runs.end() && (given.order.what == Order::What::retry)) {
        if (auto object = resources.get(kind("Job"), given.job); object.ok())
            if (auto loaded = load(*object, true); loaded.ok()) found = runs.emplace(given.job, *loaded).first;
    }
    if (found == runs.end()) return refuse(Error{Code::conflict, fmt::format("job {} is over", given.job)});
    auto& run = *found->second;
    auto& scheduler = *run.scheduler;
    std::optional<std::uint32_t> task;
    if (!given.order.task.empty()) {
        task = run.plan.find(given.order.task);
        if (!task) return refuse(Error{Code::not_found, fmt::format("job {} has no task {}", given.job, given.order.task)});
    }
    const auto words = fmt::format("by {}{}{}", given.actor, given.order.because.empty() ? "" : ": ", given.order.because);
    Result<Unit> done = Unit{};
    switch (given.order.what) {
    case Order::What::approve:
        if (given.order.digest != run.plan.digest) {
            refuse(Error{Code::conflict,
                         fmt::format("the plan of job {} is {}, not {}", given.job, run.plan.digest, given.order.digest),
                         "look at the plan again, then approve it by its digest"});
            return;
        }
        done = scheduler.approve(task, now);
        break;
    case Order::What::pause: done = scheduler.pause(words, now); break;
    case Order::What::resume: done = scheduler.unpause(now); break;
    case Order::What::cancel: done = scheduler.cancel(words, given.order.undo, now); break;
    case Order::What::retry: done = scheduler.retry(task, now); break;
    }
    if (!done.ok()) return refuse(done.error());
    room_in(round.transactions, 0).remove(given.key);
    run.at_work->status_stale = true;
    log::info(ctx, "job {}: {}{}{} {}", given.job, name_of(given.order.what), given.order.task.empty() ? "" : " ", given.order.task,
              words);
}

void Engine::State::collect(const std::shared_ptr<JobRun>& run, Round& round) {
    auto& scheduler = *run->scheduler;
    auto& live = *run->at_work;
    for (auto& start : scheduler.take_starts()) {
        if (const auto with = live.prepared.find(start.task); with != live.prepared.end() && !start.reattach) {
            auto& detail = scheduler.replayed(start.task).more();
            detail.inputs = std::move(with->second);
            detail.inputs_new = true;
        }
        if (options.shared && !start.reattach) {
            const auto& body = run_of(run->plan.spec.tasks[run->plan.group_of(start.task)], start.phase);
            if (const auto* with = executors.find(body.executor); with != nullptr && with->begins_here()) {
                auto& detail = scheduler.replayed(start.task).more();
                detail.server = options.server;
                detail.server_new = true;
            }
        }
        round.starts.emplace_back(run, start);
    }
    live.prepared.clear();
    for (auto& kill : scheduler.take_kills()) round.kills.emplace_back(run, kill);
    const auto dirty = scheduler.take_dirty();
    const bool head = scheduler.take_head_dirty();
    for (auto& [key, value] : std::exchange(live.first_entries, {})) {
        const auto size = key.size() + value.size();
        room_in(round.transactions, size).put(key, std::move(value));
    }
    if (dirty.empty() && !head) return;
    transitions += dirty.size();
    live.status_stale = true;
    const auto cleaned = std::exchange(live.cleaned, {});
    for (auto& [key, value] : live.journal.record(scheduler, dirty, head, cleaned)) {
        const auto size = key.size() + value.size();
        room_in(round.transactions, size).put(key, std::move(value));
    }
    if (auto compaction = live.journal.compact(scheduler); !compaction.remove.empty()) {
        auto& transaction = round.transactions.emplace_back(); // all of it or nothing
        for (auto& [key, value] : compaction.entries) transaction.put(key, std::move(value));
        for (auto& key : compaction.remove) transaction.remove(std::move(key));
        round.transactions.emplace_back();
    }
    const auto& state = scheduler.head();
    if (head && (is_over(state.state) || state.state == JobState::converged)) {
        // How long each sort of task took, for the next plan.
        std::size_t written = 0;
        for (std::uint32_t g = 0; g < run->plan.groups.size() && written < 200; ++g) {
            const auto& of = run->plan.groups[g];
            std::int64_t sum = 0, count = 0;
            for (std::uint32_t i = 0; i < of.count; ++i) {
                const auto& row = scheduler.row(of.first + i);
                if (row.state != TaskState::succeeded || row.ended < row.started) continue;
                sum += row.ended - row.started;
                ++count;
            }
            if (count == 0 || live.signatures[g].empty()) continue;
            const auto key = history_key(live.signatures[g]);
            double mean = static_cast<double>(sum) / static_cast<double>(count);
            if (const auto before = store().find(key)) {
                boost::system::error_code failed;
                const auto old = json::parse(before->value, failed);
                if (!failed && old.is_object())
                    if (const auto* value = old.get_object().if_contains("mean_ms"); value != nullptr && value->is_number())
                        mean = value->to_number<double>() * 0.5 + mean * 0.5;
            }
            const auto text =
                to_json_text(json::object{{"task", run->plan.spec.tasks[g].name}, {"mean_ms", mean}, {"runs", count}});
            if (std::any_of(round.transactions.begin(), round.transactions.end(), [&](const store::Transaction& transaction) {
                    return std::any_of(transaction.changes.begin(), transaction.changes.end(),
                                       [&](const store::Change& change) { return change.key == key; });
                }))
                continue;
            room_in(round.transactions, text.size() + key.size()).put(key, text);
            ++written;
        }
    }
}

Task<Unit> Engine::State::write(Context ctx, store::Fence fence, Round& round) {
    for (auto& transaction : round.transactions) {
        if (transaction.changes.empty()) continue;
        fence.guard(transaction);
        for (Duration wait = std::chrono::milliseconds(100);; wait = std::min<Duration>(wait * 2, std::chrono::seconds(5))) {
            auto written = co_await store().apply(ctx, transaction);
            if (written.ok()) break;
            const auto code = written.error().code;
            if (code == Code::cancelled || code == Code::conflict || code == Code::invalid || code == Code::too_large)
                co_return std::move(written).error();
            // The store is away or full: nothing begins, nothing that runs is lost, the same is written again.
            log::warn(ctx, "the journal cannot be written, again in {}: {}", to_text(wait), written.error().text());
            CO_TRY(std::ignore, co_await clock.sleep(wait));
            if (!leadership.leads()) co_return Error{Code::conflict, "this server no longer leads"};
        }
    }
    ++rounds;
    co_return Unit{};
}

void Engine::State::act(const Context& ctx, Round& round) {
    for (auto& [run, start] : round.starts) {
        begin(ctx, run, start, round.due);
        run->note_change();
    }
    for (auto& [run, which] : round.kills) term->spawn(kill(ctx, run, which));
    for (auto& one : round.over) clean(ctx, one.run, one.task, one.attempt);
}

} // namespace orrery::jobs
