#include "net/outbound.h"

#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>
#include <cstring>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <optional>
#include <tuple>

namespace orrery::net {

namespace {

using Ip = asio::ip::address;

constexpr int mapped_length = 96; ///< of ::ffff:0:0/96

struct BuiltIn {
    std::string_view range, name;
};
/// Multicast that does not leave the link and the limited broadcast count as link-local.
constexpr BuiltIn built_in[] = {
    {"127.0.0.0/8", "loopback"},
    {"::1", "loopback"},
    {"ff01::/16", "loopback"},
    {"0.0.0.0/8", "this network"},
    {"169.254.0.0/16", "link-local"},
    {"fe80::/10", "link-local"},
    {"224.0.0.0/24", "link-local"},
    {"ff02::/16", "link-local"},
    {"255.255.255.255", "link-local"},
    {"169.254.169.254", "metadata service"},
    {"fd00:ec2::254", "metadata service"},
    {"fd20:ce::254", "metadata service"},
    {"100.100.100.200", "metadata service"},
    {"168.63.129.16", "metadata service"},
};

AddressBytes mapped(const std::uint8_t* four) {
    AddressBytes out{};
    out[10] = out[11] = 0xff;
    std::copy(four, four + 4, out.begin() + 12);
    return out;
}

AddressBytes bytes_of(const Ip& address) {
    if (address.is_v4()) return mapped(address.to_v4().to_bytes().data());
    return address.to_v6().to_bytes();
}

bool is_ipv4(const AddressBytes& address) {
    static const AddressBytes prefix = mapped(std::array<std::uint8_t, 4>{}.data());
    return std::equal(prefix.begin(), prefix.begin() + 12, address.begin());
}

Ip address_of(const AddressBytes& bytes) {
    if (!is_ipv4(bytes)) return asio::ip::address_v6(bytes);
    return asio::ip::address_v4({bytes[12], bytes[13], bytes[14], bytes[15]});
}

std::string endpoint_text(const Ip& address, std::uint16_t port) {
    if (port == 0) return address.to_string();
    return fmt::format("{}{}{}:{}", address.is_v6() ? "[" : "", address.to_string(), address.is_v6() ? "]" : "", port);
}

bool starts_with(const AddressBytes& address, std::initializer_list<std::uint8_t> prefix) {
    return std::equal(prefix.begin(), prefix.end(), address.begin());
}

/// The IPv4 addresses that an IPv6 address may embed, four bytes each.
std::vector<std::array<std::uint8_t, 4>> embedded_in(const AddressBytes& a) {
    std::vector<std::array<std::uint8_t, 4>> out;
    const auto at = [&](int w, int x, int y, int z) {
        return std::array<std::uint8_t, 4>{a[static_cast<std::size_t>(w)], a[static_cast<std::size_t>(x)],
                                           a[static_cast<std::size_t>(y)], a[static_cast<std::size_t>(z)]};
    };
    const auto last = at(12, 13, 14, 15);
    if (starts_with(a, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})) out.push_back(last);             // IPv4-compatible
    if (starts_with(a, {0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0})) out.push_back(last);       // translated, RFC 2765
    if (starts_with(a, {0x20, 0x02})) out.push_back(at(2, 3, 4, 5));                           // 6to4
    if (starts_with(a, {0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0})) out.push_back(last); // NAT64, RFC 6052
    if (starts_with(a, {0x00, 0x64, 0xff, 0x9b, 0x00, 0x01})) { // NAT64 of a site, RFC 8215: the prefix length is its choice
        out.push_back(last);
        for (const auto& four : {at(6, 7, 9, 10), at(7, 9, 10, 11), at(9, 10, 11, 12)})
            if (a[8] == 0 && four[0] != 0) out.push_back(four); // 0.0.0.0/8 shows that the prefix differs
    }
    if (starts_with(a, {0x20, 0x01, 0, 0})) { // Teredo: the server, and the client with its bits inverted
        out.push_back(at(4, 5, 6, 7));
        auto client = last;
        for (auto& byte : client) byte = static_cast<std::uint8_t>(~byte);
        out.push_back(client);
    }
    if ((a[8] == 0 || a[8] == 2) && a[9] == 0 && a[10] == 0x5e && a[11] == 0xfe) out.push_back(last); // ISATAP
    return out;
}

bool is_unspecified(const AddressBytes& address) {
    return std::all_of(address.begin() + (is_ipv4(address) ? 12 : 0), address.end(), [](std::uint8_t byte) { return byte == 0; });
}

std::vector<Ip> interface_addresses() {
    std::vector<Ip> out;
    ifaddrs* found = nullptr;
    if (::getifaddrs(&found) != 0) return out;
    for (const auto* at = found; at != nullptr; at = at->ifa_next) {
        if (at->ifa_addr == nullptr) continue;
        if (at->ifa_addr->sa_family == AF_INET)
            out.emplace_back(asio::ip::address_v4(ntohl(reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr.s_addr)));
        if (at->ifa_addr->sa_family == AF_INET6) {
            AddressBytes bytes;
            std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr, bytes.size());
            out.emplace_back(asio::ip::address_v6(bytes));
        }
    }
    ::freeifaddrs(found);
    return out;
}

