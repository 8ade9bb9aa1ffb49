#include "app/executors_component.h"

#include "app/node_commands.h"
#include "drivers/ansible/ansible.h"
#include "drivers/http/http.h"
#include "drivers/local/local.h"
#include "drivers/puppet/puppet.h"
#include "drivers/ssh/ssh.h"
#include "net/http_client.h"

#include <fmt/format.h>

#include <vector>

namespace orrery::app {

struct ExecutorsComponent::State {
    State(const asio::any_io_executor& executor, const Config& config, resource::Resources& resources_, Pool& pool,
          net::OutboundRulesPtr outbound)
        : resources(resources_),
          ssh(executor),
          logins(resources),
          ssh_runner(ssh, logins),
          remote(ssh_runner),
          local_runner(config.path("jobs.runs")),
          local(local_runner),
          client(executor, {.outbound = std::move(outbound)}),
          node_commands(ssh, logins, resources) {
        artefact_fetcher = drivers::ssh_artefact_fetcher(remote);
        const auto content = config.path("jobs.content");
        all.push_back(drivers::ssh_executor(remote, pool, {.content = content}));
        all.push_back(drivers::ansible_executor(local, logins, ssh, pool, {.content = content, .runs = config.path("jobs.runs")}));
        all.push_back(drivers::puppet_executor(remote, pool, {.content = content}));
        all.push_back(drivers::http_executor(executor, client));
        all.push_back(drivers::local_executor(local, {.programs = config.map("jobs.programs")}));
    }

    resource::Resources& resources;
    net::Ssh ssh;
    drivers::ResourceLogins logins;
    drivers::SshRunner ssh_runner;
    drivers::RemoteAttempts remote;
    drivers::LocalRunner local_runner;
    drivers::RemoteAttempts local;
    net::HttpClient client;
    NodeCommands node_commands;
    std::unique_ptr<jobs::ArtefactFetcher> artefact_fetcher;
    std::vector<std::unique_ptr<jobs::Executor>> all;
};

ExecutorsComponent::ExecutorsComponent(ServerEnvironment& environment, StoreComponent& store, OutboundComponent& outbound,
                                       jobs::Executors& registry)
    : environment_(environment), store_(store), outbound_(outbound), registry_(registry) {}
ExecutorsComponent::~ExecutorsComponent() = default;

Task<Unit> ExecutorsComponent::start(Context ctx) {
    state_ = std::make_unique<State>(environment_.supervisor.executor("executors"), environment_.config, store_.resources(),
                                     environment_.pool, outbound_.rules());
    for (const auto& executor : state_->all) registry_.add(*executor);
    co_return Unit{};
}

jobs::ArtefactFetcher& ExecutorsComponent::artefact_fetcher() { return *state_->artefact_fetcher; }
health::CommandRunner& ExecutorsComponent::node_commands() { return state_->node_commands; }

void ExecutorsComponent::add_explainers(resource::Explainers& explainers) {
    explainers.contribute("Node", "Node", [this](const resource::ExplainRequest& request) -> Result<boost::json::object> {
        const auto& resources = state_->resources;
        TRY(const auto object, resources.get(*resources.registry().find("Node"), request.name));
        const auto node = resource::Node::from(object);
        net::SshTarget target;
        target.host = node.address;
        target.port = static_cast<std::uint16_t>(node.ssh_port);
        target.user = node.ssh_user;
        const auto reach = state_->ssh.last_reach(target.text());
        if (!reach)
            return boost::json::object{{"ssh_reached", nullptr},
                                       {"message", "no evidence: this server has not connected to it over SSH since it started"}};
        boost::json::object out{{"ssh_reached", reach->reached}, {"ssh_tried_at", to_rfc3339(reach->time)}};
        out["message"] = reach->reached ? fmt::format("reached over SSH as {} at {}", target.text(), to_rfc3339(reach->time))
                                        : fmt::format("not reached over SSH as {} at {}: {}", target.text(),
                                                      to_rfc3339(reach->time), reach->message);
        return out;
    });
}

asio::awaitable<void> ExecutorsComponent::stop() {
    if (!state_) co_return;
    co_await state_->client.stop();
    co_await state_->ssh.stop();
}

} // namespace orrery::app
