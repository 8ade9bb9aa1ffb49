#pragma once

#include "drivers/ssh/logins.h"
#include "health/probe.h"
#include "net/ssh.h"
#include "resource/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace orrery::app {

/// Commands of checks, run on managed nodes over SSH. A command that does not end in time is ended by `timeout` on its host, a
/// little before nobody listens any more: one that hangs must not be joined by another at every interval.
class NodeCommands final : public health::CommandRunner {
public:
    /// All must outlive this.
    NodeCommands(net::Ssh& ssh, drivers::Logins& logins, const resource::Resources& resources)
        : ssh_(ssh), logins_(logins), resources_(resources) {}

    Task<Ended> run(Context ctx, std::string node, std::vector<std::string> argv) override {
        CO_TRY(const auto object, resources_.get(*resources_.registry().find("Node"), node));
        CO_TRY(auto target, logins_.login(resource::Node::from(object)));
        using Seconds = std::chrono::duration<double>;
        const Seconds left = ctx.deadline() ? *ctx.deadline() - real_clock().steady() : std::chrono::seconds(30);
        const auto limit = fmt::format("{:.1f}", std::max(0.1, left.count() * 0.8));
        net::SshCommand command;
        command.argv = {"timeout", "-k", "1", limit};
        command.argv.insert(command.argv.end(), std::move_iterator(argv.begin()), std::move_iterator(argv.end()));
        command.max_output = 4096;
        CO_TRY(auto result, co_await ssh_.run(std::move(ctx), std::move(target), std::move(command)));
        if (!result.errors.empty()) result.output += (result.output.empty() ? "" : "\n") + result.errors;
        if (result.exit_code == ended_by_timeout)
            result.output = fmt::format("it did not end within {} s{}{}", limit, result.output.empty() ? "" : ": ", result.output);
        co_return Ended{result.exit_code, std::move(result.output)};
    }

private:
    static constexpr int ended_by_timeout = 124;
    net::Ssh& ssh_;
    drivers::Logins& logins_;
    const resource::Resources& resources_;
};

} // namespace orrery::app
