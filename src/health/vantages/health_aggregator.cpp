#include "health/vantages/health_aggregator.h"

#include "health/check_spec.h"
#include "health/probes/command_probe.h"
#include "health/probes/node_probe.h"
#include "health/vantages/aggregator_state.h"
#include "health/wire_fields.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::health {

std::shared_ptr<const CheckSpec> HealthAggregator::State::resolve(const CheckSpec& spec) const {
    if (!names_secrets(spec.probe)) return nullptr;
    auto out = std::make_shared<CheckSpec>(spec);
    out->probe = with_secret_values(std::move(out->probe), options.deps.secrets);
    return out;
}

/// The outbound rules of this server also apply to the addresses that nodes probe. A name is resolved on the node, and not checked.
Result<ProbePtr> HealthAggregator::State::probe_on_node(const std::string& node, const CheckSpec& spec) {
    const auto* own_port = spec.probe.if_contains("port");
    boost::system::error_code error;
    const auto port = own_port != nullptr && own_port->is_number() ? own_port->to_number<std::uint16_t>(error) : spec.port;
    if (options.deps.outbound)
        if (const auto checked = options.deps.outbound->check_literal(spec.address, port); !checked.ok())
            return Error{Code::denied, checked.error().message, checked.error().remedy};
    return node_probe(*commands, node, spec);
}

void HealthAggregator::State::start_probe(const std::string& vantage, const std::string& key, Target& target,
                                          HealthState remembered) {
    const auto& spec = target.resolved_spec();
    const auto probe =
        vantage == options.name ? probe_from(spec.probe, spec.address, spec.port, options.deps) : probe_on_node(vantage, spec);
    if (!probe.ok()) {
        // Nodes support few kinds of probes; a missing kind is not an error.
        if (vantage != options.name && probe.error().code != Code::denied) return;
        auto& report = target.seen[vantage].report;
        report.vantage = vantage;
        report.error = evidence_text(message_with_remedy(probe.error()));
        return;
    }
    prober.set(prober_key(vantage, key), {.probe = *probe,
                                          .interval = target.spec.interval,
                                          .timeout = target.spec.timeout,
                                          .thresholds = target.spec.thresholds,
                                          .remembered = remembered,
                                          .fast_interval = target.spec.fast_interval,
                                          .down_interval = target.spec.down_interval});
}

void HealthAggregator::State::restart_probes(const std::string& key, Target& target) {
    target.seen.clear();
    for (auto& [name, vantage] : vantages) {
        if (vantage.is_remote()) continue;
        prober.remove(prober_key(name, key));
        start_probe(name, key, target, target.health.state);
    }
    record_change(key, &target);
    share_own_report(key, target);
}

void HealthAggregator::State::forget(std::string key) {
    const auto at = targets.find(key);
    if (at == targets.end()) return;
    for (auto& [name, vantage] : vantages) {
        if (vantage.is_remote()) continue;
        prober.remove(prober_key(name, key));
        if (vantage.targets > 0) --vantage.targets;
    }
    const bool was_assigned = at->second.revision != 0;
    changes.erase(at->second.revision);
    targets.erase(at);
    if (was_assigned) record_change(key, nullptr);
    if (on_report) on_report(key, nullptr);
}

HealthAggregator::HealthAggregator(asio::any_io_executor executor, Clock& clock, Options options, OnHealth on_health)
    : state_(std::make_shared<State>(std::move(executor), clock, std::move(options), std::move(on_health))) {}
HealthAggregator::~HealthAggregator() = default;

