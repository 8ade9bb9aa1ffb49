#pragma once

#include "api/api.h"
#include "catalog/membership.h"
#include "core/config.h"
#include "core/task.h"
#include "jobs/engine.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::app {

/// The catalog, as the job engine asks it. Before `join` nobody can be asked.
class FollowedCatalog final : public jobs::Membership {
public:
    void join(catalog::Membership& catalog);
    void leave();
    Result<std::vector<jobs::Member>> members(std::string_view service, std::string_view tag) const override;
    std::shared_ptr<void> watch(std::function<void(std::string_view service)> changed) override;

private:
    catalog::Membership* catalog_ = nullptr;
    /// Services that were asked for are followed from then on.
    mutable std::map<std::string, std::shared_ptr<void>, std::less<>> followed_;
};

/// Jobs with all that belongs to them. Made before the kinds are registered; executors are added before `start`.
class JobsPart {
public:
    JobsPart();
    ~JobsPart();

    jobs::Executors& executors() { return executors_; }
    void add_kinds(resource::Registry& registry);
    /// `server`: this one's name; `shared`: others use this store too. `runs`: this server takes part in running jobs; else it only
    /// answers questions about them.
    void start(Context ctx, asio::any_io_executor executor, const Config& config, resource::Resources& resources,
               store::Leadership& leadership, catalog::Membership& catalog, Pool& pool, Clock& clock, TaskGroup& group,
               std::string server, bool shared, jobs::Collector& collector, bool runs);
    /// After the group that `start` was given has stopped, and the API.
    void stop();
    jobs::Engine& engine() { return *engine_; }
    std::vector<std::pair<std::string, double>> gauges() const;

private:
    jobs::Executors executors_;
    FollowedCatalog membership_;
    std::unique_ptr<jobs::Engine> engine_;
};

} // namespace orrery::app
