#include "jobs/engine.h"

#include "core/ids.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/engine_state.h"
#include "store/follow.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/json/parse.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::jobs {

namespace {

constexpr std::string_view orders_prefix = "jobs.orders/";
constexpr std::string_view order_names[] = {"approve", "pause", "resume", "cancel", "retry"};

std::optional<Order::What> order_named(std::string_view name) {
    for (std::size_t i = 0; i < std::size(order_names); ++i)
        if (order_names[i] == name) return static_cast<Order::What>(i);
    return {};
}

} // namespace

std::string_view name_of(Order::What what) { return order_names[static_cast<std::size_t>(what)]; }

std::string text_in(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}

Engine::Engine(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership,
               Membership& membership, const Executors& executors, Pool& pool, Clock& clock, Options options)
    : state_(std::make_shared<State>(executor, resources, leadership, membership, executors, pool, clock, std::move(options))) {}
Engine::~Engine() { state_->subscriptions.clear(); }

OutputLog& Engine::output() { return state_->output(); }
ArtefactFiles& Engine::artefacts() { return state_->artefacts; }
const Membership& Engine::membership() const { return state_->membership; }
Clock& Engine::clock() const { return state_->clock; }
void Engine::on_dispatch(std::function<void(Duration)> seen) { state_->on_dispatch = std::move(seen); }

std::vector<std::pair<std::string, double>> Engine::metrics() const {
    return {{"orrery_jobs_active", static_cast<double>(state_->runs.size())},
            {"orrery_jobs_attempts_running", static_cast<double>(state_->attempts)},
            {"orrery_jobs_transitions_total", static_cast<double>(state_->transitions)},
            {"orrery_jobs_rounds_total", static_cast<double>(state_->rounds)}};
}

// --- A term ---

void Engine::State::subscribe() {
    auto* self = this;
    subscriptions.push_back(membership.watch([self](std::string_view service) {
        self->changed_services.insert(std::string(service));
        self->wake_up();
    }));
    subscriptions.push_back(store().observe("nodes/", [self](const store::Event& event) {
        self->targets.erase(event.key.substr(event.key.find('/') + 1));
        self->changed_services.insert("(nodes)");
        self->wake_up();
    }));
    auto rules = std::make_shared<std::map<std::string, RollingRule>>();
    subscriptions.push_back(store().observe("rollingrules/", [self, rules](const store::Event& event) {
        const auto role = event.key.substr(event.key.find('/') + 1);
        rules->erase(role);
        if (event.record) {
            if (auto object = resource::from_stored(*event.record); object.ok()) {
                (*rules)[role] = rolling_rule(object->spec);
            }
        }
        self->limits->set_rules(*rules);
        self->wake_up();
    }));
}

void Engine::State::load_all(const Context& ctx) {
    std::string after;
    for (;;) {
        const auto page = store().range("jobs/", 500, after);
        for (const auto& record : page.records) changed_jobs.insert(record->key.substr(5));
        if (page.next.empty()) return;
        after = page.next;
    }
}

asio::awaitable<void> Engine::run(Context ctx) {
    auto state = state_;
    const auto begin = [state, ctx](TaskGroup& term, store::Fence fence) {
        state->term = &term;
        state->limits = std::make_shared<Limits>(state->options.slots);
        if (state->records)
            state->records->lead(fence, [raw = state.get()](std::string_view uid) {
                for (const auto& [name, run] : raw->runs)
                    if (run->uid == uid) return is_over(run->scheduler->head().state);
                return true;
            });
        state->subscribe();
        state->load_all(ctx);
        term.spawn(state->watch_jobs(ctx, fence));
        term.spawn(state->watch_orders(ctx));
        term.spawn(state->report(ctx, fence));
        term.spawn(state->flush_output(ctx));
        term.spawn(state->pump(ctx, fence));
    };
    const auto end = [state] { return state->let_go_of_all(); };
    co_await state->leadership.each_term(ctx, begin, end);
}

