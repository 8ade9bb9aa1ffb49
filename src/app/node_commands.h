#pragma once

#include "drivers/ssh/logins.h"
#include "health/probe.h"
#include "net/ssh.h"
#include "resource/resources.h"

#include <string>
#include <utility>
#include <vector>

namespace orrery::app {

/// Commands of checks, run on managed nodes over SSH.
class NodeCommands final : public health::CommandRunner {
public:
    /// All must outlive this.
    NodeCommands(net::Ssh& ssh, drivers::Logins& logins, const resource::Resources& resources)
        : ssh_(ssh), logins_(logins), resources_(resources) {}

    Task<Ended> run(Context ctx, std::string node, std::vector<std::string> argv) override {
        CO_TRY(const auto object, resources_.get(*resources_.registry().find("Node"), node));
        CO_TRY(auto target, logins_.login(resource::Node::from(object)));
        net::SshCommand command;
        command.argv = std::move(argv);
        command.max_output = 4096;
        CO_TRY(auto result, co_await ssh_.run(std::move(ctx), std::move(target), std::move(command)));
        if (!result.errors.empty()) result.output += (result.output.empty() ? "" : "\n") + result.errors;
        co_return Ended{result.exit_code, std::move(result.output)};
    }

private:
    net::Ssh& ssh_;
    drivers::Logins& logins_;
    const resource::Resources& resources_;
};

} // namespace orrery::app
