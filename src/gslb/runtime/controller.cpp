#include "gslb/runtime/controller.h"

#include "core/json_fields.h"
#include "core/log.h"
#include "core/text.h"
#include "gslb/runtime/decision_log.h"
#include "gslb/runtime/status_writer.h"
#include "gslb/runtime/store_inputs.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace orrery::gslb {

namespace {

constexpr auto sweep_every = std::chrono::minutes(10);
constexpr auto clock_check_interval = std::chrono::seconds(1);
/// The key that the leader holds; its creation begins a term.
constexpr std::string_view leader_key = "sys/leader/controllers";
/// A smaller difference is a clock that is slewed, not stepped.
constexpr auto min_clock_step = std::chrono::milliseconds(500);

bool prefixes_omitted(const LoadBalancerSpec& spec) {
    return !spec.classes.empty() &&
           std::all_of(spec.classes.begin(), spec.classes.end(), [](const auto& one) { return one.prefixes.empty(); });
}

} // namespace

struct Controller::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor_, resource::Resources& resources_, store::Leadership& leadership_, Clock& clock_,
          Watcher& watcher_, AnswerPublisher* publisher_, Options options_)
        : executor(std::move(executor_)),
          resources(resources_),
          leadership(leadership_),
          clock(clock_),
          watcher(watcher_),
          publisher(publisher_),
          options(std::move(options_)),
          records(resources_, engine, clock_),
          statuses(resources_, engine, clock_, publisher_),
          work(executor),
          to_write(executor),
          term_began(executor),
          group(executor) {}

    asio::any_io_executor executor;
    resource::Resources& resources;
    store::Leadership& leadership;
    Clock& clock;
    Watcher& watcher;
    AnswerPublisher* publisher;
    Options options;
    Engine engine;
    DecisionLog records;
    StatusWriter statuses;
    std::unique_ptr<StoreInputs> inputs;
    Notifier work, to_write, term_began;
    std::vector<std::shared_ptr<void>> observed;
    store::Revision term = 0;                        ///< the revision that created the leader's key
    bool handed_over = false;                        ///< a follower handed records over after this server began to write
    std::optional<std::chrono::milliseconds> offset; ///< of the wall clock to the steady clock
    std::map<std::string, std::pair<std::string, std::string>> served; ///< fqdn and zone, by load balancer
    std::map<std::string, SteadyTime> loads;                           ///< when they expire, by member
    Duration vantage_expiry{};
    std::uint64_t decided = 0, failed_writes = 0;
    bool leading = false;
    TaskGroup group;

    std::chrono::milliseconds offset_at(WallTime now) const {
        return now.time_since_epoch() - std::chrono::duration_cast<std::chrono::milliseconds>(clock.steady().time_since_epoch());
    }
    bool is_stepped(WallTime now) const { return offset && std::chrono::abs(offset_at(now) - *offset) >= min_clock_step; }

    /// Hold times are stored as wall-clock deadlines, so they survive a restart. Detects clock steps and shifts them.
    void detect_clock_step(WallTime now) {
        const bool stepped = is_stepped(now);
        const auto is = offset_at(now);
        const auto was = std::exchange(offset, is);
        if (!stepped) return;
        log::warn(Context::background(), "wall clock stepped, adjusted hold timers: delta_ms={}", (is - *was).count());
        engine.clock_stepped(is - *was);
        work.notify_all();
    }

    void decide_all() {
        const auto now = clock.wall();
        detect_clock_step(now);
        auto outcomes = engine.evaluate(now);
        std::vector<AnswerPublisher::Change> changes;
        for (auto& outcome : outcomes) {
            ++decided;
            collect_changes(outcome, changes);
        }
        if (publisher != nullptr && !changes.empty()) publisher->serve(std::move(changes));
        const bool leads = leadership.leads();
        for (auto& outcome : outcomes) {
            if (outcome.removed) continue;
            statuses.note_lb(outcome.lb);
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

    /// Another server decides the same and writes it. A leader that just died counts as leader until its lease expires, so records
    /// are kept for that long.
    void leave_to_another() {
        records.forget_old();
        statuses.clear();
    }

    void collect_changes(const Outcome& outcome, std::vector<AnswerPublisher::Change>& changes) {
        if (outcome.removed) {
            if (const auto was = served.find(outcome.lb); was != served.end()) {
                changes.push_back({was->second.first, was->second.second, nullptr, nullptr});
                served.erase(was);
            }
            return;
        }
        const auto& spec = *engine.spec(outcome.lb);
        auto& was = served[outcome.lb];
        const bool moved = was != std::pair(spec.fqdn, spec.zone);
        if (moved && !was.first.empty()) changes.push_back({was.first, was.second, nullptr, nullptr});
        was = {spec.fqdn, spec.zone};
        if (!outcome.answers_changed && !moved) return;
        auto answers = std::make_shared<const dns::DynamicName>(compile(*outcome.decision, *engine.clients(outcome.lb)));
        changes.push_back({spec.fqdn, spec.zone, std::move(answers), outcome.decision, engine.decisions(outcome.lb)});
    }

    /// Waits until inputs change or an evaluation is due; false when cancelled.
    asio::awaitable<bool> wait_for_work(Context ctx) {
        if (engine.has_work()) co_return true;
        const auto next = engine.next();
        if (next && *next <= clock.wall()) co_return true;
        if (!next) {
            const auto woken = co_await work.wait(ctx);
            co_return woken.ok();
        }
        // The first of the timer and the notification.
        const auto until = clock.steady() + std::min<Duration>(*next - clock.wall(), std::chrono::minutes(1));
        auto self = shared_from_this();
        const auto woken = co_await within_deadline(ctx.without_deadline().with_deadline(until), wait_once(self), clock);
        co_return woken.ok() || woken.error().code == Code::timeout;
    }
    static Task<Unit> wait_once(std::shared_ptr<State> self) { co_return co_await self->work.wait(Context::background()); }

    /// Also without other events, so that stored deadlines follow the clock.
    asio::awaitable<void> clock_loop() {
        while ((co_await clock.sleep(clock_check_interval)).ok()) {
            if (is_stepped(clock.wall())) decide_all();
            expire_loads();
            follow_vantages();
        }
    }

    /// A load that is not reported again within its TTL expires.
    void expire_loads() {
        const auto now = clock.steady();
        for (auto at = loads.begin(); at != loads.end();) {
            if (at->second > now) {
                ++at;
                continue;
            }
            if (const auto* known = engine.member(at->first)) {
                auto health = known->health;
                health.load.reset();
                health.load_expired = true;
                engine.set_member_health(at->first, std::move(health), Cause::load);
                work.notify_all();
            }
            at = loads.erase(at);
        }
    }

    /// Failover times depend on the other vantages.
    void follow_vantages() {
        const auto now = watcher.vantage_expiry();
        if (std::exchange(vantage_expiry, now) == now) return;
        engine.set_vantage_expiry(now);
        note_everything();
        to_write.notify_all();
    }

    asio::awaitable<void> decide_loop(Context ctx) {
        while (co_await wait_for_work(ctx)) {
            if (!(co_await clock.sleep(options.gather)).ok()) co_return;
            decide_all();
        }
    }

    /// A new leader writes what the last one did not.
    void take_over() {
        note_everything();
        records.take_over();
    }

    void note_everything() {
        for (const auto& [name, where] : served) {
            statuses.note_lb(name);
            if (const auto* spec = engine.spec(name))
                for (const auto& use : spec->pools) statuses.note_pool(use.pool);
        }
    }

    bool has_writes() const { return records.has_work() || statuses.has_work() || handed_over; }

    void observe_terms() {
        observed.push_back(resources.store().observe(leader_key, [this](const store::Event& event) {
            if (event.key != leader_key || !event.record || event.record->created == term) return;
            term = event.record->created;
            term_began.notify_all();
        }));
        observed.push_back(resources.store().observe(DecisionLog::handover_prefix, [this](const store::Event& event) {
            if (!leading || !event.record) return;
            handed_over = true;
            to_write.notify_all();
        }));
    }

    /// A leader that was killed and returns does not know the decisions made meanwhile: followers hand them over.
    asio::awaitable<void> hand_over_loop(Context ctx) {
        while ((co_await term_began.wait(ctx)).ok()) {
            if (!another_leads() || options.handover == Duration::zero()) continue;
            const auto done = co_await records.hand_over(ctx.without_deadline().with_timeout(std::chrono::seconds(10)),
                                                         store::Fence(std::string(leader_key), term), options.server);
            if (!done.ok() && done.error().code == Code::cancelled) co_return;
            if (!done.ok() && done.error().code != Code::conflict)
                log::warn(ctx, "decision records not handed over: leader={}: {}", leadership.leader(), done.error().text());
        }
    }

    /// The leader uses its own state and writes; a follower uses the leader's.
    asio::awaitable<void> lead_loop(Context ctx) {
        while ((co_await leadership.wait_until_elected(ctx)).ok()) {
            engine.lead();
            if (options.handover > Duration::zero() && !(co_await clock.sleep(options.handover)).ok()) co_return;
            if (leadership.leads()) {
                leading = true;
                take_over();
                to_write.notify_all();
            }
            if (!(co_await leadership.wait_until_deposed(ctx)).ok()) co_return;
            leading = false;
            records.step_down();
            detect_clock_step(clock.wall());
            inputs->follow();
        }
    }

    asio::awaitable<void> write_loop(Context ctx) {
        Duration backoff{};
        while (true) {
            while (!leading || !has_writes()) {
                if (!(co_await to_write.wait(ctx)).ok()) co_return;
            }
            if (std::exchange(handed_over, false)) records.take_over();
            const auto fence = leadership.fence();
            if (!fence) { // the lease was not renewed in time: this server may be elected again, or another
                records.step_down();
                if (!(co_await leadership.wait_until_elected(ctx)).ok()) co_return;
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
            log::warn(ctx, "decision records not written, retrying: {}", written.error().text());
            if (!(co_await clock.sleep(backoff)).ok()) co_return;
        }
    }

    /// Writes pool states first, then decision records, then the status of load balancers: every status has its record, whenever
    /// the server stops.
    Task<Unit> write_some(Context ctx, store::Fence fence) {
        detect_clock_step(clock.wall()); // stored deadlines must match the clock
        CO_TRY(std::ignore, co_await statuses.write_pools(ctx, fence));
        CO_TRY(std::ignore, co_await records.write_some(ctx, fence));
        if (records.has_work()) co_return Unit{};
        co_return co_await statuses.write_load_balancers(ctx, fence);
    }

    asio::awaitable<void> sweep_loop(Context ctx) {
        while ((co_await clock.sleep(sweep_every)).ok()) {
            const auto fence = co_await leadership.wait_until_elected(ctx);
            if (!fence.ok()) co_return;
            const auto swept = co_await records.sweep(ctx, *fence, options.records_kept, options.max_records);
            if (!swept.ok() && swept.error().code != Code::cancelled)
                log::warn(ctx, "old decision records not removed: {}", swept.error().text());
        }
    }

    std::string class_now(std::string_view name, const boost::asio::ip::address& client) const {
        const auto* clients = engine.clients(name);
        const auto class_index = clients == nullptr ? 0 : clients->find(client);
        const auto* spec = engine.spec(name);
        return spec == nullptr || class_index == 0 || class_index > spec->classes.size() ? std::string()
                                                                                         : spec->classes[class_index - 1].label;
    }
};

Controller::Controller(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership, Clock& clock,
                       Watcher& watcher, AnswerPublisher* publisher, Options options, GeoDatabases* geo)
    : state_(std::make_shared<State>(std::move(executor), resources, leadership, clock, watcher, publisher, options)) {
    auto* state = state_.get();
    watcher.report_to([state](const std::string& member, MemberHealth health) {
        if (const auto* known = state->engine.member(member); known != nullptr && !health.load) {
            health.load = known->health.load;
            health.load_expired = known->health.load_expired;
        }
        const auto cause = health.cause;
        state->engine.set_member_health(member, std::move(health), cause);
        state->work.notify_all();
    });
    if (publisher != nullptr)
        publisher->report_to([state](const std::string& fqdn) {
            if (auto name = state->engine.lb_of_fqdn(fqdn); !name.empty()) state->statuses.note_lb(std::move(name));
            state->to_write.notify_all();
        });
    // The leader's deadlines match the present clock: a step must be detected before they are read, not after.
    const auto leads = [state] {
        state->detect_clock_step(state->clock.wall());
        return state->leadership.leads();
    };
    state_->inputs = std::make_unique<StoreInputs>(resources.store(), state_->engine, watcher, geo, leads,
                                                   [state] { state->work.notify_all(); });
}

Controller::~Controller() {
    state_->observed.clear();
    state_->inputs.reset();
    state_->watcher.report_to({});
    if (state_->publisher != nullptr) state_->publisher->report_to({});
}

asio::awaitable<void> Controller::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_;
    state->group.reopen();
    state->group.spawn(state->decide_loop(ctx));
    state->group.spawn(state->clock_loop());
    state->observe_terms();
    state->group.spawn(state->hand_over_loop(ctx));
    state->group.spawn(state->lead_loop(ctx));
    state->group.spawn(state->write_loop(ctx));
    state->group.spawn(state->sweep_loop(ctx));
    // Until this is cancelled.
    Notifier forever(co_await asio::this_coro::executor);
    std::ignore = co_await forever.wait(ctx.without_deadline());
    co_await state->group.stop();
}

void Controller::decide_now() { state_->decide_all(); }

const Engine& Controller::engine() const { return state_->engine; }
Duration Controller::cached_by_resolvers(std::string_view pool) const {
    const auto* publisher = state_->publisher;
    return state_->engine.cached_by_resolvers(
        pool, [&](const auto& fqdn) { return publisher ? publisher->slowest_publication(fqdn) : Duration{}; });
}

Result<Unit> Controller::report_load(const std::string& member, double load, Duration ttl) {
    const auto* known = state_->engine.member(member);
    if (known == nullptr) return Error{Code::not_found, fmt::format("there is no Member {}", member)};
    auto health = known->health;
    health.load = load;
    health.load_expired = false;
    state_->loads.insert_or_assign(member, state_->clock.steady() + ttl);
    state_->engine.set_member_health(member, std::move(health), Cause::load);
    state_->work.notify_all();
    return Unit{};
}

Result<json::object> Controller::why(std::string_view given, const std::optional<boost::asio::ip::address>& client,
                                     std::optional<WallTime> at) const {
    auto name = std::string(given);
    if (state_->engine.spec(name) == nullptr)
        if (auto found = state_->engine.lb_of_fqdn(given); !found.empty()) name = std::move(found);
    json::object out{{"loadbalancer", name}};
    Decision decision;
    ClientClasses clients;
    std::optional<std::string> by_present; ///< the client's class by the present prefixes, if the record has none
    if (at) {
        TRY(auto record, state_->records.record_at(name, *at));
        TRY(decision, replay(record));
        TRY(const auto snapshot, Snapshot::from(object_at(record, "inputs")));
        clients = ClientClasses::of(snapshot.spec.classes);
        if (client && prefixes_omitted(snapshot.spec)) by_present = state_->class_now(name, *client);
        out["at"] = to_rfc3339(*at);
        out["fqdn"] = snapshot.spec.fqdn;
        out["replayed_exactly"] = decision.to_json() == object_at(record, "after"); // whatever the order of fields
        if (const auto* held = record.if_contains("withheld")) out["withheld"] = *held;
        record.erase("inputs");
        out["record"] = std::move(record);
    } else {
        const auto now = state_->engine.decision(name);
        if (!now) return Error{Code::not_found, fmt::format("there is no LoadBalancer {}", given), "see: orrery get loadbalancers"};
        decision = *now;
        clients = *state_->engine.clients(name);
        out["at"] = to_rfc3339(state_->clock.wall());
        out["fqdn"] = state_->engine.spec(name)->fqdn;
        if (!decision.withheld.empty()) out["withheld"] = withheld_json(decision.withheld);
        const auto& fqdn = state_->engine.spec(name)->fqdn;
        const auto* publisher = state_->publisher;
        out["failover_time"] =
            state_->engine.failover_time(name, publisher == nullptr ? Duration{} : publisher->slowest_publication(fqdn)).to_json();
        if (publisher != nullptr) out["published"] = publisher->publication_status(fqdn);
        if (const auto last = state_->records.last_record(name); last.ok()) {
            auto record = *last;
            record.erase("inputs");
            out["record"] = std::move(record);
        }
    }
    out["decision"] = decision.to_json();
    out["messages"] = to_array(decision.messages);
    std::size_t class_index = client ? clients.find(*client) : 0;
    if (by_present)
        class_index = static_cast<std::size_t>(std::find_if(decision.answers.begin(), decision.answers.end(),
                                                            [&](const Answer& one) { return one.clients == *by_present; }) -
                                               decision.answers.begin());
    const auto& answer = decision.answers.at(class_index < decision.answers.size() ? class_index : 0);
    if (client) {
        json::object who{{"address", client->to_string()}, {"class", answer.clients}};
        if (by_present) who["classified_by"] = "the present prefixes: the record omits them because there are too many";
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