Result<Unit> HealthAggregator::set(const std::string& key, CheckSpec spec, QuorumRule quorum, HealthState remembered) {
    auto& state = *state_;
    if (key.empty() || key.size() > max_key || key.find(key_separator) != std::string::npos)
        return Error{Code::invalid, "the key of a target must be one line of at most 1024 characters"};
    // A check whose Secret is missing cannot run until the Secret exists: it is added, and reports the error.
    if (const auto made = probe_from(spec.probe, spec.address, spec.port, state.options.deps);
        !made.ok() && !names_secrets(spec.probe) && (made.error().code != Code::unsupported || !runs_program(spec.probe)))
        return made.error();
    const auto known = state.targets.find(key);
    if (known != state.targets.end() && known->second.spec == spec) {
        known->second.quorum = quorum;
        if (state.aggregate(key, known->second)) state.notify(key);
        return Unit{};
    }
    const bool is_new = known == state.targets.end();
    auto& target = state.targets[key];
    target.spec = std::move(spec);
    target.resolved = state.resolve(target.spec);
    target.digest = target.spec.digest();
    target.since = state.clock.steady();
    target.quorum = quorum;
    if (is_new) {
        target.health.state = remembered;
        target.health.stale = remembered != HealthState::unknown;
        for (auto& [name, vantage] : state.vantages)
            if (!vantage.is_remote()) ++vantage.targets;
    }
    state.restart_probes(key, target);
    if (state.aggregate(key, target)) state.notify(key);
    return Unit{};
}

void HealthAggregator::refresh_secrets() {
    auto& state = *state_;
    std::vector<std::string> changed;
    for (auto& [key, target] : state.targets) {
        if (!target.resolved) continue;
        auto now = state.resolve(target.spec);
        if (*now == *target.resolved) continue;
        target.resolved = std::move(now);
        state.restart_probes(key, target);
        if (state.aggregate(key, target)) changed.push_back(key);
    }
    for (const auto& key : changed) state.notify(key);
}

void HealthAggregator::remove(const std::string& key) { state_->forget(key); }

std::optional<AggregatedHealth> HealthAggregator::health(const std::string& key) const {
    const auto at = state_->targets.find(key);
    return at == state_->targets.end() ? std::nullopt : std::optional(at->second.health);
}

Result<Unit> HealthAggregator::set_canaries(std::vector<CheckSpec> canaries) {
    auto& state = *state_;
    std::vector<ProbePtr> probes;
    auto deps = state.options.deps;
    deps.outbound = nullptr; // canaries come from the configuration, not from a resource
    for (const auto& one : canaries) {
        TRY(auto probe, probe_from(one.probe, one.address, one.port, deps));
        probes.push_back(std::move(probe));
    }
    auto& self = state.vantages.at(state.options.name);
    const auto key = [&](std::size_t i) {
        return State::prober_key(state.options.name, fmt::format("{}canary {}", key_separator, i));
    };
    for (std::size_t i = 0; i < state.canaries; ++i) state.prober.remove(key(i));
    self.failing_canaries.clear();
    state.canaries = canaries.size();
    for (std::size_t i = 0; i < canaries.size(); ++i)
        state.prober.set(key(i), {.probe = probes[i],
                                  .interval = canaries[i].interval,
                                  .timeout = canaries[i].timeout,
                                  .thresholds = canaries[i].thresholds});
    return Unit{};
}

void HealthAggregator::set_nodes(std::vector<std::string> nodes, CommandRunner& commands) {
    auto& state = *state_;
    state.commands = &commands;
    for (auto at = state.vantages.begin(); at != state.vantages.end();) {
        if (at->second.kind != VantageKind::node || std::find(nodes.begin(), nodes.end(), at->first) != nodes.end()) {
            ++at;
            continue;
        }
        for (auto& [key, target] : state.targets) {
            state.prober.remove(State::prober_key(at->first, key));
            target.seen.erase(at->first);
        }
        at = state.vantages.erase(at);
    }
    for (const auto& node : nodes) {
        if (!is_vantage_name(node) || state.vantages.contains(node)) continue;
        state.vantages.emplace(
            node,
            State::Vantage{.kind = VantageKind::node, .self = SelfDiagnosis(state.options.rule), .targets = state.targets.size()});
        for (auto& [key, target] : state.targets) state.start_probe(node, key, target, target.health.state);
    }
    state.aggregate_all();
}

asio::awaitable<void> HealthAggregator::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    TaskGroup group(co_await asio::this_coro::executor);
    group.spawn(State::keep_sweeping(state_));
    co_await state_->prober.run(std::move(ctx));
    co_await group.stop();
}

Prober::Counts HealthAggregator::counts() const { return state_->prober.counts(); }

} // namespace orrery::health
