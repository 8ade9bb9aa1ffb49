#pragma once

#include "core/result.h"

#include <boost/asio/ip/address.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

namespace orrery::net {

namespace asio = boost::asio;

/// An address as 16 bytes; IPv4 in mapped form (::ffff:0:0/96).
using AddressBytes = std::array<std::uint8_t, 16>;

/// A network with an optional port: 192.0.2.0/24, 192.0.2.7, 127.0.0.1:8080, fd00::/8, [::1]:8080, [fd00::/8]:443.
struct OutboundRange {
    AddressBytes network{};
    int length = 128;       ///< of `network`
    std::uint16_t port = 0; ///< 0: all ports
    std::string text() const;
    bool contains(const AddressBytes& address, std::uint16_t to) const;
    bool operator==(const OutboundRange&) const = default;
};
/// Errors: `invalid`, also when bits beyond the prefix length are set.
Result<OutboundRange> parse_outbound_range(std::string_view text);

/// The addresses that packets to `address` can reach: the address itself, and the IPv4 address that is embedded in a mapped,
/// translated, NAT64, 6to4, Teredo or ISATAP address. 0.0.0.0 and :: reach the loopback addresses.
std::vector<AddressBytes> reached_addresses(const asio::ip::address& address);

/// The addresses that this process may connect to on behalf of resources, which are data from operators and registrars. Denied by
/// default: loopback, link-local and metadata addresses, the listeners of this server, and etcd. Callers check each address after
/// name resolution and connect to the checked address, so that DNS rebinding has no effect. The most specific rule applies: the
/// longest prefix, then a rule with a port; among equal rules, configuration before built-in rules, and deny before allow. Any
/// thread.
class OutboundRules {
public:
    struct Options {
        std::vector<std::string> allow, deny;       ///< ranges
        std::string setting = "net.outbound.allow"; ///< the setting that allows addresses, for error messages
        /// Returns the addresses of the local interfaces; empty: reads them from the kernel.
        std::function<std::vector<asio::ip::address>()> local;
    };
    /// Errors: `invalid` with the range.
    static Result<std::shared_ptr<OutboundRules>> make(Options options);

    struct Endpoint {
        asio::ip::address address; ///< loopback or unspecified: all local addresses
        std::uint16_t port = 0;
    };
    /// Denies these endpoints too; replaces the endpoints of the same name.
    void protect(const std::string& name, std::vector<Endpoint> endpoints);

    /// Errors: `denied` with the rule and the setting that allows the address. Port 0: the protocol has no ports.
    Result<Unit> check(const asio::ip::address& address, std::uint16_t port) const;
    Result<Unit> check(const sockaddr* address) const;
    /// Checks a host that is an address literal in any form that resolvers accept (also 127.1 or 0x7f000001). Permits names, which
    /// are checked after resolution.
    Result<Unit> check_literal(const std::string& host, std::uint16_t port) const;

private:
    struct Rule {
        OutboundRange range;
        bool allow = false, configured = false;
        std::string name;
    };
    struct Protected {
        std::string name;
        AddressBytes address{};
        bool any_local = false;
        std::uint16_t port = 0;
    };
    OutboundRules() = default;
    const Rule* decisive(const AddressBytes& address, std::uint16_t port) const;
    std::string protecting(const AddressBytes& address, std::uint16_t port) const;

    std::vector<Rule> rules_;
    std::string setting_;
    std::function<std::vector<asio::ip::address>()> local_;
    mutable std::mutex mutex_;
    std::vector<Protected> protected_;
};
using OutboundRulesPtr = std::shared_ptr<const OutboundRules>;

/// Removes the endpoints (of Asio) that are denied. Errors: the first denial when no endpoint is left. Null rules permit all.
template <class Endpoint> Result<Unit> keep_permitted(const OutboundRules* rules, std::vector<Endpoint>& endpoints) {
    if (rules == nullptr) return Unit{};
    Result<Unit> denial = Unit{};
    std::erase_if(endpoints, [&](const Endpoint& endpoint) {
        auto checked = rules->check(endpoint.data());
        const bool denied = !checked.ok();
        if (denied && denial.ok()) denial = std::move(checked);
        return denied;
    });
    if (endpoints.empty()) return denial;
    return Unit{};
}

} // namespace orrery::net
