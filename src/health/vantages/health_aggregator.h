#pragma once

#include "core/task.h"
#include "health/check_spec.h"
#include "health/probe_spec.h"
#include "health/prober.h"
#include "health/probes/command_probe.h"
#include "health/vantages/quorum.h"
#include "health/vantages/self_diagnosis.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::health {

/// The health of one target over all vantages.
struct AggregatedHealth {
    HealthState state = HealthState::unknown;
    bool stale = false;                ///< remembered from before a restart; no vantage has reported since
    Duration until_change{};           ///< the shortest time in which probes could change the state
    QuorumDecision decision;           ///< message and evidence
    std::map<std::string, double> rtt; ///< smoothed milliseconds of good probes, by vantage
};

/// What one server reports about one target to its peers.
struct PeerReport {
    Report report;
    std::uint64_t digest = 0; ///< of the CheckSpec; a report about another spec is ignored
    bool is_healthy() const { return report.state == HealthState::up && !report.stale; }
    bool is_known() const { return report.state != HealthState::unknown && !report.stale; }
};

/// Turns the reports of many vantages into one health state for each target. Vantages are this server; managed nodes, which it
/// probes from over SSH without an agent; checkers, which fetch assignments and submit reports; and other servers that share the
/// store. A target is down if enough vantages report it (quorum.h). A vantage whose canaries fail, or that sees most of its targets
/// begin to fail at once, is quarantined (self_diagnosis.h). A silent vantage does not count. Loop thread only.
class HealthAggregator {
public:
    struct Options {
        std::string name = "server"; ///< this server as a vantage
        ProbeDeps deps;
        VantageRule rule;
        Prober::Options prober;
        std::size_t max_checkers = 64;
        Duration checker_retention = std::chrono::hours(1); ///< after this silence a checker is no longer listed
    };
    using OnHealth = std::function<void(const std::string& key, const AggregatedHealth& health)>;
    /// `on_health` is called when the health of a target changes. A round-trip time counts as changed if it differs by a tenth.
    HealthAggregator(asio::any_io_executor executor, Clock& clock, Options options, OnHealth on_health);
    ~HealthAggregator();

    /// Adds or changes a check. With an unchanged spec the results stay. `invalid`, `unsupported`: this server cannot run the
    /// check, and does not add it. A check that runs a program is added anyway: a checker may have the program. `remembered`: the
    /// state before a restart.
    Result<Unit> set(const std::string& key, CheckSpec spec, QuorumRule quorum = {}, HealthState remembered = HealthState::unknown);
    void remove(const std::string& key);
    std::optional<AggregatedHealth> health(const std::string& key) const;

    /// Replaces the canaries: targets that are up whenever this vantage works, such as its gateway and its peers.
    Result<Unit> set_canaries(std::vector<CheckSpec> canaries);
    /// Replaces the nodes that this server probes from. `commands` must outlive this.
    void set_nodes(std::vector<std::string> nodes, CommandRunner& commands);

    /// Must be called when Secrets changed: probes that send a changed value restart with it.
    void refresh_secrets();

    /// Runs until cancelled.
    asio::awaitable<void> run(Context ctx);
    Prober::Counts counts() const;

    // --- Checkers

    /// The checks that changed after revision `after`, at most 1,000 at a time: {"epoch", "revision", "reset", "more", "set",
    /// "removed"}. `reset`: the list starts over, and the checker must drop the checks that are not in it. `with_secrets`: the
    /// response may contain values of Secrets; otherwise checks that send one cannot run at the checker.
    json::object assignments(std::string_view epoch, std::uint64_t after, bool with_secrets = false) const;
    /// Waits for a change after that revision, or for the deadline.
    Task<Unit> assignments_changed(Context ctx, std::uint64_t after);
    /// Applies the reports of a checker: {"vantage", "trusted", "message", "cause", "heartbeat_ms", "targets", "leaving",
    /// "reports":
    /// [{"key", "revision", "age_ms", and the fields of Report::to_json}]}. The reports count until three heartbeats are missing.
    /// `leaving`: the checker stops, and its reports no longer count. `invalid` names the field, and nothing is applied. Reports
    /// about unknown targets are ignored.
    Result<Unit> receive_reports(const json::value& body);

    // --- Peers: other servers that probe the same targets

    struct Peer {
        bool trusted = true;
        std::string message; ///< why it is not trusted, as in Diagnosis
        QuarantineCause cause = QuarantineCause::none;
        bool ready = false; ///< it has probed every target: targets that it does not report are healthy
        std::size_t targets = 0;
    };
    void set_peer(const std::string& name, const Peer& peer);
    void remove_peer(const std::string& name);
    /// nullopt: the peer considers the target healthy.
    void set_peer_report(const std::string& name, const std::string& key, std::optional<PeerReport> report);
    /// While disconnected from the peers, their reports are ignored.
    void set_peers_connected(bool connected);
    /// Subscribes to the reports of this server for its peers. `on_report` is called for every target at first, then when the
    /// report of a target may have changed; null: the target is removed. `on_trust` is called when this server quarantines itself,
    /// or counts again. The callbacks must not block or re-enter; only enqueue work.
    using OnReport = std::function<void(const std::string& key, const PeerReport* report)>;
    using OnTrust = std::function<void(const Diagnosis& own)>;
    void share_reports(OnReport on_report, OnTrust on_trust);

    /// Makes this server refuse checkers, with a reason. Empty: it accepts them.
    void disable(std::string reason);
    const std::string& disabled_reason() const;
    /// Wakes the checkers that wait for assignments: the server stops.
    void close();

    /// Lists the vantages: {"name", "kind", "trusted", "targets", "message"}; of checkers also "last_report_ms_ago", of peers
    /// "ready" and "connected".
    json::array vantages() const;
    /// How long the last reports of a vantage that dies keep counting, at most; 0 if this server is the only vantage.
    Duration vantage_expiry() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::health
