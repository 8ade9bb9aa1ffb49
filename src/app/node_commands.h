#pragma once

#include "drivers/ssh/logins.h"
#include "drivers/ssh/remote.h"
#include "health/probes/command_probe.h"
#include "health/probes/probe.h"
#include "net/ssh.h"
#include "resource/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::app {

/// Runs the commands of checks on managed nodes over SSH. `timeout` ends a slow command on the node before the check itself times
/// out, so that hanging commands do not accumulate.
class NodeCommands final : public health::CommandRunner {
public:
    /// All must outlive this.
    NodeCommands(net::Ssh& ssh, drivers::Logins& logins, const resource::Resources& resources)
        : runner_(ssh, logins), resources_(resources) {}

    Task<Ended> run(Context ctx, std::string node, std::vector<std::string> argv, std::string input) override {
        CO_TRY(const auto object, resources_.get(*resources_.registry().find("Node"), node));
        using Seconds = std::chrono::duration<double>;
        const Seconds left = ctx.deadline() ? *ctx.deadline() - real_clock().steady() : std::chrono::seconds(30);
        const auto limit = fmt::format("{:.1f}", std::max(0.1, left.count() * 0.8));
        drivers::HostCommand command;
        command.argv = {"timeout", "-k", "1", limit};
        command.argv.insert(command.argv.end(), std::move_iterator(argv.begin()), std::move_iterator(argv.end()));
        if (!input.empty()) command.input = std::make_shared<const std::string>(std::move(input));
        command.max_output = 4096;
        CO_TRY(auto result, co_await runner_.run(std::move(ctx), resource::Node::from(object), std::move(command)));
        if (!result.errors.empty()) result.output += (result.output.empty() ? "" : "\n") + result.errors;
        if (result.exit_code == ended_by_timeout)
            result.output =
                fmt::format("the command did not end within {} s{}{}", limit, result.output.empty() ? "" : ": ", result.output);
        co_return Ended{result.exit_code, std::move(result.output)};
    }

private:
    static constexpr int ended_by_timeout = 124;
    drivers::SshRunner runner_;
    const resource::Resources& resources_;
};

} // namespace orrery::app
