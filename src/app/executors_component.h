#pragma once

#include "app/outbound_component.h"
#include "app/server_component.h"
#include "app/store_component.h"
#include "drivers/ssh/logins.h"
#include "health/probes/command_probe.h"
#include "health/probes/probe.h"
#include "jobs/artefacts.h"
#include "jobs/executor.h"
#include "net/ssh.h"
#include "resource/explain.h"

#include <memory>

namespace orrery::app {

/// SSH, and the executors of tasks: ssh, ansible, puppet, http and local.
class ExecutorsComponent final : public ServerComponent {
public:
    /// `start` adds the executors to `registry`. All must outlive the component.
    ExecutorsComponent(ServerEnvironment& environment, StoreComponent& store, OutboundComponent& outbound,
                       jobs::Executors& registry);
    ~ExecutorsComponent() override;

    std::string_view name() const override { return "executors"; }
    Task<Unit> start(Context ctx) override;
    asio::awaitable<void> stop() override;

    jobs::ArtefactFetcher& artefact_fetcher();
    /// Runs commands of checks on managed nodes, over SSH.
    health::CommandRunner& node_commands();
    /// Adds to the explanation of a Node whether SSH reached it.
    void add_explainers(resource::Explainers& explainers);

private:
    struct State;
    ServerEnvironment& environment_;
    StoreComponent& store_;
    OutboundComponent& outbound_;
    jobs::Executors& registry_;
    std::unique_ptr<State> state_;
};

} // namespace orrery::app