/// Attempts are left to run where they run; their coroutines end here.
asio::awaitable<void> Engine::State::let_go_of_all() {
    term = nullptr;
    subscriptions.clear();
    if (records) records->lead({});
    for (auto& [name, run] : runs)
        for (auto& [task, running] : run->at_work->running) {
            running->killed = false;
            running->let_go.emit(asio::cancellation_type::terminal);
        }
    co_await asio::this_coro::reset_cancellation_state();
    while (attempts > 0) std::ignore = co_await emptied.wait(Context::background());
    for (auto& [name, run] : runs) {
        run->live = false;
        run->note_change();
    }
    runs.clear();
    ended.clear();
    orders.clear();
    changed_services.clear();
    changed_jobs.clear();
    targets.clear();
    unflushed.clear();
}

asio::awaitable<void> Engine::State::pump(Context ctx, store::Fence fence) {
    using namespace asio::experimental::awaitable_operators;
    for (;;) {
        woken = false;
        const auto now = moment();
        Round round;
        round.due = now.steady;
        for (const auto& one : ended) round.due = std::min(round.due, one.attempt->over);
        take_in(ctx, now, round);
        std::optional<SteadyTime> next;
        for (auto& [name, run] : runs) {
            run->scheduler->advance(now);
            run->scheduler->dispatch(now);
            collect(run, round);
            if (const auto timer = run->scheduler->next_timer(); timer && (!next || *timer < *next)) next = timer;
        }
        if (!round.empty() || !round.over.empty()) {
            auto written = co_await write(ctx, fence, round);
            if (!written.ok()) {
                // Somebody else leads, or this stops: nothing of the round takes effect, and the rows are read again.
                log::info(ctx, "the job engine lets go: {}", written.error().text());
                co_return;
            }
            act(ctx, round);
            for (auto& [name, run] : runs)
                if (run->at_work->status_stale) run->note_change();
            report_wake.notify_all();
            continue;
        }
        if (woken) continue;
        if (next) {
            auto waited = co_await (wake.wait(ctx) || clock.sleep_until(*next));
            const auto& first = waited.index() == 0 ? std::get<0>(waited) : std::get<1>(waited);
            if (!first.ok()) co_return;
        } else {
            auto waited = co_await wake.wait(ctx);
            if (!waited.ok()) co_return;
        }
    }
}

asio::awaitable<void> Engine::State::watch_jobs(Context ctx, store::Fence fence) {
    store::Follower follower;
    follower.list = [this, ctx] {
        load_all(ctx);
        wake_up();
    };
    follower.took = [this, ctx, fence](std::vector<store::Event> changes) { return saw_jobs(ctx, fence, std::move(changes)); };
    co_await store::follow(ctx, store(), clock, "jobs/", std::move(follower));
}

asio::awaitable<void> Engine::State::saw_jobs(Context ctx, store::Fence fence, std::vector<store::Event> changes) {
    for (const auto& change : changes) {
        const auto name = change.key.substr(5);
        if (change.record) {
            if (change.record->version == 1) changed_jobs.insert(name);
            continue;
        }
        // Removed: it was over, and what is left of it goes too.
        runs.erase(name);
        if (!change.previous) continue;
        auto object = resource::from_stored(*change.previous);
        const auto uid = object.ok() ? text_in(object->status, "uid") : std::string();
        if (uid.empty()) continue;
        for (const auto& prefix : {Journal::log_prefix(uid), Journal::plan_prefix(uid)})
            for (;;) {
                store::Transaction transaction;
                for (const auto& record : store().range(prefix, 100).records) transaction.remove(record->key);
                if (transaction.changes.empty()) break;
                fence.guard(transaction);
                auto written = co_await store().apply(ctx, std::move(transaction));
                if (!written.ok()) break;
            }
        auto gone = co_await output().remove(ctx, uid);
        if (!gone.ok()) log::warn(ctx, "the output of job {} is not removed: {}", name, gone.error().text());
    }
    if (!changed_jobs.empty()) wake_up();
}

