#include "gslb/controller.h"

#include "core/log.h"
#include "core/text.h"
#include "gslb/decision_log.h"
#include "gslb/read.h"
#include "gslb/statuses.h"
#include "gslb/world.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace orrery::gslb {

namespace {

constexpr auto sweep_every = std::chrono::minutes(10);
constexpr auto look_at_clock_every = std::chrono::seconds(1);
/// A smaller difference is a clock that is being pulled, not one that was set.
constexpr auto least_step = std::chrono::milliseconds(500);

bool networks_left_out(const Rule& rule) {
    return !rule.classes.empty() &&
           std::all_of(rule.classes.begin(), rule.classes.end(), [](const auto& one) { return one.prefixes.empty(); });
}

} // namespace

struct Controller::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor_, resource::Resources& resources_, store::Leadership& leadership_, Clock& clock_,
          Watcher& watcher_, NameSink* sink_, Options options_)
        : executor(std::move(executor_)),
          resources(resources_),
          leadership(leadership_),
          clock(clock_),
          watcher(watcher_),
          sink(sink_),
          options(std::move(options_)),
          records(resources_, engine, clock_),
          statuses(resources_, engine, clock_, sink_),
          work(executor),
          to_write(executor),
          group(executor) {}

    asio::any_io_executor executor;
    resource::Resources& resources;
    store::Leadership& leadership;
    Clock& clock;
    Watcher& watcher;
    NameSink* sink;
    Options options;
    Engine engine;
    DecisionLog records;
    Statuses statuses;
    std::unique_ptr<World> world;
    Notifier work, to_write;
    std::optional<std::chrono::milliseconds> offset;                   ///< of the time of day to the steady clock
    std::map<std::string, std::pair<std::string, std::string>> served; ///< fqdn and zone, by load balancer
    std::uint64_t decided = 0, failed_writes = 0;
    bool leading = false;
    TaskGroup group;

    std::chrono::milliseconds offset_at(WallTime now) const {
        return now.time_since_epoch() - std::chrono::duration_cast<std::chrono::milliseconds>(clock.steady().time_since_epoch());
    }
    bool is_stepped(WallTime now) const { return offset && std::chrono::abs(offset_at(now) - *offset) >= least_step; }

    /// What is to last for some time is measured on the time of day, so that it can be stored: then a step of that must be known.
    void mind_steps(WallTime now) {
        const bool stepped = is_stepped(now);
        const auto is = offset_at(now);
        const auto was = std::exchange(offset, is);
        if (!stepped) return;
        log::warn(Context::background(), "the time of day was set by {} ms: what is held back is held for as long as before",
                  (is - *was).count());
        engine.clock_stepped(is - *was);
        work.notify_all();
    }

    void decide_all() {
        const auto now = clock.wall();
        mind_steps(now);
        auto outcomes = engine.turn(now);
        std::vector<NameSink::Change> changes;
        for (auto& outcome : outcomes) {
            ++decided;
            take(outcome, changes);
        }
        if (sink != nullptr && !changes.empty()) sink->serve(std::move(changes));
        const bool leads = leadership.leads();
        for (auto& outcome : outcomes) {
            if (outcome.gone) continue;
            statuses.note_name(outcome.name);
            if (!outcome.record) continue;
            if (leads)
                records.add(std::move(outcome.record), now);
            else
                records.keep(std::move(outcome.record), now);
        }
        for (auto& pool : engine.take_changed_pools()) statuses.note_pool(std::move(pool));
        if (another_leads()) leave_to_another();
        to_write.notify_all();
    }

    bool another_leads() const {
        if (leadership.leads()) return false;
        const auto leader = leadership.leader();
        return !leader.empty() && leader != options.server;
    }

    /// It decides the same and writes it. One that has just died is said to lead until its lease is over: what was decided since is
    /// kept so long.
    void leave_to_another() {
        records.forget_old();
        statuses.clear();
    }

    void take(const Outcome& outcome, std::vector<NameSink::Change>& changes) {
        if (outcome.gone) {
            if (const auto was = served.find(outcome.name); was != served.end()) {
                changes.push_back({was->second.first, was->second.second, nullptr, nullptr});
                served.erase(was);
            }
            return;
        }
        const auto& rule = *engine.rule(outcome.name);
        auto& was = served[outcome.name];
        const bool moved = was != std::pair(rule.fqdn, rule.zone);
        if (moved && !was.first.empty()) changes.push_back({was.first, was.second, nullptr, nullptr});
        was = {rule.fqdn, rule.zone};
        if (!outcome.answers_changed && !moved) return;
        auto answers = std::make_shared<const dns::Tailored>(compile(*outcome.decision, *engine.clients(outcome.name)));
        changes.push_back({rule.fqdn, rule.zone, std::move(answers), outcome.decision, engine.decisions(outcome.name)});
    }

    /// Until there is something to decide, or time alone may have changed something.
    asio::awaitable<bool> wait_for_work(Context ctx) {
        if (engine.has_work()) co_return true;
        const auto next = engine.next();
        if (next && *next <= clock.wall()) co_return true;
        if (!next) {
            const auto woken = co_await work.wait(ctx);
            co_return woken.ok();
        }
        // A sleeper beside the notifier: whichever is first.
        const auto until = clock.steady() + std::min<Duration>(*next - clock.wall(), std::chrono::minutes(1));
        auto self = shared_from_this();
        const auto woken = co_await within_deadline(ctx.without_deadline().with_deadline(until), wait_once(self), clock);
        co_return woken.ok() || woken.error().code == Code::timeout;
    }
    static Task<Unit> wait_once(std::shared_ptr<State> self) { co_return co_await self->work.wait(Context::background()); }

    /// Also where nothing else happens: what is stored is to be right by the clock as it is.
    asio::awaitable<void> clock_loop() {
        while ((co_await clock.sleep(look_at_clock_every)).ok()) {
            if (is_stepped(clock.wall())) decide_all();
        }
    }

    asio::awaitable<void> decide_loop(Context ctx) {
        while (co_await wait_for_work(ctx)) {
            if (!(co_await clock.sleep(options.gather)).ok()) co_return;
            decide_all();
        }
    }

    /// A new leader finds what the last one left, and puts right what it did not come to.
    void take_over() {
        note_everything();
        records.take_over();
    }

    void note_everything() {
        for (const auto& [name, where] : served) {
            statuses.note_name(name);
            if (const auto* rule = engine.rule(name))
                for (const auto& use : rule->pools) statuses.note_pool(use.pool);
        }
    }

    bool has_writes() const { return records.has_work() || statuses.has_work(); }

    /// While this server leads its own memory counts, and it writes; else it follows who does.
    asio::awaitable<void> lead_loop(Context ctx) {
        while ((co_await leadership.elected(ctx)).ok()) {
            leading = true;
            engine.lead();
            take_over();
            to_write.notify_all();
            if (!(co_await leadership.deposed(ctx)).ok()) co_return;
            leading = false;
            records.step_down();
            mind_steps(clock.wall());
            world->follow();
        }
    }

    asio::awaitable<void> write_loop(Context ctx) {
        Duration backoff{};
        while (true) {
            while (!leading || !has_writes()) {
                if (!(co_await to_write.wait(ctx)).ok()) co_return;
            }
            const auto fence = leadership.fence();
            if (!fence) { // late to renew: it may be us again, in the same term, or another
                records.step_down();
                if (!(co_await leadership.elected(ctx)).ok()) co_return;
                take_over();
                continue;
            }
            const auto written = co_await write_some(ctx, *fence);
            if (written.ok()) {
                backoff = {};
                continue;
            }
            if (written.error().code == Code::cancelled) co_return;
            if (!leadership.leads()) records.step_down();
            ++failed_writes;
            backoff = std::clamp<Duration>(backoff * 2, std::chrono::milliseconds(200), std::chrono::seconds(10));
            log::warn(ctx, "decisions wait to be written: {}", written.error().text());
            if (!(co_await clock.sleep(backoff)).ok()) co_return;
        }
    }

    /// Whom probes took out is stored first; then what was decided, and only then what names say of it: what is in a status has its
    /// record, whenever the server ends.
    Task<Unit> write_some(Context ctx, store::Fence fence) {
        mind_steps(clock.wall()); // what is stored must be right by it
        CO_TRY(std::ignore, co_await statuses.write_pools(ctx, fence));
        CO_TRY(std::ignore, co_await records.write_some(ctx, fence));
        if (records.has_work()) co_return Unit{};
        co_return co_await statuses.write_names(ctx, fence);
    }

    asio::awaitable<void> sweep_loop(Context ctx) {
        while ((co_await clock.sleep(sweep_every)).ok()) {
            const auto fence = co_await leadership.elected(ctx);
            if (!fence.ok()) co_return;
            const auto swept = co_await records.sweep(ctx, *fence, options.records_kept, options.most_records);
            if (!swept.ok() && swept.error().code != Code::cancelled)
                log::warn(ctx, "old decisions were not removed: {}", swept.error().text());
        }
    }

    std::string class_now(std::string_view name, const boost::asio::ip::address& client) const {
        const auto* clients = engine.clients(name);
        const auto place = clients == nullptr ? 0 : clients->find(client);
        const auto* rule = engine.rule(name);
        return rule == nullptr || place == 0 || place > rule->classes.size() ? std::string() : rule->classes[place - 1].label;
    }
};