std::optional<int> number_in(std::string_view text, int max) {
    int out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (error != std::errc{} || end != text.data() + text.size() || out < 0 || out > max) return std::nullopt;
    return out;
}

} // namespace

std::string OutboundRange::text() const {
    const auto address = address_of(network);
    const int shown = address.is_v4() ? length - mapped_length : length;
    auto out = address.to_string();
    if (shown != (address.is_v4() ? 32 : 128)) out += fmt::format("/{}", shown);
    if (port == 0) return out;
    return address.is_v6() ? fmt::format("[{}]:{}", out, port) : fmt::format("{}:{}", out, port);
}

bool OutboundRange::contains(const AddressBytes& address, std::uint16_t to) const {
    if (port != 0 && port != to) return false;
    const auto whole = static_cast<std::size_t>(length) / 8;
    if (!std::equal(network.begin(), network.begin() + static_cast<std::ptrdiff_t>(whole), address.begin())) return false;
    const int rest = length % 8;
    if (rest == 0) return true;
    return ((network[whole] ^ address[whole]) >> (8 - rest)) == 0;
}

Result<OutboundRange> parse_outbound_range(std::string_view text) {
    const Error bad{Code::invalid, fmt::format("\"{}\" is no address or network", text),
                    "write 127.0.0.0/8, 127.0.0.1, 127.0.0.1:8080, fd00::/8, [::1]:8080 or [fd00::/8]:443"};
    OutboundRange out;
    auto range = text;
    std::string_view port;
    if (range.starts_with('[')) {
        const auto end = range.find(']');
        if (end == std::string_view::npos) return bad;
        port = range.substr(end + 1);
        range = range.substr(1, end - 1);
        if (!port.starts_with(':')) return bad;
        port.remove_prefix(1);
    } else if (const auto colon = range.find(':'); colon != std::string_view::npos && colon == range.rfind(':')) {
        port = range.substr(colon + 1);
        range = range.substr(0, colon);
    }
    if (range.size() + port.size() != text.size()) { // it has a port
        const auto number = number_in(port, 65535);
        if (!number || *number == 0) return bad;
        out.port = static_cast<std::uint16_t>(*number);
    }
    const auto slash = range.find('/');
    boost::system::error_code error;
    const auto address = asio::ip::make_address(std::string(range.substr(0, slash)), error);
    if (error || (address.is_v6() && address.to_v6().scope_id() != 0)) return bad;
    if (text.starts_with('[') && address.is_v4()) return bad;
    out.network = bytes_of(address);
    if (slash != std::string_view::npos) {
        const auto length = number_in(range.substr(slash + 1), address.is_v4() ? 32 : 128);
        if (!length) return bad;
        out.length = *length + (address.is_v4() ? mapped_length : 0);
    }
    auto masked = out.network;
    for (int bit = out.length; bit < 128; ++bit)
        masked[static_cast<std::size_t>(bit / 8)] &= static_cast<std::uint8_t>(~(0x80U >> (bit % 8)));
    if (masked != out.network)
        return Error{Code::invalid, fmt::format("\"{}\" has bits set beyond its prefix length", text),
                     fmt::format("write {}", OutboundRange{masked, out.length, out.port}.text())};
    return out;
}

std::vector<AddressBytes> reached_addresses(const Ip& address) {
    static const AddressBytes loopback4 = bytes_of(asio::ip::address_v4::loopback());
    static const AddressBytes loopback6 = bytes_of(asio::ip::address_v6::loopback());
    const auto bytes = bytes_of(address);
    if (is_unspecified(bytes)) return {is_ipv4(bytes) ? loopback4 : loopback6};
    std::vector<AddressBytes> out{bytes};
    if (is_ipv4(bytes) || bytes == loopback6) return out;
    for (const auto& four : embedded_in(bytes)) out.push_back(mapped(four.data()));
    return out;
}

