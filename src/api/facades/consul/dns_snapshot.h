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

/// Private to DnsAnswers: the catalog as names see it, immutable once made.
namespace orrery::api::consul {

using dns::Name;
using Section = dns::Writer::Section;
namespace type = dns::type;

/// Where something is: an address of either kind, or a host name.
struct Whereabouts {
    enum class Kind { nowhere, v4, v6, host };
    Kind kind = Kind::nowhere;
    std::array<std::uint8_t, 4> v4{};
    std::array<std::uint8_t, 16> v6{};
    Name host;

    static Whereabouts of(const std::string& text);
    /// Which records of the asked type it has.
    bool answers(std::uint16_t asked) const;
    bool write(dns::Writer& writer, Section section, const Name& owner, std::uint32_t ttl) const;
    std::string key() const; ///< its bytes, or its name: the same for the same
};

struct Endpoint {
    Whereabouts where; ///< of the instance
    Name target;       ///< of an SRV record
    std::uint16_t port = 0, weight = 1;
    std::vector<std::string> tags; ///< in lower case
    bool own_address = false;      ///< not its node's
    std::vector<std::string> meta; ///< the node's, where the target is the node
    bool target_is_ours = true;    ///< its address goes into the additional section
};
using Endpoints = std::vector<Endpoint>;

struct NodeNames {
    struct One {
        Whereabouts where;
        std::vector<std::string> meta; ///< "key=value"
    };
    std::unordered_map<std::string, One> nodes;       ///< by lower-case name
    std::unordered_map<std::string, Name> by_address; ///< for PTR
};

struct Snapshot {
    std::unordered_map<std::string, std::shared_ptr<const Endpoints>> services; ///< by lower-case name
    std::shared_ptr<const NodeNames> nodes = std::make_shared<NodeNames>();
    std::shared_ptr<const std::unordered_map<std::string, Name>>
        own_addresses = ///< of instances that are not at their node, for PTR
        std::make_shared<std::unordered_map<std::string, Name>>();
};

/// Facts of a node as texts: "key=value".
std::vector<std::string> meta_words(const std::map<std::string, std::string>& meta);
std::optional<std::vector<std::uint8_t>> from_hex(std::string_view text);
/// "5.0.0.10.in-addr.arpa" as the bytes of the address.
std::optional<std::string> reverse_address(const std::vector<std::string>& labels);

} // namespace orrery::api::consul
