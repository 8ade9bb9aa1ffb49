#pragma once

#include "dns/dynamic_name.h"
#include "gslb/model/specs.h"

#include <boost/asio/ip/address.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::gslb {

/// "192.0.2.0/24" or "2001:db8::/32"; an address alone is a prefix of full length. `invalid` also if bits beyond the length are
/// set: one of the two is then a mistake.
Result<dns::Prefix> parse_prefix(std::string_view text);
std::string prefix_text(const dns::Prefix& prefix);

/// Maps clients to the client classes of one load balancer, by longest prefix match. Loop thread only, once built.
class ClientClasses {
public:
    /// Class numbers start at 1, in the order of the spec; 0 is the default class. Of two equal prefixes the later wins.
    void add(const dns::Prefix& prefix, std::uint32_t class_index) { rules_.push_back({prefix, class_index}); }
    /// The prefixes of these classes; invalid ones are skipped.
    static ClientClasses of(const std::vector<ClientClass>& classes);
    ClientClasses() = default;
    /// A large table that several load balancers share. Copies share it, too.
    explicit ClientClasses(std::shared_ptr<const dns::ClientTable> table);

    /// The class number of a client.
    std::uint32_t find(const boost::asio::ip::address& client) const;
    /// The smallest equivalent set of prefixes when class i gets answer set `choice_of[i]`: classes with the same answer set merge.
    std::vector<dns::DynamicName::ClientRule> merged(std::span<const std::uint32_t> choice_of) const;
    /// Writes the same mapping into a dynamic name, as rules or as a table.
    void write_to(std::span<const std::uint32_t> choice_of, dns::DynamicName& answers) const;
    /// May return false for equal mappings where the comparison would be expensive.
    bool same_as(const ClientClasses& other) const;
    std::size_t size() const { return rules_.size(); } ///< prefixes that are not in a shared table

private:
    struct Shared;
    std::vector<dns::DynamicName::ClientRule> rules_;
    std::shared_ptr<Shared> shared_;
};

} // namespace orrery::gslb
