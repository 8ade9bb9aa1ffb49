// consul_follow URL SERVICE [TOKEN [WAIT GRACE]]: prints the members of the service when they change, or why they are unavailable,
// until the end of standard input. Blocking queries wait WAIT seconds and fail GRACE seconds later.
#include "drivers/consul/consul.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace {

using namespace orrery;

void show(const catalog::Membership& membership, const std::string& service) {
    const auto members = membership.members(service, "");
    std::string line = members.ok() ? "members" : "unavailable " + members.error().message;
    if (members.ok())
        for (const auto& member : members->all)
            line += fmt::format(" {}={}:{}/{}", member.node, member.address, member.port, name_of(member.state));
    std::puts(line.c_str());
    std::fflush(stdout);
}

asio::awaitable<void> follow(drivers::ConsulOptions options, std::string service) {
    const auto executor = co_await asio::this_coro::executor;
    net::HttpClient client(executor, {});
    auto made = drivers::ConsulMembership::make(executor, client, real_clock(), std::move(options));
    if (!made.ok()) {
        std::puts(made.error().text().c_str());
        co_return;
    }
    auto& membership = **made;
    TaskGroup group(executor);
    group.spawn(membership.run(Context::background()));
    const auto following = membership.follow(service);
    const auto subscription = membership.subscribe([&](const std::string&) { show(membership, service); });
    asio::posix::stream_descriptor input(executor, ::dup(0));
    std::array<char, 64> ignored{};
    boost::system::error_code ended;
    while (!ended) co_await input.async_read_some(asio::buffer(ignored), asio::redirect_error(asio::use_awaitable, ended));
    co_await group.stop();
    co_await client.stop();
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    drivers::ConsulOptions options;
    options.url = argv[1];
    if (argc > 3) options.token = argv[3];
    if (argc > 5) {
        options.wait = std::chrono::seconds(std::atoi(argv[4]));
        options.grace = std::chrono::seconds(std::atoi(argv[5]));
    }
    options.first_backoff = options.max_backoff = std::chrono::milliseconds(200);
    asio::io_context loop(1);
    asio::co_spawn(loop, follow(std::move(options), argv[2]), [](std::exception_ptr failed) {
        if (failed) std::rethrow_exception(failed);
    });
    loop.run();
    return 0;
}
