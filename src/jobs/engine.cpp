#include "jobs/engine.h"

#include "core/json_fields.h"
#include "core/log.h"
#include "jobs/engine_state.h"
#include "store/list_watch.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::jobs {

namespace {

/// When a leader with deadlines to watch was last at work.
std::optional<std::int64_t> alive_mark(store::Store& store) {
    const auto record = store.find(alive_key);
    if (!record) return {};
    std::int64_t at = 0;
    const auto [end, failed] = std::from_chars(record->value.data(), record->value.data() + record->value.size(), at);
    return failed == std::errc{} ? std::optional(at) : std::nullopt;
}

} // namespace

std::string context_id_of(const json::object& status) {
    auto id = text_at(status, "context");
    return id.empty() ? text_at(status, "uid") : id;
}

Engine::State::State(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership,
                     Membership& membership, const Executors& executors, Pool& pool, Clock& clock, Options options)
    : context{executor, resources, leadership, membership, executors, clock, std::move(options)},
      output_files(pool, {context.options.folder / "jobs", context.options.output_limit}),
      output_records(context.options.shared ? std::make_unique<OutputRecords>(context.store(), clock, output_files,
                                                                              OutputRecords::Options{context.options.output_limit,
                                                                                                     context.options.output_total})
                                            : nullptr),
      artefact_files(pool, {context.options.folder / "jobs", context.options.artefact_limit, context.options.artefacts_of_job}),
      output(context, output_records ? static_cast<OutputLog&>(*output_records) : output_files, context.options.shared),
      builder(context),
      artefacts(context, artefact_files),
      attempts(context, builder, output, artefacts, [this] { wake_up(); }),
      registrar(context),
      reporter(context),
      cleaner(context, builder, [this] { reporter.wake(); }),
      commands(context, [this] { wake_up(); }),
      cycle_wake(executor) {}

Engine::Engine(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership,
               Membership& membership, const Executors& executors, Pool& pool, Clock& clock, Options options)
    : state_(std::make_shared<State>(executor, resources, leadership, membership, executors, pool, clock, std::move(options))) {}
Engine::~Engine() { state_->subscriptions.clear(); }

OutputLog& Engine::output() { return state_->output.log(); }
ArtefactFiles& Engine::artefacts() { return state_->artefact_files; }
const Membership& Engine::membership() const { return state_->context.membership; }
Clock& Engine::clock() const { return state_->context.clock; }
void Engine::on_dispatch(std::function<void(Duration)> seen) { state_->attempts.on_dispatch = std::move(seen); }

std::vector<std::pair<std::string, double>> Engine::metrics() const {
    return {{"orrery_jobs_active", static_cast<double>(state_->context.runs.size())},
            {"orrery_jobs_attempts_running", static_cast<double>(state_->attempts.running())},
            {"orrery_jobs_transitions_total", static_cast<double>(state_->transitions)},
            {"orrery_jobs_cycles_total", static_cast<double>(state_->cycles)}};
}

Task<Unit> Engine::command(Context ctx, std::string job, JobCommand command) {
    auto state = state_;
    co_return co_await state->commands.submit(std::move(ctx), std::move(job), std::move(command));
}

asio::awaitable<void> Engine::run(Context ctx) {
    auto state = state_;
    const auto begin = [state, ctx](TaskGroup& term, store::Fence fence) { state->begin_term(ctx, term, fence); };
    const auto end = [state] { return state->end_term(); };
    co_await state->context.leadership.for_each_term(ctx, begin, end);
}

void Engine::State::begin_term(const Context& ctx, TaskGroup& term, store::Fence fence) {
    context.term = &term;
    limits = std::make_shared<Limits>(context.options.slots);
    if (output_records)
        output_records->lead(fence, [this](std::string_view uid) {
            for (const auto& [name, run] : context.runs)
                if (run->uid == uid) return is_terminal(run->scheduler->job().state);
            return true;
        });
    subscribe();
    leader_seen = alive_mark(context.store());
    next_mark = {};
    enqueue_all_jobs();
    term.spawn(watch_jobs(ctx, fence));
    term.spawn(commands.run(ctx));
    term.spawn(reporter.run(ctx, fence));
    term.spawn(registrar.run(ctx, fence));
    term.spawn(output.run(ctx));
    term.spawn(run_cycles(ctx, fence));
}

/// Attempts stay running where they run; the next leader re-attaches to them.
asio::awaitable<void> Engine::State::end_term() {
    context.term = nullptr;
    subscriptions.clear();
    if (output_records) output_records->lead({});
    co_await attempts.detach_all();
    for (auto& [name, run] : context.runs) {
        run->live = false;
        run->note_change();
    }
    context.runs.clear();
    commands.clear();
    changed_services.clear();
    changed_jobs.clear();
    builder.forget_targets();
    output.clear();
    registrar.clear();
}