Result<std::shared_ptr<OutboundRules>> OutboundRules::make(Options options) {
    std::shared_ptr<OutboundRules> out(new OutboundRules);
    out->setting_ = std::move(options.setting);
    out->local_ = options.local ? std::move(options.local) : interface_addresses;
    for (const auto& [range, name] : built_in) {
        TRY(const auto parsed, parse_outbound_range(range));
        out->rules_.push_back({parsed, false, false, std::string(name)});
    }
    for (const bool allow : {false, true})
        for (const auto& text : allow ? options.allow : options.deny) {
            TRY(const auto parsed, parse_outbound_range(text));
            out->rules_.push_back({parsed, allow, true, "configured"});
        }
    // The first that contains an address decides.
    std::sort(out->rules_.begin(), out->rules_.end(), [](const Rule& a, const Rule& b) {
        const auto rank = [](const Rule& rule) {
            return std::tuple(-rule.range.length, rule.range.port == 0, !rule.configured, rule.allow);
        };
        return rank(a) < rank(b);
    });
    return out;
}

void OutboundRules::protect(const std::string& name, std::vector<Endpoint> endpoints) {
    std::lock_guard lock(mutex_);
    std::erase_if(protected_, [&](const Protected& one) { return one.name == name; });
    for (const auto& [address, port] : endpoints)
        protected_.push_back({name, bytes_of(address), address.is_loopback() || address.is_unspecified(), port});
}

const OutboundRules::Rule* OutboundRules::decisive(const AddressBytes& address, std::uint16_t port) const {
    const auto found =
        std::find_if(rules_.begin(), rules_.end(), [&](const Rule& rule) { return rule.range.contains(address, port); });
    return found == rules_.end() ? nullptr : &*found;
}

/// The name of the protected endpoint that this is; empty: none.
std::string OutboundRules::protecting(const AddressBytes& address, std::uint16_t port) const {
    std::string if_local;
    {
        std::lock_guard lock(mutex_);
        for (const auto& one : protected_) {
            if (one.port != port) continue;
            if (one.address == address) return one.name;
            if (one.any_local) if_local = one.name;
        }
    }
    if (if_local.empty()) return {};
    const auto shown = address_of(address);
    if (shown.is_loopback()) return if_local;
    const auto own = local_();
    return std::any_of(own.begin(), own.end(), [&](const Ip& one) { return bytes_of(one) == address; }) ? if_local : std::string();
}

Result<Unit> OutboundRules::check(const Ip& address, std::uint16_t port) const {
    for (const auto& reached : reached_addresses(address)) {
        const auto* rule = decisive(reached, port);
        std::string name, range;
        if (rule != nullptr && !rule->allow) {
            name = rule->name;
            range = fmt::format(" ({})", rule->range.text());
        }
        // Only a rule that names the address and the port opens an endpoint that is protected.
        if (rule == nullptr || !rule->configured || rule->range.length != 128 || rule->range.port == 0)
            if (auto owner = protecting(reached, port); !owner.empty()) {
                name = std::move(owner);
                range.clear();
            }
        if (name.empty()) continue;
        const auto target = address_of(reached);
        const auto via = reached == bytes_of(address) ? std::string() : fmt::format(", which reaches {}", target.to_string());
        return Error{Code::denied,
                     fmt::format("outbound rule \"{}\"{} denies {}{}", name, range, endpoint_text(address, port), via),
                     fmt::format("{}: [\"{}\"] opens it", setting_, endpoint_text(target, port))};
    }
    return Unit{};
}

Result<Unit> OutboundRules::check(const sockaddr* address) const {
    if (address->sa_family == AF_INET) {
        const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
        return check(asio::ip::address_v4(ntohl(v4->sin_addr.s_addr)), ntohs(v4->sin_port));
    }
    if (address->sa_family == AF_INET6) {
        const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
        AddressBytes bytes;
        std::memcpy(bytes.data(), &v6->sin6_addr, bytes.size());
        return check(asio::ip::address_v6(bytes), ntohs(v6->sin6_port));
    }
    return Error{Code::denied, "outbound rules know IPv4 and IPv6 only"};
}

Result<Unit> OutboundRules::check_literal(const std::string& host, std::uint16_t port) const {
    boost::system::error_code error;
    const auto address = asio::ip::make_address(host, error); // also fe80::1%eth0
    if (!error) return check(address, port);
    if (in_addr v4{}; ::inet_aton(host.c_str(), &v4) != 0) return check(asio::ip::address_v4(ntohl(v4.s_addr)), port);
    return Unit{};
}

} // namespace orrery::net
