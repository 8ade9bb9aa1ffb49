#pragma once

#include "app/server_component.h"
#include "app/store_component.h"
#include "net/outbound.h"

#include <memory>

namespace orrery::app {

/// The outbound rules of the configuration, for all connections to addresses that a resource names. The listeners of this server
/// and the members of etcd are protected.
class OutboundComponent final : public ServerComponent {
public:
    /// Both must outlive the component.
    OutboundComponent(ServerEnvironment& environment, StoreComponent& store) : environment_(environment), store_(store) {}

    std::string_view name() const override { return "outbound"; }
    Task<Unit> start(Context ctx) override;

    std::shared_ptr<net::OutboundRules> rules() const { return rules_; }

private:
    ServerEnvironment& environment_;
    StoreComponent& store_;
    std::shared_ptr<net::OutboundRules> rules_;
};

/// The rules that the configuration gives. The listeners of this server are protected.
Result<std::shared_ptr<net::OutboundRules>> outbound_rules(const Config& config);

} // namespace orrery::app
