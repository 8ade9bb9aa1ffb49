#include "app/outbound_component.h"

#include "app/settings.h"
#include "core/log.h"
#include "store/etcd/etcd_store.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <fmt/format.h>

#include <charconv>

namespace orrery::app {

namespace {

using Endpoints = std::vector<net::OutboundRules::Endpoint>;

constexpr auto resolve_etcd_every = std::chrono::minutes(1);

/// The addresses of the members that an etcd URL names, with their client port, 2379 and 2380. Blocks while it resolves names.
Endpoints etcd_endpoints(const std::string& store_url) {
    Endpoints out;
    const auto options = store::parse_etcd_url(store_url);
    if (!options.ok()) return out;
    asio::io_context loop;
    asio::ip::tcp::resolver resolver(loop);
    for (const auto& member : options->endpoints) {
        const auto colon = member.rfind(':');
        auto host = member.substr(0, colon);
        if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
        std::uint16_t port = 0;
        std::from_chars(member.data() + colon + 1, member.data() + member.size(), port);
        boost::system::error_code error;
        for (const auto& found : resolver.resolve(host, "", error))
            for (const std::uint16_t each : {port, std::uint16_t{2379}, std::uint16_t{2380}})
                out.push_back({found.endpoint().address(), each});
    }
    return out;
}

/// Protects the members of an etcd URL. Names are resolved on the pool.
asio::awaitable<void> protect_etcd(Pool& pool, std::shared_ptr<net::OutboundRules> rules, std::string store_url) {
    auto endpoints = co_await blocking(pool, [store_url] { return etcd_endpoints(store_url); });
    if (endpoints.empty()) // the known addresses stay protected
        log::warn(Context::background(), "no address of etcd found to protect from outbound connections: store={}", store_url);
    else
        rules->protect("etcd", std::move(endpoints));
}

/// Repeats it, because the records of names change. Runs until cancelled.
asio::awaitable<void> keep_protecting_etcd(Clock& clock, Pool& pool, std::shared_ptr<net::OutboundRules> rules,
                                           std::string store_url) {
    while ((co_await clock.sleep(resolve_etcd_every)).ok()) co_await protect_etcd(pool, rules, store_url);
}

} // namespace

Result<std::shared_ptr<net::OutboundRules>> outbound_rules(const Config& config) {
    TRY(auto rules,
        net::OutboundRules::make({.allow = config.list("net.outbound.allow"), .deny = config.list("net.outbound.deny")}));
    auto listeners = config.list("server.listen");
    for (const auto* key : {"catalog.http.listen", "catalog.dns.listen", "dns.listen"})
        if (!config.text(key).empty()) listeners.push_back(config.text(key));
    Endpoints own;
    for (const auto& text : listeners) {
        TRY(const auto address, parse_listen(text));
        if (address.port != 0) own.push_back({asio::ip::make_address(address.host), address.port});
    }
    rules->protect("this server", std::move(own));
    return rules;
}

Task<Unit> OutboundComponent::start(Context ctx) {
    CO_TRY(rules_, outbound_rules(environment_.config));
    if (!store_.is_shared()) co_return Unit{};
    const auto& url = store_.location().url;
    co_await protect_etcd(environment_.pool, rules_, url);
    environment_.tasks.spawn(keep_protecting_etcd(environment_.clock, environment_.pool, rules_, url));
    co_return Unit{};
}

} // namespace orrery::app
