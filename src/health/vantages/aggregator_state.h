#pragma once

#include "health/check_spec.h"
#include "health/probes/command_probe.h"
#include "health/vantages/health_aggregator.h"

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

/// Private to health_aggregator.cpp and the aggregator_*.cpp files.
namespace orrery::health {

/// Separates the vantage from the key in the keys of the prober. Neither contains it.
constexpr char key_separator = '\n';
constexpr std::size_t max_key = 1024;
constexpr int missed_heartbeats = 3; ///< after which a checker is silent
/// For checkers of earlier versions, which do not send their heartbeat.
constexpr Duration default_heartbeat = std::chrono::seconds(20);
constexpr auto expire_every = std::chrono::seconds(1);

enum class VantageKind {
    server,  ///< this server
    peer,    ///< another server on the same store
    checker, ///< a remote checker
    node,    ///< a node that this server probes from by SSH
};
/// The name in `GET /v1/health/vantages`: a peer is a server, too.
std::string_view name_of(VantageKind kind);

struct HealthAggregator::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor, Clock& clock_, Options options_, OnHealth on_health_);

    struct Vantage {
        VantageKind kind = VantageKind::peer;
        SelfDiagnosis self{};
        Diagnosis diagnosis;
        std::size_t targets = 0;
        std::set<std::string> failing_canaries;
        SteadyTime last_report_at{};                         ///< checkers
        Duration heartbeat = default_heartbeat;              ///< checkers
        bool known_silent = false;                           ///< checkers: the silence was logged
        bool ready = false;                                  ///< peers
        std::unordered_map<std::string, PeerReport> reports; ///< peers: of the targets that they do not consider healthy

        Duration expiry() const { return heartbeat * missed_heartbeats; }
        /// It runs its own prober.
        bool is_remote() const { return kind == VantageKind::checker || kind == VantageKind::peer; }
        bool saw_mass_failure() const;
    };
    /// The last report of one vantage about one target.
    struct Seen : ReportBuilder {
        int until_change = 0; ///< probes
        double rtt = 0, reported_rtt = 0;
        bool rtt_moved() const;
    };
    struct Target {
        CheckSpec spec;
        QuorumRule quorum;
        std::map<std::string, Seen> seen; ///< by vantage; not of peers
        AggregatedHealth health;
        std::uint64_t revision = 0;                  ///< of the assignment; 0: not assigned to checkers
        std::uint64_t digest = 0;                    ///< of the spec
        SteadyTime since{};                          ///< when the spec was set
        std::shared_ptr<const CheckSpec> resolved{}; ///< with the values of Secrets; null: the spec names none
        const CheckSpec& resolved_spec() const { return resolved ? *resolved : spec; }
    };

    static std::string prober_key(std::string_view vantage, std::string_view key);

    // Results of this server and its nodes (aggregator_state.cpp)
    void on_result(const std::string& name, const HealthStateMachine& verdict, const Observation& observed);
    void on_canary(const std::string& vantage_name, Vantage& vantage, const std::string& key, const Observation& observed);
    /// Is there another vantage that could contradict this one? A silent one could not.
    bool has_other_witness(const std::string& vantage_name) const;
    /// True if the vantage counts now and did not before, or the other way round.
    bool diagnose(const std::string& name, Vantage& vantage);
    void log_trust(const std::string& name, const Diagnosis& diagnosis) const;
    void share_own_report(const std::string& key, const Target& target) const;

    // From reports to health (aggregator_state.cpp)
    void detect_mass_failure();
    bool is_silent(const Vantage& vantage) const;
    bool counts(const Vantage& vantage) const { return vantage.diagnosis.trusted || (mass_failure && vantage.saw_mass_failure()); }
    std::string unreachable_reason(const Vantage& vantage) const;
    std::vector<Report> reports_of(const std::string& key, const Target& target) const;
    std::optional<Report> peer_report(const std::string& name, const Vantage& vantage, const std::string& key,
                                      const Target& target) const;
    /// True if the health of the target changed.
    bool aggregate(const std::string& key, Target& target);
    void aggregate_all();
    void notify(const std::string& key);

    // What time alone changes (aggregator_state.cpp)
    void sweep();
    void expire();
    static asio::awaitable<void> keep_sweeping(std::shared_ptr<State> self);

    // Probes and assignments (health_aggregator.cpp, aggregator_checkers.cpp)
    Result<ProbePtr> probe_on_node(const std::string& node, const CheckSpec& spec);
    void start_probe(const std::string& vantage, const std::string& key, Target& target, HealthState remembered);
    /// The spec with the current values of its Secrets; null if it names none.
    std::shared_ptr<const CheckSpec> resolve(const CheckSpec& spec) const;
    /// Probes with the current spec, from here and from checkers. Reports about an earlier spec are dropped; the state stays until
    /// there is evidence.
    void restart_probes(const std::string& key, Target& target);
    void forget(std::string key);
    void forget_vantage(std::map<std::string, Vantage>::iterator at);
    /// Records that the assignment of a target changed; null: it is removed.
    void record_change(const std::string& key, Target* target);
    void forget_oldest_removal();
    void apply_report(const std::string& vantage, const json::object& one, std::vector<std::string>& changed);

    Clock& clock;
    Options options;
    OnHealth on_health;
    Notifier assigned;
    OnReport on_report;
    OnTrust on_trust;
    std::string disabled_reason;
    bool mass_failure = false; ///< every vantage saw most of its targets fail at once
    bool peers_connected = true, closed = false;
    std::map<std::string, Vantage> vantages;
    std::unordered_map<std::string, Target> targets;
    CommandRunner* commands = nullptr;
    std::size_t canaries = 0;
    const std::string epoch;
    std::uint64_t revision = 0;
    std::uint64_t floor = 0;                                       ///< removals up to this revision are forgotten
    std::map<std::uint64_t, std::pair<std::string, bool>> changes; ///< revision → key, false if removed
    std::size_t removed_count = 0;
    Prober prober;
};

} // namespace orrery::health
