#include "core/log.h"
#include "core/truncate.h"
#include "health/vantages/aggregator_state.h"
#include "health/wire_fields.h"

#include <algorithm>

namespace orrery::health {

namespace {

/// The lease of servers that share a store.
constexpr Duration peer_expiry = std::chrono::seconds(6);

} // namespace

void HealthAggregator::set_peer(const std::string& name, const Peer& peer) {
    auto& state = *state_;
    if (!is_vantage_name(name)) return;
    const auto [at, is_new] = state.vantages.try_emplace(name);
    auto& vantage = at->second;
    if (!is_new && vantage.kind != VantageKind::peer) return; // another kind of vantage has this name
    vantage.kind = VantageKind::peer;
    const bool same = !is_new && vantage.ready == peer.ready && vantage.diagnosis.trusted == peer.trusted &&
                      vantage.diagnosis.message == peer.message;
    vantage.ready = peer.ready;
    vantage.targets = peer.targets;
    vantage.diagnosis.trusted = peer.trusted;
    vantage.diagnosis.message = peer.trusted ? std::string() : truncate(peer.message, 256);
    vantage.diagnosis.cause = peer.trusted ? QuarantineCause::none : peer.cause;
    if (same) return;
    if (!peer.trusted)
        state.log_trust(name, vantage.diagnosis);
    else
        log::info(Context::background(), "{} vantage={}",
                  peer.ready ? "peer has probed every target and counts towards quorum" : "peer started to probe", name);
    state.detect_mass_failure();
    state.aggregate_all();
}

void HealthAggregator::remove_peer(const std::string& name) {
    auto& state = *state_;
    const auto at = state.vantages.find(name);
    if (at == state.vantages.end() || at->second.kind != VantageKind::peer) return;
    state.vantages.erase(at);
    log::info(Context::background(), "peer removed vantage={}", name);
    state.detect_mass_failure();
    state.aggregate_all();
}

void HealthAggregator::set_peer_report(const std::string& name, const std::string& key, std::optional<PeerReport> report) {
    auto& state = *state_;
    const auto at = state.vantages.find(name);
    if (at == state.vantages.end() || at->second.kind != VantageKind::peer) return;
    if (report)
        at->second.reports.insert_or_assign(key, std::move(*report));
    else
        at->second.reports.erase(key);
    if (const auto target = state.targets.find(key); target != state.targets.end())
        if (state.aggregate(key, target->second)) state.notify(key);
}

void HealthAggregator::set_peers_connected(bool connected) {
    auto& state = *state_;
    if (std::exchange(state.peers_connected, connected) == connected) return;
    state.detect_mass_failure();
    state.aggregate_all();
}

void HealthAggregator::share_reports(OnReport on_report, OnTrust on_trust) {
    state_->on_report = std::move(on_report);
    state_->on_trust = std::move(on_trust);
    for (const auto& [key, target] : state_->targets) state_->share_own_report(key, target);
}

void HealthAggregator::disable(std::string reason) { state_->disabled_reason = std::move(reason); }
const std::string& HealthAggregator::disabled_reason() const { return state_->disabled_reason; }

void HealthAggregator::close() {
    state_->closed = true;
    state_->assigned.notify_all();
}

json::array HealthAggregator::vantages() const {
    const auto& state = *state_;
    json::array out;
    for (const auto& [name, vantage] : state.vantages) {
        json::object one{{"name", name},
                         {"kind", name_of(vantage.kind)},
                         {"trusted", state.counts(vantage) && !state.is_silent(vantage) &&
                                         (vantage.kind != VantageKind::peer || state.peers_connected)},
                         {"targets", vantage.targets}};
        if (vantage.kind == VantageKind::peer) {
            one["ready"] = vantage.ready;
            one["connected"] = state.peers_connected;
        }
        if (!vantage.diagnosis.trusted) one["message"] = vantage.diagnosis.message;
        if (vantage.kind == VantageKind::peer && !state.peers_connected) one["message"] = "this server is disconnected from it";
        if (state.is_silent(vantage)) one["message"] = state.unreachable_reason(vantage) + ": its reports do not count";
        if (vantage.kind == VantageKind::checker)
            one["last_report_ms_ago"] =
                std::chrono::duration_cast<std::chrono::milliseconds>(state.clock.steady() - vantage.last_report_at).count();
        out.emplace_back(std::move(one));
    }
    return out;
}

Duration HealthAggregator::vantage_expiry() const {
    Duration out{};
    for (const auto& [name, vantage] : state_->vantages) {
        if (vantage.kind == VantageKind::checker && !state_->is_silent(vantage))
            out = std::max(out, vantage.expiry() + Duration(expire_every));
        if (vantage.kind == VantageKind::peer && state_->peers_connected) out = std::max(out, peer_expiry);
    }
    return out;
}

} // namespace orrery::health
