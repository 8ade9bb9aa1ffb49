#include "gslb/observe/peer_vantages.h"

#include "core/json_fields.h"
#include "core/log.h"
#include "core/text.h"

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace orrery::gslb {

namespace {

constexpr std::string_view peers_prefix = "sys/vantages/";
constexpr std::size_t reports_at_once = 100;
/// A new target is probed soon: the missing result is not reported to peers meanwhile.
constexpr auto unknown_for = std::chrono::seconds(15);
constexpr auto pause_after_failure = std::chrono::seconds(1);

std::string text_of(const health::PeerReport& peer_report) {
    auto out = peer_report.report.to_json();
    out["digest"] = peer_report.digest;
    return to_json_text(out);
}

std::int64_t whole_at(const json::object& from, std::string_view key) {
    const auto* value = from.if_contains(key);
    if (value == nullptr || !value->is_number()) return 0;
    boost::system::error_code error;
    const auto out = value->to_number<std::int64_t>(error);
    return error ? 0 : out;
}

health::PeerReport parse_report(const json::object& value) {
    health::PeerReport out;
    out.report = health::Report::from_json(value);
    out.digest = static_cast<std::uint64_t>(whole_at(value, "digest"));
    return out;
}

} // namespace

struct PeerVantages::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor, store::Store& store_, Clock& clock_, health::HealthAggregator& aggregator_,
          Options options_)
        : store(store_),
          clock(clock_),
          aggregator(aggregator_),
          options(std::move(options_)),
          to_write(executor),
          began(clock_.steady()),
          heard(clock_.steady()) {
        std::replace(options.server.begin(), options.server.end(), '/', '_');
    }

    std::string own_key() const { return std::string(peers_prefix) + options.server; }

    // --- Reports of peers

    void apply_event(const store::Event& event) {
        const auto rest = std::string_view(event.key).substr(peers_prefix.size());
        const auto cut = rest.find('/');
        const std::string server(rest.substr(0, cut));
        if (server == options.server) return;
        json::object value;
        if (event.record)
            if (auto parsed = parse_json(event.record->value); parsed.ok() && parsed->is_object()) value = parsed->get_object();
        if (cut != std::string_view::npos) {
            const std::string key(rest.substr(cut + 1));
            aggregator.set_peer_report(server, key, event.record ? std::optional(parse_report(value)) : std::nullopt);
            return;
        }
        if (!event.record) {
            others.erase(server);
            aggregator.remove_peer(server);
            return;
        }
        aggregator.set_peer(server, {.trusted = flag_at(value, "trusted"),
                                     .message = text_at(value, "message"),
                                     .cause = health::quarantine_cause_named(text_at(value, "cause")),
                                     .ready = flag_at(value, "ready"),
                                     .targets = static_cast<std::size_t>(std::max<std::int64_t>(0, whole_at(value, "targets")))});
        if (!others.insert(server).second || others.size() > 1) return;
        for (const auto& [key, own_report] : reports) dirty.insert(key); // the first peer has appeared
        to_write.notify_all();
    }

    // --- Reports of this server

    struct OwnReport {
        health::PeerReport peer_report;
        SteadyTime since;
    };

    void note(const std::string& key, const health::PeerReport* peer_report) {
        if (peer_report == nullptr)
            known.erase(key);
        else
            known.insert(key);
        if (peer_report == nullptr || peer_report->is_healthy()) {
            if (reports.erase(key) == 0) return;
        } else {
            const auto [at, is_new] = reports.try_emplace(key, OwnReport{*peer_report, clock.steady()});
            const auto& before = at->second.peer_report;
            if (!is_new && before.report.state == peer_report->report.state && before.report.stale == peer_report->report.stale &&
                before.report.last == peer_report->report.last && before.report.message == peer_report->report.message &&
                before.report.error == peer_report->report.error && before.digest == peer_report->digest)
                return;
            at->second.peer_report = *peer_report;
            if (!peer_report->is_known() && !written.contains(key)) return; // `review_targets` reports targets that stay unknown
        }
        dirty.insert(key);
        to_write.notify_all();
    }

    /// Ready when all targets have a result, or `ready_after` has passed.
    void review_targets() {
        const auto now = clock.steady();
        targets = known.size();
        bool unknown = false;
        for (const auto& [key, own_report] : reports) {
            if (own_report.peer_report.is_known()) continue;
            unknown = true;
            if (ready && now - own_report.since > unknown_for && !written.contains(key)) dirty.insert(key);
        }
        if (ready || (unknown && now - began < options.ready_after)) return;
        ready = true;
        for (const auto& [key, own_report] : reports)
            if (!own_report.peer_report.is_known()) dirty.insert(key);
    }

    std::string heartbeat() const {
        json::object out{{"trusted", own.trusted}, {"ready", ready}, {"targets", targets}};
        if (!own.trusted) {
            out["message"] = own.message;
            out["cause"] = health::name_of(own.cause);
        }
        return to_json_text(out);
    }

    asio::awaitable<void> keep(Context ctx) {
        while (true) {
            const auto within = ctx.without_deadline().with_deadline(clock.steady() + options.ttl / 2);
            if (lease == 0) {
                if (const auto granted = co_await store.grant(within, options.ttl); granted.ok()) {
                    lease = *granted;
                    heard = clock.steady();
                    last_heartbeat.clear();
                    written.clear();
                    for (const auto& [key, own_report] : reports) dirty.insert(key);
                }
            } else if (const auto kept = co_await store.keep_alive(within, lease); kept.ok()) {
                heard = clock.steady();
            } else if (kept.error().code == Code::not_found) {
                lease = 0;
                continue;
            }
            aggregator.set_peers_connected(clock.steady() - heard < options.ttl);
            review_targets();
            to_write.notify_all();
            if (!(co_await clock.sleep(options.ttl / 3)).ok()) co_return;
        }
    }

    asio::awaitable<void> write(Context ctx) {
        while ((co_await to_write.wait(ctx)).ok()) {
            if (!(co_await clock.sleep(options.gather)).ok()) co_return;
            while (lease != 0 && (last_heartbeat != heartbeat() || (!dirty.empty() && !others.empty()))) {
                const auto done = co_await write_some(ctx);
                if (done.ok()) continue;
                if (done.error().code == Code::cancelled) co_return;
                log::debug(ctx, "reports to peer vantages wait to be written: {}", done.error().text());
                if (!(co_await clock.sleep(pause_after_failure)).ok()) co_return;
                break;
            }
        }
    }

    Task<Unit> write_some(Context ctx) {
        store::Transaction transaction;
        auto next = heartbeat();
        if (next != last_heartbeat) transaction.put(own_key(), next, lease);
        std::vector<std::string> now;
        while (!dirty.empty() && !others.empty() && now.size() < reports_at_once)
            now.push_back(std::move(dirty.extract(dirty.begin()).value()));
        std::vector<std::string> put, removed;
        for (const auto& key : now) {
            const auto at = own_key() + "/" + key;
            const auto own_report = reports.find(key);
            const bool send = own_report != reports.end() && (ready || own_report->second.peer_report.is_known()) &&
                              at.size() <= store::max_key_size;
            if (send) {
                transaction.put(at, text_of(own_report->second.peer_report), lease);
                put.push_back(key);
            } else if (written.contains(key)) {
                transaction.remove(at);
                removed.push_back(key);
            }
        }
        if (transaction.changes.empty()) co_return Unit{};
        const auto under = lease;
        auto applied = co_await store.apply(ctx, std::move(transaction));
        if (!applied.ok()) {
            for (auto& key : now) dirty.insert(std::move(key));
            if (applied.error().code == Code::not_found && lease == under) lease = 0; // it has expired
            co_return std::move(applied).error();
        }
        if (lease != under) co_return Unit{};
        last_heartbeat = std::move(next);
        for (auto& key : put) written.insert(std::move(key));
        for (const auto& key : removed) written.erase(key);
        co_return Unit{};
    }

    store::Store& store;
    Clock& clock;
    health::HealthAggregator& aggregator;
    Options options;
    Notifier to_write;
    std::shared_ptr<void> observed;
    std::set<std::string> others; ///< live peers
    health::Diagnosis own;
    bool ready = false;
    std::size_t targets = 0;                            ///< as reported
    std::unordered_set<std::string> known;              ///< targets
    std::unordered_map<std::string, OwnReport> reports; ///< of targets that are not healthy
    std::set<std::string> dirty;
    std::unordered_set<std::string> written; ///< under the present lease
    std::string last_heartbeat;
    store::LeaseId lease = 0;
    SteadyTime began, heard;
};

