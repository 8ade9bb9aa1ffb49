#include "app/executors_part.h"

#include "drivers/ansible/ansible.h"
#include "drivers/http/http.h"
#include "drivers/local/local.h"
#include "drivers/puppet/puppet.h"
#include "drivers/ssh/ssh.h"
#include "net/http_client.h"

#include <vector>

namespace orrery::app {

struct ExecutorsPart::State {
    State(const asio::any_io_executor& executor, const Config& config, resource::Resources& resources, Pool& pool)
        : ssh(executor),
          logins(resources),
          ssh_runner(ssh, logins),
          remote(ssh_runner),
          local_runner(config.path("jobs.runs")),
          local(local_runner),
          client(executor, {}) {
        collector = drivers::ssh_collector(remote);
        const auto content = config.path("jobs.content");
        all.push_back(drivers::ssh_executor(remote, pool, {.content = content}));
        all.push_back(drivers::ansible_executor(
            local, logins, ssh, pool,
            {.content = content, .plugins = config.path("jobs.ansible_plugins"), .runs = config.path("jobs.runs")}));
        all.push_back(drivers::puppet_executor(remote, pool, {.content = content}));
        all.push_back(drivers::http_executor(executor, client));
        all.push_back(drivers::local_executor(local, {.programs = config.map("jobs.programs")}));
    }

    net::Ssh ssh;
    drivers::ResourceLogins logins;
    drivers::SshRunner ssh_runner;
    drivers::RemoteAttempts remote;
    drivers::LocalRunner local_runner;
    drivers::RemoteAttempts local;
    net::HttpClient client;
    std::unique_ptr<jobs::Collector> collector;
    std::vector<std::unique_ptr<jobs::Executor>> all;
};

ExecutorsPart::ExecutorsPart(asio::any_io_executor executor, const Config& config, resource::Resources& resources, Pool& pool)
    : state_(std::make_unique<State>(executor, config, resources, pool)) {}
ExecutorsPart::~ExecutorsPart() = default;

void ExecutorsPart::add_to(jobs::Executors& executors) {
    for (const auto& executor : state_->all) executors.add(*executor);
}
net::Ssh& ExecutorsPart::ssh() { return state_->ssh; }
drivers::Logins& ExecutorsPart::logins() { return state_->logins; }
jobs::Collector& ExecutorsPart::collector() { return *state_->collector; }

asio::awaitable<void> ExecutorsPart::stop() {
    co_await state_->client.stop();
    co_await state_->ssh.stop();
}

} // namespace orrery::app
