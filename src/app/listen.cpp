#include "app/listen.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <charconv>

namespace orrery::app {

std::string ListenAddress::text() const {
    return address.find(':') == std::string::npos ? fmt::format("{}:{}", address, port) : fmt::format("[{}]:{}", address, port);
}

Result<ListenAddress> parse_listen(std::string_view text) {
    const Error bad{Code::invalid, fmt::format("\"{}\" is not an address to listen on", text), "write address:port, as in 127.0.0.1:8421 or [::1]:8421"};
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos) return bad;
    ListenAddress out;
    const auto port = text.substr(colon + 1);
    auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    if (failed != std::errc{} || end != port.data() + port.size()) return bad;
    auto host = text.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    if (host == "localhost") host = "127.0.0.1";
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(std::string(host), error);
    if (error) return bad;
    out.address = address.to_string();
    out.loopback = address.is_loopback();
    return out;
}

} // namespace orrery::app
