#pragma once

#include "core/config.h"
#include "core/task.h"
#include "gslb/controller.h"
#include "health/lookout.h"
#include "jobs/executor.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::app {

/// Load balancing with all that belongs to it: looks at members, decides, answers for its zones, and publishes elsewhere.
class GslbPart {
public:
    GslbPart();
    ~GslbPart();

    void add_kinds(resource::Registry& registry);
    /// Prepares everything; `start` sets it in motion. All must outlive this.
    /// `looks`: this server looks at members; else it goes by what those find that do. `shared`: other servers may use the store.
    struct Part {
        bool looks = true, shared = false;
    };
    void make(asio::any_io_executor executor, const Config& config, std::string server, resource::Resources& resources,
              store::Leadership& leadership, Clock& clock, Part part);
    /// `unavailable` where names cannot be answered at the address that is configured.
    Result<Unit> start(Context ctx, TaskGroup& group);
    /// No checker is kept waiting any longer. Before the API stops.
    void let_checkers_go();
    /// No more names are answered.
    void close();
    /// After the group that `start` was given has stopped, and the API.
    asio::awaitable<void> stop();
    gslb::Controller& controller();
    /// What the configuration says of vantages: the nodes that look, too, and this server's canaries. `invalid` names the
    /// setting. `commands` must outlive this.
    Result<Unit> look_from(const Config& config, health::CommandRunner& commands);
    /// Who looks at members: for checkers that join.
    health::Lookout& lookout();
    /// Tasks of jobs that drain a machine's members. After `make`.
    jobs::Executor& executor();
    std::vector<std::pair<std::string, double>> gauges() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::app
