#include "health/probes/find_host.h"

#include "core/task.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <vector>

namespace orrery::health {

asio::awaitable<FoundHost> find_host(std::string host, std::uint16_t port, std::string what, net::OutboundRulesPtr outbound) {
    co_await asio::this_coro::throw_if_cancelled(false);
    FoundHost out;
    std::vector<asio::ip::udp::endpoint> endpoints;
    boost::system::error_code not_an_address;
    if (const auto address = asio::ip::make_address(host, not_an_address); !not_an_address) {
        endpoints.emplace_back(address, port);
    } else {
        asio::ip::udp::resolver resolver(co_await asio::this_coro::executor);
        auto [error, results] = co_await resolver.async_resolve(
            host, std::to_string(port), asio::ip::udp::resolver::numeric_service, asio::as_tuple(asio::use_awaitable));
        if (error || results.empty()) {
            const bool none = error == asio::error::host_not_found;
            out.error = {.outcome = none ? Outcome::dns_error : Outcome::local_error,
                         .text = fmt::format("{}: the name {} {}", what, host, none ? "was not found" : "could not be resolved")};
            co_return out;
        }
        for (const auto& result : results) endpoints.push_back(result.endpoint());
    }
    if (const auto permitted = net::keep_permitted(outbound.get(), endpoints); !permitted.ok())
        out.error = {
            .outcome = Outcome::local_error, .text = fmt::format("{}: {}", what, permitted.error().text()), .cannot_run = true};
    else
        out.endpoint = endpoints.front();
    co_return out;
}

} // namespace orrery::health
