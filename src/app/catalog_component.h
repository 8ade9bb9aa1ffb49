#pragma once

#include "app/executors_component.h"
#include "app/identity_component.h"
#include "app/leadership_component.h"
#include "app/outbound_component.h"
#include "app/server_component.h"
#include "app/store_component.h"
#include "catalog/catalog.h"
#include "catalog/checker.h"
#include "resource/explain.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::app {

/// The catalog of services: its checks, the Consul-compatible listeners, and the connection to an external Consul.
class CatalogComponent final : public ServerComponent {
public:
    struct Dependencies {
        StoreComponent& store;
        IdentityComponent& identity;
        LeadershipComponent& leadership;
        OutboundComponent& outbound;
        ExecutorsComponent& executors;
    };
    /// All must outlive the component.
    CatalogComponent(ServerEnvironment& environment, Dependencies dependencies);
    ~CatalogComponent() override;

    std::string_view name() const override { return "catalog"; }
    /// `unavailable`: a listener cannot be opened.
    Task<Unit> start(Context ctx) override;
    asio::awaitable<void> drain(Duration grace) override;
    asio::awaitable<void> stop() override;

    /// The members of services: of the built-in catalog, or of the Consul that the configuration names.
    catalog::Membership& membership();
    const catalog::Catalog& catalog() const;
    bool follows_consul() const; ///< `membership` is that of a Consul
    /// Adds explanations of services and instances.
    void add_explainers(resource::Explainers& explainers);
    std::vector<std::pair<std::string, double>> gauges() const;

private:
    struct State;
    ServerEnvironment& environment_;
    Dependencies dependencies_;
    std::unique_ptr<State> state_;
};

} // namespace orrery::app
