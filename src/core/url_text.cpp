#include "core/url_text.h"

#include <boost/asio/ip/address.hpp>

#include <algorithm>

namespace orrery {

namespace {

constexpr std::string_view scheme_end = "://";

/// Where the userinfo of the URL that begins at `begin`, after its scheme, ends: at its '@', or `begin` where there is none.
std::size_t userinfo_end(std::string_view text, std::size_t begin) {
    const auto end = std::min(text.find_first_of(" \t\r\n\"'<>", begin), text.size());
    const auto url = text.substr(begin, end - begin);
    const auto authority = url.substr(0, url.find_first_of("/?#"));
    if (const auto at = authority.rfind('@'); at != std::string_view::npos) return begin + at;
    // A password with a '/' in it, which should have been encoded: "root:p/ss@host". "host:2379/a@b" has a port there.
    const auto colon = authority.rfind(':');
    const auto at = url.rfind('@');
    if (colon == std::string_view::npos || at == std::string_view::npos || authority.ends_with(']')) return begin;
    const auto port = authority.substr(colon + 1);
    return std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; }) ? begin : begin + at;
}

} // namespace

std::string mask_userinfo(std::string_view text) {
    std::string out;
    for (;;) {
        const auto scheme = text.find(scheme_end);
        if (scheme == std::string_view::npos) return out.append(text);
        const auto begin = scheme + scheme_end.size(), at = userinfo_end(text, begin);
        out.append(text.substr(0, begin));
        if (at != begin || text.substr(begin).starts_with('@')) {
            const auto colon = text.substr(begin, at - begin).find(':');
            if (colon != std::string_view::npos) out.append(text.substr(begin, colon + 1));
            out.append("***");
        }
        text.remove_prefix(at);
    }
}

bool has_userinfo(std::string_view url) {
    const auto scheme = url.find(scheme_end);
    const auto begin = scheme == std::string_view::npos ? 0 : scheme + scheme_end.size();
    return url.substr(begin).starts_with('@') || userinfo_end(url, begin) != begin;
}

bool is_loopback_host(std::string_view host) {
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(std::string(host), error);
    if (error) return host == "localhost";
    if (address.is_v6() && address.to_v6().is_v4_mapped())
        return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6()).is_loopback();
    return address.is_loopback();
}

} // namespace orrery