Controller::Controller(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership, Clock& clock,
                       Watcher& watcher, NameSink* sink, Options options, Places* places)
    : state_(std::make_shared<State>(std::move(executor), resources, leadership, clock, watcher, sink, options)) {
    auto* state = state_.get();
    watcher.report_to([state](const std::string& member, Signal signal) {
        if (const auto* known = state->engine.member(member); known != nullptr && !signal.load) signal.load = known->signal.load;
        auto cause = signal.cause;
        state->engine.set_signal(member, std::move(signal), std::move(cause));
        state->work.notify_all();
    });
    if (sink != nullptr)
        sink->report_to([state](const std::string& fqdn) {
            if (auto name = state->engine.name_of_fqdn(fqdn); !name.empty()) state->statuses.note_name(std::move(name));
            state->to_write.notify_all();
        });
    // What the leader wrote is right by the clock as it is: a step of it must be known before that is taken over, and not after.
    const auto leads = [state] {
        state->mind_steps(state->clock.wall());
        return state->leadership.leads();
    };
    state_->world =
        std::make_unique<World>(resources.store(), state_->engine, watcher, places, leads, [state] { state->work.notify_all(); });
}

Controller::~Controller() {
    state_->world.reset();
    state_->watcher.report_to({});
    if (state_->sink != nullptr) state_->sink->report_to({});
}