void Engine::State::take_order(const store::Record& record) {
    boost::system::error_code failed;
    const auto read = json::parse(record.value, failed);
    if (failed || !read.is_object() || read.get_object().contains("error")) return;
    const auto& object = read.get_object();
    const auto what = order_named(text_in(object, "what"));
    if (!what) return;
    GivenOrder given;
    given.key = record.key;
    const auto rest = std::string_view(record.key).substr(orders_prefix.size());
    given.job = rest.substr(0, rest.rfind('/'));
    given.actor = text_in(object, "actor");
    given.order = {*what, text_in(object, "task"), text_in(object, "digest"), text_in(object, "because"), true};
    if (const auto* undo = object.if_contains("undo"); undo != nullptr && undo->is_bool()) given.order.undo = undo->get_bool();
    changed_jobs.insert(given.job); // it may be so new that nobody has looked at it
    orders.push_back(std::move(given));
    wake_up();
}

asio::awaitable<void> Engine::State::watch_orders(Context ctx) {
    store::Follower follower;
    follower.list = [this] {
        orders.clear();
        for (const auto& record : store().range(orders_prefix, 1000).records) take_order(*record);
    };
    follower.took = [this](std::vector<store::Event> changes) { return saw_orders(std::move(changes)); };
    co_await store::follow(ctx, store(), clock, std::string(orders_prefix), std::move(follower));
}

asio::awaitable<void> Engine::State::saw_orders(std::vector<store::Event> changes) {
    for (const auto& change : changes)
        if (change.record && change.record->version == 1) take_order(*change.record);
    co_return;
}

json::object status_of(const JobRun& run) {
    const auto& head = run.scheduler->head();
    const auto& counts = run.scheduler->counts();
    json::object tasks{{"total", run.plan.tasks}};
    for (std::size_t i = 0; i < 9; ++i)
        if (counts.by_state[i] > 0) tasks[name_of(static_cast<TaskState>(i))] = counts.by_state[i];
    json::object status{{"uid", run.uid},
                        {"state", name_of(head.state)},
                        {"digest", run.plan.digest},
                        {"machines", run.plan.hosts.size()},
                        {"tasks", std::move(tasks)}};
    const auto over = counts.of(TaskState::succeeded) + counts.of(TaskState::failed) + counts.of(TaskState::lost) +
                      counts.of(TaskState::cancelled) + counts.of(TaskState::skipped);
    status["progress"] = fmt::format("{}/{}", over, run.plan.tasks);
    if (is_over(head.state)) status["cleaned"] = run.at_work->cleaning == 0 && run.at_work->running.empty();
    if (head.paused) status["paused"] = true;
    if (!head.words.empty()) status["words"] = head.words;
    if (head.began != 0) status["began_at"] = to_rfc3339(WallTime(std::chrono::milliseconds(head.began)));
    if (head.ended != 0) status["ended_at"] = to_rfc3339(WallTime(std::chrono::milliseconds(head.ended)));
    return status;
}

