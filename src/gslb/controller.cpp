#include "gslb/controller.h"

#include "core/ids.h"
#include "core/log.h"
#include "core/text.h"
#include "gslb/read.h"
#include "gslb/world.h"
#include "resource/object.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>

namespace orrery::gslb {

namespace {

constexpr std::size_t records_at_once = 100;
/// More than this wait only while the store is away: then the oldest are given up, and it is said.
constexpr std::size_t most_waiting = 200'000;
constexpr std::size_t most_unled = 20'000;
constexpr auto sweep_every = std::chrono::minutes(10);
/// Longer than it takes until another leads in place of one that is gone.
constexpr auto kept_for_another = std::chrono::seconds(30);
/// Two servers see the same within so long, each at its own pace.
constexpr auto seen_together = std::chrono::seconds(15);
/// A smaller difference is a clock that is being pulled, not one that was set.
constexpr auto least_step = std::chrono::milliseconds(500);

json::array held_json(const std::vector<Withheld>& all) {
    json::array out;
    for (const auto& one : all) out.emplace_back(one.to_json());
    return out;
}

std::string_view word_for(const MemberView& view, const Signal& signal) {
    if (view.drained) return "drained";
    if (!view.healthy) return "down";
    if (signal.monitored && signal.standing == Health::unknown) return "unknown";
    return signal.standing == Health::degraded ? "degraded" : "up";
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
    std::unique_ptr<World> world;
    Notifier work, to_write;
    struct Waiting {
        std::string key, text; ///< as stored: much smaller than what it was made from
    };
    std::deque<Waiting> records;
    struct Unled {
        json::object record;
        WallTime at;
        SteadyTime since;
    };
    std::deque<Unled> unled;                                           ///< what another should have written, if it lives
    std::optional<std::chrono::milliseconds> offset;                   ///< of the time of day to the steady clock
    std::set<std::string> statuses, pool_statuses;                     ///< to be written
    std::map<std::string, std::pair<std::string, std::string>> served; ///< fqdn and zone, by load balancer
    std::uint64_t decided = 0, lost_records = 0, failed_writes = 0;
    bool leading = false;
    TaskGroup group;

    /// What is to last for some time is measured on the time of day, so that it can be stored: then a step of that must be known.
    void mind_steps(WallTime now) {
        const auto is =
            now.time_since_epoch() - std::chrono::duration_cast<std::chrono::milliseconds>(clock.steady().time_since_epoch());
        const auto was = std::exchange(offset, is);
        if (!was || std::chrono::abs(is - *was) < least_step) return;
        log::warn(Context::background(), "the time of day was set by {} ms: what is held back is held for as long as before",
                  (is - *was).count());
        engine.clock_stepped(is - *was);
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
        for (auto& outcome : outcomes) {
            if (outcome.gone) continue;
            statuses.insert(outcome.name);
            if (!outcome.record) continue;
            if (another_leads()) {
                unled.push_back({std::move(*outcome.record), now, clock.steady()});
                if (unled.size() > most_unled) unled.pop_front();
                continue;
            }
            records.push_back(stored(std::move(*outcome.record), now));
            if (records.size() > most_waiting) {
                records.pop_front();
                ++lost_records;
            }
        }
        for (auto& pool : engine.take_changed_pools()) pool_statuses.insert(std::move(pool));
        if (!leadership.leads()) leave_to_another();
        to_write.notify_all();
    }

    bool another_leads() const {
        if (leadership.leads()) return false;
        const auto leader = leadership.leader();
        return !leader.empty() && leader != options.server;
    }

    /// Another server that leads decides the same and writes it. Where nobody does, or we do but are late to renew, it may be us.
    /// One that has just died is said to lead until its lease is over: what was decided since is kept so long.
    void leave_to_another() {
        while (!unled.empty() && clock.steady() - unled.front().since > kept_for_another) unled.pop_front();
        if (!another_leads()) return;
        records.clear();
        statuses.clear();
        pool_statuses.clear();
    }

    static Waiting stored(json::object record, WallTime at) {
        resource::Object object;
        object.kind = "Decision";
        object.created_at = object.updated_at = at;
        object.name = time_ordered_id(at);
        object.spec = std::move(record);
        return {"decisions/" + object.name, resource::to_stored(object)};
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

    asio::awaitable<void> decide_loop(Context ctx) {
        while (co_await wait_for_work(ctx)) {
            if (!(co_await clock.sleep(options.gather)).ok()) co_return;
            decide_all();
        }
    }

    /// A new leader finds what the last one left, and puts right what it did not come to.
    void take_over() {
        note_everything();
        const auto& kind = *resources.registry().find("Decision");
        std::set<std::string> matched;
        for (auto& one : std::exchange(unled, {})) {
            if (clock.steady() - one.since > kept_for_another) continue;
            resource::ListQuery query;
            query.fields = {{"loadbalancer", text_at(one.record, "loadbalancer")}};
            query.newest_first = true;
            query.limit = 50;
            const auto page = resources.list(kind, query);
            if (!page.ok()) continue;
            bool written = false;
            std::int64_t last = 0;
            for (const auto& record : page->records) {
                const auto object = resource::from_stored(*record);
                if (!object.ok()) continue;
                last = std::max(last, static_cast<std::int64_t>(number_at(object->spec, "seq", 0)));
                const auto at = time_at(object->spec, "at");
                if (!at || std::chrono::abs(*at - one.at) > seen_together || !same_decision(object->spec, one.record)) continue;
                if (!matched.insert(record->key).second) continue;
                written = true;
                break;
            }
            if (written) continue;
            if (static_cast<std::int64_t>(number_at(one.record, "seq", 0)) <= last) one.record["seq"] = last + 1;
            records.push_back(stored(std::move(one.record), one.at));
        }
    }

    static bool same_decision(const json::object& one, const json::object& other) {
        return flag_at(one, "changed") == flag_at(other, "changed") &&
               to_json_text(object_at(one, "after")) == to_json_text(object_at(other, "after")) &&
               (flag_at(one, "changed") || text_at(one, "cause") == text_at(other, "cause"));
    }

    void note_everything() {
        for (const auto& [name, where] : served) {
            statuses.insert(name);
            if (const auto* rule = engine.rule(name))
                for (const auto& use : rule->pools) pool_statuses.insert(use.pool);
        }
    }

    bool has_writes() const { return !records.empty() || !statuses.empty() || !pool_statuses.empty(); }

    /// While this server leads its own memory counts, and it writes; else it follows who does.
    asio::awaitable<void> lead_loop(Context ctx) {
        while ((co_await leadership.elected(ctx)).ok()) {
            leading = true;
            engine.lead();
            take_over();
            to_write.notify_all();
            if (!(co_await leadership.deposed(ctx)).ok()) co_return;
            leading = false;
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
            if (!fence) { // late to renew: it may be us again, or another
                leave_to_another();
                if (!(co_await leadership.elected(ctx)).ok()) co_return;
                continue;
            }
            const auto written = co_await write_some(ctx, *fence);
            if (written.ok()) {
                backoff = {};
                continue;
            }
            if (written.error().code == Code::cancelled) co_return;
            ++failed_writes;
            backoff = std::clamp<Duration>(backoff * 2, std::chrono::milliseconds(200), std::chrono::seconds(10));
            log::warn(ctx, "decisions wait to be written: {}", written.error().text());
            if (!(co_await clock.sleep(backoff)).ok()) co_return;
        }
    }

    Task<Unit> write_some(Context ctx, store::Fence fence) {
        CO_TRY(std::ignore, co_await write_records(ctx, fence));
        for (int count = 0; count < 200 && !pool_statuses.empty(); ++count) {
            const auto name = *pool_statuses.begin();
            pool_statuses.erase(pool_statuses.begin());
            CO_TRY(std::ignore, co_await retry_later(write_pool(ctx, name, fence), pool_statuses, name));
        }
        for (int count = 0; count < 200 && !statuses.empty(); ++count) {
            const auto name = *statuses.begin();
            statuses.erase(statuses.begin());
            CO_TRY(std::ignore, co_await retry_later(write_name(ctx, name, fence), statuses, name));
        }
        co_return Unit{};
    }

    /// What could not be written is still to be written; what is no longer there is not.
    static Task<Unit> retry_later(Task<Unit> write, std::set<std::string>& again, std::string name) {
        auto written = co_await std::move(write);
        if (written.ok() || written.error().code == Code::not_found) co_return Unit{};
        again.insert(std::move(name));
        co_return std::move(written).error();
    }

    Task<Unit> write_records(Context ctx, store::Fence fence) {
        while (!records.empty()) {
            std::vector<Waiting> batch;
            std::size_t size = 0;
            while (!records.empty() && batch.size() < records_at_once) {
                size += records.front().text.size();
                if (!batch.empty() && size > store::max_transaction_size / 2) break;
                batch.push_back(std::move(records.front()));
                records.pop_front();
            }
            store::Transaction transaction;
            fence.guard(transaction);
            for (const auto& one : batch) transaction.put(one.key, one.text);
            auto written = co_await resources.store().apply(ctx, std::move(transaction));
            if (written.ok()) continue;
            // One that is too large for the store can never be written.
            if (written.error().code == Code::too_large && batch.size() == 1) {
                ++lost_records;
                continue;
            }
            records.insert(records.begin(), std::make_move_iterator(batch.begin()), std::make_move_iterator(batch.end()));
            co_return std::move(written).error();
        }
        co_return Unit{};
    }

    Task<Unit> write_name(Context ctx, std::string name, store::Fence fence) {
        const auto decision = engine.decision(name);
        if (!decision) co_return Unit{};
        const auto& kind = *resources.registry().find("LoadBalancer");
        const auto record = resources.find(kind, name);
        if (!record) co_return Unit{};
        CO_TRY(const auto object, resource::from_stored(*record));
        json::object status;
        const auto summary = decision->summary();
        status["state"] = name_of(decision->condition);
        for (const auto* key : {"pool", "answers", "ttl", "panic"})
            if (const auto* value = summary.if_contains(key)) status[key] = *value;
        const auto all = decision->to_json();
        if (decision->answers.size() > 1) status["classes"] = all.at("classes");
        status["because"] = to_array(decision->because);
        if (!decision->withheld.empty()) status["withheld"] = held_json(decision->withheld);
        status["failover_time"] = engine.failover_time(name).to_json();
        status["decisions"] = engine.decisions(name);
        if (sink != nullptr)
            if (auto published = sink->standing(engine.rule(name)->fqdn); !published.empty())
                status["published"] = std::move(published);
        if (auto memory = decision->memory.to_json(); !memory.empty()) status["memory"] = std::move(memory);
        const bool same_answer = summary_of(object.status) == summary_of(status) && object.status.contains("since");
        status["since"] = same_answer ? object.status.at("since") : json::value(to_rfc3339(clock.wall()));
        if (object.status == status) co_return Unit{};
        CO_TRY(std::ignore, co_await resources.set_status(ctx, kind, name, std::move(status), {.fence = &fence}));
        co_return Unit{};
    }

    static std::string summary_of(const json::object& status) {
        json::object out;
        for (const auto* key : {"state", "pool", "answers", "ttl", "panic", "classes"})
            if (const auto* value = status.if_contains(key)) out[key] = *value;
        return to_json_text(out);
    }

    Task<Unit> write_pool(Context ctx, std::string name, store::Fence fence) {
        const auto pool = engine.pool(name);
        const auto& kind = *resources.registry().find("Pool");
        const auto record = resources.find(kind, name);
        if (!pool || !record) co_return Unit{};
        const auto view = pool->view;
        CO_TRY(const auto object, resource::from_stored(*record));
        const auto usable = is_usable(*view);
        std::int64_t healthy = 0;
        for (const auto& member : view->members) healthy += member.healthy ? 1 : 0;
        json::object status{{"state", usable.usable ? "usable" : "unusable"},
                            {"why", usable.words},
                            {"members", static_cast<std::int64_t>(view->members.size())},
                            {"healthy", healthy}};
        if (!pool->withheld->empty()) status["withheld"] = held_json(*pool->withheld);
        if (auto memory = pool->memory->to_json(); !memory.empty()) status["memory"] = std::move(memory);
        if (!(object.status == status)) {
            CO_TRY(std::ignore, co_await resources.set_status(ctx, kind, name, std::move(status), {.fence = &fence}));
        }
        for (const auto& member : view->members) {
            CO_TRY(std::ignore, co_await write_member(ctx, member, fence));
        }
        co_return Unit{};
    }

    Task<Unit> write_member(Context ctx, MemberView view, store::Fence fence) {
        const auto* input = engine.member(view.name);
        const auto& kind = *resources.registry().find("Member");
        const auto record = resources.find(kind, view.name);
        if (input == nullptr || !record) co_return Unit{};
        CO_TRY(const auto object, resource::from_stored(*record));
        json::object status{{"state", word_for(view, input->signal)}, {"addresses", to_array(view.addresses.texts())}};
        if (!view.why.empty()) status["why"] = view.why;
        if (input->signal.monitored && input->signal.standing != Health::unknown)
            status["verdict"] = name_of(input->signal.standing);
        const bool same = text_at(object.status, "state") == text_at(status, "state") && object.status.contains("since");
        status["since"] = same ? object.status.at("since") : json::value(to_rfc3339(clock.wall()));
        if (object.status == status) co_return Unit{};
        auto written = co_await resources.set_status(ctx, kind, view.name, std::move(status), {.fence = &fence});
        if (!written.ok() && written.error().code != Code::not_found) co_return std::move(written).error();
        co_return Unit{};
    }

    /// Records that are old or too many go, but never the newest of a name: it says why the name answers as it does.
    asio::awaitable<void> sweep_loop(Context ctx) {
        while ((co_await clock.sleep(sweep_every)).ok()) {
            const auto fence = co_await leadership.elected(ctx);
            if (!fence.ok()) co_return;
            const auto swept = co_await sweep(ctx, *fence);
            if (!swept.ok() && swept.error().code != Code::cancelled)
                log::warn(ctx, "old decisions were not removed: {}", swept.error().text());
        }
    }

    Task<Unit> sweep(Context ctx, store::Fence fence) {
        auto& store = resources.store();
        const auto& kind = *resources.registry().find("Decision");
        const auto bound =
            "decisions/" +
            time_ordered_bound(clock.wall() - std::chrono::duration_cast<std::chrono::milliseconds>(options.records_kept));
        std::string after;
        auto excess = store.count("decisions/");
        excess = excess > options.most_records ? excess - options.most_records : 0;
        while (true) {
            const auto page = store.range("decisions/", records_at_once, after);
            if (page.records.empty()) co_return Unit{};
            store::Transaction transaction;
            fence.guard(transaction);
            bool over = false;
            for (const auto& record : page.records) {
                after = record->key;
                if (record->key >= bound && excess == 0) {
                    over = true;
                    break;
                }
                if (excess > 0) --excess;
                if (!is_newest(kind, *record)) transaction.remove(record->key);
            }
            if (!transaction.changes.empty()) {
                CO_TRY(std::ignore, co_await store.apply(ctx, std::move(transaction)));
            }
            if (over || page.next.empty()) co_return Unit{};
        }
    }

    bool is_newest(const resource::Kind& kind, const store::Record& record) const {
        const auto object = resource::from_stored(record);
        if (!object.ok()) return false;
        const auto name = text_at(object->spec, "loadbalancer");
        if (engine.rule(name) == nullptr) return false;
        resource::ListQuery query;
        query.fields = {{"loadbalancer", name}};
        query.newest_first = true;
        query.limit = 1;
        const auto page = resources.list(kind, query);
        return page.ok() && !page->records.empty() && page->records.front()->key == record.key;
    }

    /// The record of the last decision about a name at that time.
    Result<json::object> record_at(std::string_view name, WallTime at) const {
        const auto& kind = *resources.registry().find("Decision");
        const auto bound = time_ordered_bound(at + std::chrono::milliseconds(1));
        std::optional<json::object> out;
        resource::ListQuery query;
        query.fields = {{"loadbalancer", std::string(name)}};
        query.until = bound;
        query.newest_first = true;
        query.limit = 1;
        TRY(const auto page, resources.list(kind, query));
        if (!page.records.empty()) {
            TRY(auto object, resource::from_stored(*page.records.front()));
            out = std::move(object.spec);
        }
        // Names of records never go back; a clock may have. What it then decided stands behind, with its true time inside.
        query.until.clear();
        query.from = bound;
        query.newest_first = false;
        query.limit = 100;
        TRY(const auto behind, resources.list(kind, query));
        for (const auto& record : behind.records) {
            TRY(auto object, resource::from_stored(*record));
            const auto made = time_at(object.spec, "at");
            if (!made || *made > at) break;
            out = std::move(object.spec);
        }
        if (out) return std::move(*out);
        return Error{Code::not_found, fmt::format("no decision about {} from before {} is kept", name, to_rfc3339(at)),
                     fmt::format("see what is kept: orrery get decisions --field loadbalancer={}", name)};
    }
};

Controller::Controller(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership, Clock& clock,
                       Watcher& watcher, NameSink* sink, Options options)
    : state_(std::make_shared<State>(std::move(executor), resources, leadership, clock, watcher, sink, options)) {
    auto* state = state_.get();
    watcher.report_to([state](const std::string& member, Signal signal) {
        if (const auto* known = state->engine.member(member); known != nullptr && !signal.load) signal.load = known->signal.load;
        state->engine.set_signal(member, std::move(signal));
        state->work.notify_all();
    });
    if (sink != nullptr)
        sink->report_to([state](const std::string& fqdn) {
            if (auto name = state->engine.name_of_fqdn(fqdn); !name.empty()) state->statuses.insert(std::move(name));
            state->to_write.notify_all();
        });
    state_->world = std::make_unique<World>(resources.store(), state_->engine, watcher, [state] { return state->leadership.leads(); },
                                             [state] { state->work.notify_all(); });
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
    state->group.spawn(state->lead_loop(ctx));
    state->group.spawn(state->write_loop(ctx));
    state->group.spawn(state->sweep_loop(ctx));
    // Until somebody cancels this.
    Notifier never(co_await asio::this_coro::executor);
    std::ignore = co_await never.wait(ctx.without_deadline());
    co_await state->group.stop();
}

const Engine& Controller::engine() const { return state_->engine; }

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
    if (at) {
        TRY(auto record, state_->record_at(name, *at));
        TRY(decision, replay(record));
        TRY(const auto snapshot, Snapshot::from(object_at(record, "inputs")));
        clients = Clients::of(snapshot.rule.classes);
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
        out["failover_time"] = state_->engine.failover_time(name).to_json();
        if (state_->sink != nullptr) out["published"] = state_->sink->standing(state_->engine.rule(name)->fqdn);
        if (const auto last = state_->record_at(name, state_->clock.wall()); last.ok()) {
            auto record = *last;
            record.erase("inputs");
            out["record"] = std::move(record);
        }
    }
    out["decision"] = decision.to_json();
    out["because"] = to_array(decision.because);
    const auto place = client ? clients.find(*client) : 0;
    const auto& answer = decision.answers.at(place < decision.answers.size() ? place : 0);
    if (client) out["client"] = json::object{{"address", client->to_string()}, {"class", answer.clients}};
    out["answer"] = answer.to_json();
    out["shares"] = predict(answer).to_json();
    return out;
}

std::size_t Controller::waiting() const { return state_->records.size(); }

std::vector<std::pair<std::string, double>> Controller::gauges() const {
    return {{"orrery_gslb_decided_total", static_cast<double>(state_->decided)},
            {"orrery_gslb_records_waiting", static_cast<double>(state_->records.size())},
            {"orrery_gslb_records_lost_total", static_cast<double>(state_->lost_records)},
            {"orrery_gslb_failed_writes_total", static_cast<double>(state_->failed_writes)}};
}

} // namespace orrery::gslb
