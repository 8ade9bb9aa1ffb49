#pragma once

#include "api/api.h"
#include "app/catalog_component.h"
#include "app/executors_component.h"
#include "app/gslb_component.h"
#include "app/identity_component.h"
#include "app/jobs_component.h"
#include "app/leadership_component.h"
#include "app/server_component.h"
#include "app/store_component.h"
#include "net/http_server.h"
#include "resource/explain.h"

#include <memory>

namespace orrery::fleet {
class Planner;
}

namespace orrery::app {

/// The REST API and its listeners. Does nothing on a server that does not run the API.
class ApiComponent final : public ServerComponent {
public:
    struct Dependencies {
        StoreComponent& store;
        IdentityComponent& identity;
        LeadershipComponent& leadership;
        ExecutorsComponent& executors;
        GslbComponent& gslb;
        CatalogComponent& catalog;
        JobsComponent& jobs;
    };
    /// All must outlive the component.
    ApiComponent(ServerEnvironment& environment, Dependencies dependencies);
    ~ApiComponent() override;

    std::string_view name() const override { return "api"; }
    /// `unavailable`: an address of server.listen cannot be opened.
    Task<Unit> start(Context ctx) override;
    asio::awaitable<void> drain(Duration grace) override;
    asio::awaitable<void> stop() override;

private:
    void create_api();
    void add_gauges();
    void add_explainers();
    Result<net::HttpServer::Options> listener_options();
    Result<Unit> log_listeners(const Context& ctx);

    ServerEnvironment& environment_;
    Dependencies dependencies_;
    resource::Explainers explainers_;
    std::unique_ptr<fleet::Planner> fleet_planner_;
    std::unique_ptr<api::Api> api_;
    std::unique_ptr<net::HttpServer> http_server_;
};

} // namespace orrery::app
