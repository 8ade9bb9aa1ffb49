#include "health/lookout.h"

#include "health/lookout_state.h"

namespace orrery::health {

Lookout::Lookout(asio::any_io_executor executor, Clock& clock, Options options, OnFinding on_finding)
    : state_(std::make_shared<State>(std::move(executor), clock, std::move(options), std::move(on_finding))) {}
Lookout::~Lookout() = default;

Result<Unit> Lookout::set(const std::string& key, Wanted wanted, QuorumRule quorum, Standing remembered) {
    auto& state = *state_;
    if (key.empty() || key.size() > longest_key || key.find(between_names) != std::string::npos)
        return Error{Code::invalid, "a target's key must be one line of at most 1024 characters"};
    TRY(std::ignore, probe_from(wanted.look, wanted.address, wanted.port, state.options.tools));
    const auto known = state.watched.find(key);
    if (known != state.watched.end() && known->second.wanted == wanted) {
        known->second.quorum = quorum;
        if (state.settle(key, known->second)) state.tell(key);
        return Unit{};
    }
    const bool is_new = known == state.watched.end();
    auto& of = state.watched[key];
    of.wanted = std::move(wanted);
    of.how = State::digest_of(of.wanted);
    of.since = state.clock.steady();
    of.quorum = quorum;
    if (is_new) {
        of.finding.standing = remembered;
        of.finding.stale = remembered != Standing::unknown;
    } else {
        of.seen.clear(); // another look: what the earlier one found says nothing of it, and the standing stays until there is word
    }
    for (auto& [name, vantage] : state.vantages) {
        if (vantage.is_elsewhere()) continue;
        if (is_new) ++vantage.targets;
        state.prober.remove(State::prober_key(name, key));
        state.look_from(name, key, of, of.finding.standing);
    }
    state.note(key, &of);
    state.say(key, of);
    if (state.settle(key, of)) state.tell(key);
    return Unit{};
}

void Lookout::remove(const std::string& key) { state_->forget(key); }

std::optional<Finding> Lookout::finding(const std::string& key) const {
    const auto at = state_->watched.find(key);
    return at == state_->watched.end() ? std::nullopt : std::optional(at->second.finding);
}

Result<Unit> Lookout::set_canaries(std::vector<Wanted> canaries) {
    auto& state = *state_;
    std::vector<ProbePtr> probes;
    for (const auto& one : canaries) {
        TRY(auto probe, probe_from(one.look, one.address, one.port, state.options.tools));
        probes.push_back(std::move(probe));
    }
    auto& self = state.vantages.at(state.options.name);
    const auto key = [&](std::size_t i) {
        return State::prober_key(state.options.name, fmt::format("{}canary {}", between_names, i));
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

void Lookout::set_nodes(std::vector<std::string> nodes, CommandRunner& commands) {
    auto& state = *state_;
    state.commands = &commands;
    for (auto at = state.vantages.begin(); at != state.vantages.end();) {
        if (at->second.kind != "node" || std::find(nodes.begin(), nodes.end(), at->first) != nodes.end()) {
            ++at;
            continue;
        }
        for (auto& [key, of] : state.watched) {
            state.prober.remove(State::prober_key(at->first, key));
            of.seen.erase(at->first);
        }
        at = state.vantages.erase(at);
    }
    for (const auto& node : nodes) {
        if (!is_vantage_name(node) || state.vantages.contains(node)) continue;
        state.vantages.emplace(
            node, State::Vantage{.kind = "node", .self = SelfDiagnosis(state.options.rule), .targets = state.watched.size()});
        for (const auto& [key, of] : state.watched) state.look_from(node, key, of, of.finding.standing);
    }
    state.settle_all();
}

asio::awaitable<void> Lookout::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    TaskGroup group(co_await asio::this_coro::executor);
    group.spawn(State::keep_sweeping(state_));
    co_await state_->prober.run(std::move(ctx));
    co_await group.stop();
}

Prober::Counts Lookout::counts() const { return state_->prober.counts(); }

} // namespace orrery::health