asio::awaitable<void> Controller::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_;
    state->group.spawn(state->decide_loop(ctx));
    state->group.spawn(state->clock_loop());
    state->group.spawn(state->lead_loop(ctx));
    state->group.spawn(state->write_loop(ctx));
    state->group.spawn(state->sweep_loop(ctx));
    // Until somebody cancels this.
    Notifier never(co_await asio::this_coro::executor);
    std::ignore = co_await never.wait(ctx.without_deadline());
    co_await state->group.stop();
}

void Controller::decide_now() { state_->decide_all(); }

const Engine& Controller::engine() const { return state_->engine; }
Duration Controller::kept_by_resolvers(std::string_view pool) const {
    const auto* sink = state_->sink;
    return state_->engine.kept_by_resolvers(pool,
                                            [&](const auto& fqdn) { return sink ? sink->slowest_publication(fqdn) : Duration{}; });
}

Result<Unit> Controller::report_load(const std::string& member, double load) {
    const auto* known = state_->engine.member(member);
    if (known == nullptr) return Error{Code::not_found, fmt::format("there is no Member {}", member)};
    auto signal = known->signal;
    signal.load = load;
    state_->engine.set_signal(member, std::move(signal), "push");
    state_->work.notify_all();
    return Unit{};
}

Result<json::object> Controller::why(std::string_view given, const std::optional<boost::asio::ip::address>& client,
                                     std::optional<WallTime> at) const {
    auto name = std::string(given);
    if (state_->engine.rule(name) == nullptr)
        if (auto found = state_->engine.name_of_fqdn(given); !found.empty()) name = std::move(found);
    json::object out{{"loadbalancer", name}};
    Decision decision;
    Clients clients;
    std::optional<std::string> by_present; ///< the class of a client, where it can only be told by what holds now
    if (at) {
        TRY(auto record, state_->records.record_at(name, *at));
        TRY(decision, replay(record));
        TRY(const auto snapshot, Snapshot::from(object_at(record, "inputs")));
        clients = Clients::of(snapshot.rule.classes);
        if (client && networks_left_out(snapshot.rule)) by_present = state_->class_now(name, *client);
        out["at"] = to_rfc3339(*at);
        out["fqdn"] = snapshot.rule.fqdn;
        out["replayed_exactly"] = to_json_text(decision.to_json()) == to_json_text(object_at(record, "after"));
        if (const auto* held = record.if_contains("withheld")) out["withheld"] = *held;
        record.erase("inputs");
        out["record"] = std::move(record);
    } else {
        const auto now = state_->engine.decision(name);
        if (!now) return Error{Code::not_found, fmt::format("there is no LoadBalancer {}", given), "see: orrery get loadbalancers"};
        decision = *now;
        clients = *state_->engine.clients(name);
        out["at"] = to_rfc3339(state_->clock.wall());
        out["fqdn"] = state_->engine.rule(name)->fqdn;
        if (!decision.withheld.empty()) out["withheld"] = held_json(decision.withheld);
        const auto& fqdn = state_->engine.rule(name)->fqdn;
        const auto* sink = state_->sink;
        out["failover_time"] =
            state_->engine.failover_time(name, sink == nullptr ? Duration{} : sink->slowest_publication(fqdn)).to_json();
        if (sink != nullptr) out["published"] = sink->standing(fqdn);
        if (const auto last = state_->records.record_at(name, state_->clock.wall()); last.ok()) {
            auto record = *last;
            record.erase("inputs");
            out["record"] = std::move(record);
        }
    }
    out["decision"] = decision.to_json();
    out["because"] = to_array(decision.because);
    std::size_t place = client ? clients.find(*client) : 0;
    if (by_present)
        place = static_cast<std::size_t>(std::find_if(decision.answers.begin(), decision.answers.end(),
                                                      [&](const Answer& one) { return one.clients == *by_present; }) -
                                         decision.answers.begin());
    const auto& answer = decision.answers.at(place < decision.answers.size() ? place : 0);
    if (client) {
        json::object who{{"address", client->to_string()}, {"class", answer.clients}};
        if (by_present) who["told_by"] = "the networks of today: there are too many to be kept with each decision";
        out["client"] = std::move(who);
    }
    out["answer"] = answer.to_json();
    out["shares"] = predict(answer).to_json();
    return out;
}

std::size_t Controller::waiting() const { return state_->records.waiting(); }

std::vector<std::pair<std::string, double>> Controller::gauges() const {
    return {{"orrery_gslb_decided_total", static_cast<double>(state_->decided)},
            {"orrery_gslb_records_waiting", static_cast<double>(state_->records.waiting())},
            {"orrery_gslb_records_lost_total", static_cast<double>(state_->records.lost())},
            {"orrery_gslb_failed_writes_total", static_cast<double>(state_->failed_writes)}};
}

} // namespace orrery::gslb