void Engine::State::subscribe() {
    subscriptions.push_back(context.membership.subscribe([this](const std::string& service) {
        changed_services.insert(service);
        wake_up();
    }));
    subscriptions.push_back(context.store().observe("nodes/", [this](const store::Event& event) {
        builder.forget_target(event.key.substr(event.key.find('/') + 1));
        changed_services.insert("(nodes)");
        wake_up();
    }));
    auto rules = std::make_shared<std::map<std::string, RollingRule>>();
    subscriptions.push_back(context.store().observe("rollingrules/", [this, rules](const store::Event& event) {
        const auto role = event.key.substr(event.key.find('/') + 1);
        rules->erase(role);
        if (event.record)
            if (auto object = resource::from_stored(*event.record); object.ok()) (*rules)[role] = rolling_rule(object->spec);
        limits->set_rules(*rules);
        wake_up();
    }));
}

void Engine::State::enqueue_all_jobs() {
    std::string after;
    for (;;) {
        const auto page = context.store().range("jobs/", 500, after);
        for (const auto& record : page.records) changed_jobs.insert(record->key.substr(5));
        if (page.next.empty()) return;
        after = page.next;
    }
}

asio::awaitable<void> Engine::State::run_cycles(Context ctx, store::Fence fence) {
    using namespace asio::experimental::awaitable_operators;
    for (;;) {
        woken = false;
        const auto now = context.moment();
        Cycle cycle;
        cycle.due = now.steady;
        for (const auto& one : attempts.ended()) cycle.due = std::min(cycle.due, one.attempt->ended_at);
        ingest_events(ctx, now, cycle);
        std::optional<SteadyTime> next;
        for (auto& [name, run] : context.runs) run->scheduler->advance(now);
        dispatch_all(now);
        for (auto& [name, run] : context.runs) {
            build_transactions(run, cycle);
            if (const auto timer = run->scheduler->next_timer(); timer && (!next || *timer < *next)) next = timer;
        }
        if (const auto mark = mark_alive(now, cycle); mark && (!next || *mark < *next)) next = mark;
        if (!cycle.empty()) {
            auto written = co_await write(ctx, fence, cycle);
            if (!written.ok()) {
                // Another server leads, or this one stops: nothing of the cycle takes effect, and the records are read again.
                log::info(ctx, "job engine detached (lost leadership or stopped) error=\"{}\"", written.error().text());
                co_return;
            }
            execute(cycle);
            for (auto& [name, run] : context.runs)
                if (run->at_work->status_stale) run->note_change();
            reporter.wake();
            continue;
        }
        if (woken) continue;
        if (next) {
            auto waited = co_await (cycle_wake.wait(ctx) || context.clock.sleep_until(*next));
            const auto& first = waited.index() == 0 ? std::get<0>(waited) : std::get<1>(waited);
            if (!first.ok()) co_return;
        } else {
            auto waited = co_await cycle_wake.wait(ctx);
            if (!waited.ok()) co_return;
        }
    }
}

asio::awaitable<void> Engine::State::watch_jobs(Context ctx, store::Fence fence) {
    store::ListWatchHandler handler;
    handler.list = [this] {
        enqueue_all_jobs();
        wake_up();
    };
    handler.on_changes = [this, ctx, fence](std::vector<store::Event> changes) {
        return on_jobs_changed(ctx, fence, std::move(changes));
    };
    co_await store::list_and_watch(ctx, context.store(), context.clock, "jobs/", std::move(handler));
}

asio::awaitable<void> Engine::State::on_jobs_changed(Context ctx, store::Fence fence, std::vector<store::Event> changes) {
    for (const auto& change : changes) {
        const auto name = change.key.substr(5);
        if (change.record) {
            if (change.record->version == 1) changed_jobs.insert(name);
            continue;
        }
        context.runs.erase(name);
        limits->release_rolling_slots(name); // of nodes whose change failed
        wake_up();
        if (!change.previous) continue;
        auto object = resource::from_stored(*change.previous);
        const auto uid = object.ok() ? text_at(object->status, "uid") : std::string();
        if (!uid.empty()) co_await remove_job(ctx, fence, name, uid);
    }
    if (!changed_jobs.empty()) wake_up();
}

/// The Job was deleted: its journal, output and unstarted instances go too.
asio::awaitable<void> Engine::State::remove_job(Context ctx, store::Fence fence, std::string name, std::string uid) {
    for (const auto& prefix : {Journal::log_prefix(uid), Journal::plan_prefix(uid)})
        for (;;) {
            store::Transaction transaction;
            for (const auto& record : context.store().range(prefix, 100).records) transaction.remove(record->key);
            if (transaction.changes.empty()) break;
            fence.guard(transaction);
            auto written = co_await context.store().apply(ctx, std::move(transaction));
            if (!written.ok()) break;
        }
    if (auto removed = co_await registrar.remove_planned(ctx, fence, name); !removed.ok())
        log::warn(ctx, "instances of a deleted job not removed job={} error=\"{}\"", name, removed.error().text());
    if (auto removed = co_await output.log().remove(ctx, uid); !removed.ok())
        log::warn(ctx, "output of a deleted job not removed job={} error=\"{}\"", name, removed.error().text());
}

} // namespace orrery::jobs
