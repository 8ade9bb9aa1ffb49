#pragma once

#include "dns/message.h"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

/// Private to DnsAnswers: an immutable snapshot of the catalog for DNS.
namespace orrery::api::consul {

using dns::Name;
using Section = dns::Writer::Section;
namespace type = dns::type;

/// The location of an instance or a node: an IPv4 address, an IPv6 address or a host name.
struct Location {
    enum class Kind { none, v4, v6, host };
    Kind kind = Kind::none;
    std::array<std::uint8_t, 4> v4{};
    std::array<std::uint8_t, 16> v6{};
    Name host;

    static Location of(const std::string& text);
    /// Has it a record of this type?
    bool answers(std::uint16_t query_type) const;
    bool write(dns::Writer& writer, Section section, const Name& owner, std::uint32_t ttl) const;
    std::string key() const; ///< equal for equal locations
};

struct Endpoint {
    Location location; ///< of the instance
    Name target;       ///< of an SRV record
    std::uint16_t port = 0, weight = 1;
    std::vector<std::string> tags; ///< in lower case
    bool own_address = false;      ///< differs from the address of the node
    std::vector<std::string> meta; ///< of the node, if the target is the node
    bool target_is_ours = true;    ///< the additional section contains its address
};
using Endpoints = std::vector<Endpoint>;

struct NodeNames {
    struct One {
        Location location;
        std::vector<std::string> meta; ///< "key=value"
    };
    std::unordered_map<std::string, One> nodes;       ///< by lower-case name
    std::unordered_map<std::string, Name> by_address; ///< for PTR
};

struct Snapshot {
    std::unordered_map<std::string, std::shared_ptr<const Endpoints>> services; ///< by lower-case name
    std::shared_ptr<const NodeNames> nodes = std::make_shared<NodeNames>();
    std::shared_ptr<const std::unordered_map<std::string, Name>> own_addresses = ///< of instances with an own address, for PTR
        std::make_shared<std::unordered_map<std::string, Name>>();
};

/// The metadata of a node as strings: "key=value".
std::vector<std::string> meta_texts(const std::map<std::string, std::string>& meta);
std::optional<std::vector<std::uint8_t>> from_hex(std::string_view text);
/// The bytes of the address of a reverse name such as "5.0.0.10.in-addr.arpa".
std::optional<std::string> reverse_address(const std::vector<std::string>& labels);

} // namespace orrery::api::consul
