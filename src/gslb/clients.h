#pragma once

#include "dns/choice.h"
#include "gslb/model.h"

#include <boost/asio/ip/address.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::gslb {

/// "192.0.2.0/24" or "2001:db8::/32"; an address alone is a prefix of its whole length. `invalid` also where bits beyond the length
/// are set, because then one of the two is not what was meant.
Result<dns::Prefix> parse_prefix(std::string_view text);
std::string prefix_text(const dns::Prefix& prefix);

/// Which class a client belongs to: by the longest prefix that holds it. Loop thread only, once it is there.
class Clients {
public:
    /// Classes count from 1 in the order of the rule's; 0 is everybody else. Of two equal prefixes the later holds.
    void add(const dns::Prefix& prefix, std::uint32_t place) { rules_.push_back({prefix, place}); }
    /// Those of the classes' prefixes; what does not read is left out.
    static Clients of(const std::vector<ClientClass>& classes);
    Clients() = default;
    /// Very many that several names share: the table leads to classes. Copies share it.
    explicit Clients(std::shared_ptr<const dns::ClientTable> table);

    std::uint32_t find(const boost::asio::ip::address& client) const;
    /// The fewest prefixes that say the same once class i gets choice_of[i]: what does not differ is not told apart.
    std::vector<dns::Tailored::Rule> merged(std::span<const std::uint32_t> choice_of) const;
    /// Writes the same into a name's answers, as rules or as a table.
    void tell_apart(std::span<const std::uint32_t> choice_of, dns::Tailored& answers) const;
    /// False also where they may be the same and it would take long to tell.
    bool same_as(const Clients& other) const;
    std::size_t size() const { return rules_.size(); } ///< prefixes that are its own

private:
    struct Shared;
    std::vector<dns::Tailored::Rule> rules_;
    std::shared_ptr<Shared> shared_;
};

} // namespace orrery::gslb
