#pragma once

#include "app/executors_component.h"
#include "app/leadership_component.h"
#include "app/outbound_component.h"
#include "app/server_component.h"
#include "app/store_component.h"
#include "gslb/runtime/controller.h"
#include "health/vantages/health_aggregator.h"
#include "jobs/executor.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::app {

/// Load balancing: probes members, decides the answers of load balancers, serves zones, and publishes to external DNS providers.
/// Its tasks run in the failure domains "health", "gslb", "publication" and "dns".
class GslbComponent final : public ServerComponent {
public:
    struct Dependencies {
        StoreComponent& store;
        LeadershipComponent& leadership;
        OutboundComponent& outbound;
        ExecutorsComponent& executors;
        jobs::Executors& job_executors; ///< `start` adds the executor of drain tasks
    };
    /// All must outlive the component.
    GslbComponent(ServerEnvironment& environment, Dependencies dependencies);
    ~GslbComponent() override;

    std::string_view name() const override { return "gslb"; }
    /// `unavailable`: dns.listen cannot be opened. `invalid` names the setting.
    Task<Unit> start(Context ctx) override;
    asio::awaitable<void> drain(Duration grace) override;
    asio::awaitable<void> stop() override;

    gslb::Controller& controller();
    /// The health of members, for remote checkers.
    health::HealthAggregator& aggregator();
    std::vector<std::pair<std::string, double>> gauges() const;

private:
    struct State;
    Result<Unit> start_dns(const Context& ctx);
    Result<Unit> configure_vantages();
    void start_tasks(const Context& ctx);

    ServerEnvironment& environment_;
    Dependencies dependencies_;
    std::unique_ptr<State> state_;
};

} // namespace orrery::app
