#pragma once

#include "gslb/observe/health_source.h"
#include "gslb/runtime/ports.h"
#include "health/vantages/health_aggregator.h"

#include <map>
#include <memory>
#include <optional>
#include <string>

namespace orrery::gslb {

/// Watches members with the probes of all vantages (this server and those that its health aggregator has), external health sources
/// and pushed statuses, and combines them to one health for each member. Loop thread only.
class HealthWatcher final : public Watcher {
public:
    /// What checks may do on this server.
    struct Permissions {
        std::map<std::string, std::string> programs; ///< programs that checks may run, by name
        Result<std::optional<net::ProcessUser>> account = std::optional<net::ProcessUser>{}; ///< the account of these programs
        net::OutboundRulesPtr outbound = nullptr;                                            ///< null: any address is permitted
        health::SecretReader secrets = {};                                                   ///< secrets in probes
    };
    /// `vantage`: the name of this server. `sources` may be null: checks of external sources then cannot run.
    HealthWatcher(asio::any_io_executor executor, Clock& clock, std::string vantage, std::shared_ptr<net::TlsContext> tls,
                  Sources* sources, Permissions permissions);
    /// No program may run, and any address is permitted.
    HealthWatcher(asio::any_io_executor executor, Clock& clock, std::string vantage, std::shared_ptr<net::TlsContext> tls,
                  Sources* sources = nullptr);
    ~HealthWatcher() override;

    void watch(const std::string& member, Target target) override;
    void forget(const std::string& member) override;
    void report_to(OnHealth on_health) override;
    void report_addresses_to(OnAddresses on_addresses) override;
    Duration vantage_expiry() const override;

    /// Runs until it is cancelled.
    asio::awaitable<void> run(Context ctx);
    health::Prober::Counts counts() const;
    /// The number of members with a check that cannot run.
    std::size_t unchecked() const;
    /// The vantages: for checkers that join, and for nodes that probe.
    health::HealthAggregator& aggregator();
    /// Pushed statuses, by `pushed_status_key`.
    health::PushedStatuses& board();

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::gslb