PeerVantages::PeerVantages(asio::any_io_executor executor, store::Store& store, Clock& clock, health::HealthAggregator& aggregator,
                           Options options)
    : state_(std::make_shared<State>(std::move(executor), store, clock, aggregator, std::move(options))) {
    auto* state = state_.get();
    aggregator.share_reports(
        [state](const std::string& key, const health::PeerReport* peer_report) { state->note(key, peer_report); },
        [state](const health::Diagnosis& own) {
            state->own = own;
            state->to_write.notify_all();
        });
    state->observed = store.observe(peers_prefix, [state](const store::Event& event) { state->apply_event(event); });
}

PeerVantages::~PeerVantages() {
    state_->observed.reset();
    state_->aggregator.share_reports({}, {});
}

asio::awaitable<void> PeerVantages::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_;
    state->began = state->heard = state->clock.steady();
    TaskGroup group(co_await asio::this_coro::executor);
    group.spawn(state->keep(ctx));
    group.spawn(state->write(ctx));
    Notifier never(co_await asio::this_coro::executor);
    std::ignore = co_await never.wait(ctx.without_deadline());
    co_await group.stop();
    if (state->lease != 0)
        std::ignore = co_await state->store.revoke(
            ctx.without_deadline().with_deadline(state->clock.steady() + std::chrono::seconds(2)), std::exchange(state->lease, 0));
}

} // namespace orrery::gslb
