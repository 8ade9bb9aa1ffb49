#pragma once

#include "app/catalog_component.h"
#include "app/executors_component.h"
#include "app/leadership_component.h"
#include "app/server_component.h"
#include "app/store_component.h"
#include "catalog/catalog.h"
#include "catalog/membership.h"
#include "drivers/dns/resolved_names.h"
#include "jobs/engine.h"
#include "jobs/templates/controller.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::app {

/// The port of the job engine to the catalog. Before `connect`, queries fail with `unavailable`.
class FollowedCatalog final : public catalog::Membership {
public:
    /// `services`: the declared services; `declared_only`: other services have no members.
    void connect(catalog::Membership& catalog, const catalog::Catalog& services, bool declared_only, drivers::ResolvedNames& names);
    void disconnect();
    Result<catalog::Members> members(std::string_view service, std::string_view tag) const override;
    std::shared_ptr<void> subscribe(std::function<void(const std::string& service)> changed) override;
    std::optional<catalog::DeclaredService> declared(std::string_view service) const override;
    bool requires_declaration() const override { return declared_only_; }
    std::shared_ptr<void> follow(std::string_view service) override;
    Task<Unit> await_answers(Context ctx, std::vector<std::string> services) override;

private:
    Result<catalog::Members> records(std::string_view name, std::string_view type) const;

    catalog::Membership* catalog_ = nullptr;
    const catalog::Catalog* services_ = nullptr;
    drivers::ResolvedNames* names_ = nullptr;
    bool declared_only_ = false;
    /// A service is followed from its first query on.
    mutable std::map<std::string, std::shared_ptr<void>, std::less<>> followed_;
};

/// Registers the kinds of jobs. `executors` and `membership` must outlive the registry.
void add_job_kinds(resource::Registry& registry, jobs::Executors& executors, jobs::Membership& membership, Clock& clock);

/// The job engine and the schedules of job templates.
class JobsComponent final : public ServerComponent {
public:
    struct Dependencies {
        StoreComponent& store;
        LeadershipComponent& leadership;
        CatalogComponent& catalog;
        ExecutorsComponent& executors;
        jobs::Executors& registry;   ///< filled by the components that have executors
        FollowedCatalog& membership; ///< connected by `start`
    };
    /// All must outlive the component.
    JobsComponent(ServerEnvironment& environment, Dependencies dependencies);
    ~JobsComponent() override;

    std::string_view name() const override { return "jobs"; }
    /// `invalid`: jobs.name_servers has an invalid address.
    Task<Unit> start(Context ctx) override;
    asio::awaitable<void> stop() override;

    jobs::Engine& engine() { return *engine_; }
    jobs::TemplateController& templates() { return *templates_; }
    std::vector<std::pair<std::string, double>> gauges() const;

private:
    jobs::Engine::Options engine_options();

    ServerEnvironment& environment_;
    Dependencies dependencies_;
    std::unique_ptr<drivers::ResolvedNames> names_;
    std::unique_ptr<jobs::Engine> engine_;
    std::unique_ptr<jobs::TemplateController> templates_;
};

} // namespace orrery::app
