#include "core/ascii.h"
#include "net/http_client.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::net {

namespace {

std::uint16_t default_port(std::string_view scheme) { return scheme == "https" ? 443 : 80; }

bool is_host_name(std::string_view host) {
    return !host.empty() && host.size() <= 253 &&
           host.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-._") == std::string_view::npos;
}

Error bad_url(std::string_view why) {
    return Error{Code::invalid, fmt::format("the URL {}", why), "write it as http://host:port/path or https://host:port/path"};
}

} // namespace

std::string Url::origin() const {
    const bool is_v6 = host.find(':') != std::string::npos;
    auto text = fmt::format("{}://{}{}{}", scheme, is_v6 ? "[" : "", host, is_v6 ? "]" : "");
    if (port != default_port(scheme)) text += fmt::format(":{}", port);
    return text;
}

std::string Url::text() const { return origin() + target; }

Result<Url> parse_url(std::string_view text) {
    if (text.size() > 8192) return bad_url("is longer than 8192 characters");
    for (const char c : text)
        if (c <= ' ' || c > '~') return bad_url("has a character in it that must be percent-encoded");

    Url url;
    const auto colon = text.find("://");
    if (colon == std::string_view::npos) return bad_url("has no scheme");
    url.scheme = ascii_lower(text.substr(0, colon));
    if (url.scheme != "http" && url.scheme != "https") return bad_url("is neither http nor https");
    text.remove_prefix(colon + 3);

    auto authority = text.substr(0, text.find_first_of("/?#"));
    text.remove_prefix(authority.size());
    if (authority.find('@') != std::string_view::npos)
        return bad_url("has a user name in it, which is refused: it would end up in logs");
    std::string_view port;
    if (authority.starts_with('[')) {
        const auto bracket = authority.find(']');
        if (bracket == std::string_view::npos) return bad_url("has a '[' without ']'");
        boost::system::error_code error;
        const auto address = boost::asio::ip::make_address_v6(authority.substr(1, bracket - 1), error);
        if (error) return bad_url("has no IPv6 address between its brackets");
        url.host = address.to_string();
        authority.remove_prefix(bracket + 1);
        if (!authority.empty() && authority.front() != ':') return bad_url("has something between its address and its port");
        port = authority;
    } else {
        url.host = ascii_lower(authority.substr(0, authority.find(':')));
        if (!is_host_name(url.host)) return bad_url("has no host name or address");
        port = authority.substr(url.host.size());
    }
    url.port = default_port(url.scheme);
    if (port.size() > 1) {
        port.remove_prefix(1);
        unsigned number = 0;
        const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
        if (error != std::errc{} || end != port.data() + port.size() || number == 0 || number > 65535)
            return bad_url("has a port that is not a number between 1 and 65535");
        url.port = static_cast<std::uint16_t>(number);
    }

    text = text.substr(0, text.find('#'));
    url.target = text.starts_with('/') ? std::string(text) : "/" + std::string(text);
    return url;
}

Result<Url> resolve_location(const Url& base, std::string_view location) {
    if (location.starts_with("//")) return parse_url(base.scheme + ":" + std::string(location));
    const auto colon = location.find(':');
    if (colon != std::string_view::npos && colon < location.find_first_of("/?#")) return parse_url(location);
    const auto path = base.target.substr(0, base.target.find('?'));
    if (location.starts_with('/')) return parse_url(base.origin() + std::string(location));
    if (location.empty() || location.starts_with('?') || location.starts_with('#'))
        return parse_url(base.origin() + path + std::string(location));
    return parse_url(base.origin() + path.substr(0, path.rfind('/') + 1) + std::string(location));
}

} // namespace orrery::net
