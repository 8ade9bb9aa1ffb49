#include "app/settings.h"
#include "gslb/clients/client_classes.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <charconv>

/// Listen addresses, and the rate limit that depends on them.
namespace orrery::app {

bool ListenAddress::is_loopback() const {
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(host, error);
    return !error && address.is_loopback();
}

Result<ListenAddress> parse_listen(std::string_view text) {
    const Error bad{Code::invalid, fmt::format("\"{}\" is not a listen address", text),
                    "examples: 127.0.0.1:8421, [::1]:8421, *:8421"};
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos) return bad;
    auto host = text.substr(0, colon);
    const auto port_text = text.substr(colon + 1);
    ListenAddress out;
    const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), out.port);
    if (error != std::errc{} || end != port_text.data() + port_text.size()) return bad;
    if (host.starts_with('[') && host.ends_with(']'))
        host = host.substr(1, host.size() - 2);
    else if (host.find(':') != std::string_view::npos)
        return bad;                               // an IPv6 address without brackets is ambiguous
    if (host.empty() || host == "*") host = "::"; // dual-stack: accepts IPv4 as well
    if (host == "localhost") host = "127.0.0.1";
    boost::system::error_code not_an_address;
    boost::asio::ip::make_address(std::string(host), not_an_address);
    if (not_an_address) return bad;
    out.host = host;
    return out;
}

std::string listen_url(const Config& config, const ListenAddress& address, std::uint16_t port) {
    const bool v6 = address.host.find(':') != std::string::npos;
    return fmt::format("{}://{}{}{}:{}", config.path("server.tls.certificate").empty() ? "http" : "https", v6 ? "[" : "",
                       address.host, v6 ? "]" : "", port);
}

dns::RateLimit::Options dns_rate_limit(const Config& config, std::string_view listen) {
    dns::RateLimit::Options out;
    const auto address = parse_listen(config.text(listen));
    const bool chosen = config.is_set("dns.rate_limit");
    if (!chosen && (!address.ok() || address->is_loopback())) return out;
    out.per_second = static_cast<std::uint32_t>(config.integer("dns.rate_limit"));
    const auto exempt = [&](std::string_view text) {
        if (const auto prefix = gslb::parse_prefix(text); prefix.ok()) out.exempt.push_back(*prefix);
    };
    for (const auto& network : config.list("dns.rate_limit_exempt")) exempt(network);
    if (!chosen)
        for (const auto* loopback : {"127.0.0.0/8", "::1/128"}) exempt(loopback);
    return out;
}

} // namespace orrery::app