/// Brings the Jobs' status up to date, soon where a job's state changed and now and then where only numbers did.
asio::awaitable<void> Engine::State::report(Context ctx, store::Fence fence) {
    std::map<std::string, SteadyTime> written_at;
    for (;;) {
        std::vector<std::shared_ptr<JobRun>> due;
        std::optional<SteadyTime> next;
        for (auto& [name, run] : runs) {
            auto& live = *run->at_work;
            if (!live.status_stale || !live.first_entries.empty()) continue;
            const auto& head = run->scheduler->head();
            const auto at = written_at.contains(name) ? written_at[name] + options.report : SteadyTime{};
            const bool news = head.state != live.reported || head.paused != live.reported_paused;
            if (news || at <= clock.steady())
                due.push_back(run);
            else if (!next || at < *next)
                next = at;
        }
        for (auto& run : due) {
            auto& live = *run->at_work;
            const auto head_state = run->scheduler->head().state;
            const bool clean = live.cleaning == 0 && live.running.empty();
            const bool paused = run->scheduler->head().paused;
            const bool news = head_state != live.reported || paused != live.reported_paused;
            live.status_stale = false;
            written_at[run->name] = clock.steady();
            auto written = co_await resources.set_status(ctx, kind("Job"), run->name, status_of(*run), {.fence = &fence});
            if (!written.ok()) {
                if (written.error().code == Code::cancelled) co_return;
                live.status_stale = written.error().code != Code::not_found;
                log::warn(ctx, "the status of job {} is not kept: {}", run->name, written.error().text());
                continue;
            }
            const auto before = std::exchange(live.reported, head_state);
            live.reported_paused = paused;
            if (news) {
                auto recorded = co_await resources.record(ctx, {.subject = "Job/" + run->name,
                                                                .what = std::string(paused ? "paused" : name_of(head_state)),
                                                                .because = run->scheduler->head().words,
                                                                .evidence = json::object{{"tasks", status_of(*run)["tasks"]}}});
                if (!recorded.ok() && recorded.error().code == Code::cancelled) co_return;
                if (before != head_state) log::info(ctx, "job {} is {}", run->name, name_of(head_state));
            }
            if (is_over(head_state) && run->scheduler->head().state == head_state && clean && !live.status_stale) {
                run->live = false;
                run->note_change();
                runs.erase(run->name);
                written_at.erase(run->name);
            }
        }
        if (!due.empty()) continue;
        if (next) {
            using namespace asio::experimental::awaitable_operators;
            auto waited = co_await (report_wake.wait(ctx) || clock.sleep_until(*next));
            const auto& first = waited.index() == 0 ? std::get<0>(waited) : std::get<1>(waited);
            if (!first.ok()) co_return;
        } else {
            auto waited = co_await report_wake.wait(ctx);
            if (!waited.ok()) co_return;
        }
    }
}

// --- Orders ---

Task<Unit> Engine::order(Context ctx, std::string job, Order order) {
    auto state = state_;
    CO_TRY(std::ignore, state->resources.get(state->kind("Job"), job));
    const auto key = fmt::format("{}{}/{}", orders_prefix, job, time_ordered_id(state->clock.wall()));
    const auto text = to_json_text(json::object{{"what", name_of(order.what)},
                                                {"task", order.task},
                                                {"digest", order.digest},
                                                {"because", order.because},
                                                {"undo", order.undo},
                                                {"actor", ctx.actor()},
                                                {"context", ctx.id()}});
    store::Transaction transaction;
    transaction.expect(key, 0).put(key, text);
    CO_TRY(const auto revision, co_await state->store().apply(ctx, std::move(transaction)));
    CO_TRY(std::ignore,
           co_await state->resources.record(
               ctx, {.subject = "Job/" + job,
                     .what = std::string(name_of(order.what)) + "-asked",
                     .because = order.because,
                     .evidence = order.task.empty() ? json::value() : json::value(json::object{{"task", order.task}})}));
    auto watch = state->store().watch(key, revision);
    const auto patient = ctx.with_timeout(std::chrono::seconds(10));
    for (;;) {
        auto changes = co_await watch->next(patient);
        if (!changes.ok()) {
            if (changes.error().code == Code::timeout) co_return Unit{}; // it is in the store: whoever leads will do it
            co_return std::move(changes).error();
        }
        for (const auto& change : *changes) {
            if (!change.record) co_return Unit{};
            boost::system::error_code failed;
            const auto answer = json::parse(change.record->value, failed);
            const auto* error = failed || !answer.is_object() ? nullptr : answer.get_object().if_contains("error");
            if (error == nullptr || !error->is_object()) continue;
            Error refused{code_named(text_in(error->get_object(), "code")), text_in(error->get_object(), "message"),
                          text_in(error->get_object(), "remedy")};
            store::Transaction away;
            away.remove(key);
            std::ignore = co_await state->store().apply(ctx, std::move(away));
            co_return refused;
        }
    }
}

} // namespace orrery::jobs
