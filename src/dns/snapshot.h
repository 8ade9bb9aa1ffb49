#pragma once

#include "dns/dnssec.h"
#include "dns/message.h"
#include "dns/name_table.h"
#include "dns/thread_state.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace orrery::dns {

/// The data of a zone that responses need. Immutable.
struct ZoneView {
    std::string origin; ///< lower case, wire format
    Name name;
    Writer::Soa soa;
    std::uint32_t negative_ttl = 0;
    /// The encoded SOA record for negative responses. Its owner, and the suffixes of the names in it, are compression pointers to
    /// the zone's name within the query name; `pointer_offsets` are the positions to patch.
    std::vector<std::uint8_t> negative;
    std::array<std::uint16_t, 3> pointer_offsets{};
    std::size_t pointer_count = 0;
    std::shared_ptr<ZoneCounters> counters;
    std::shared_ptr<const SigningKey> key;   ///< null if the zone is not signed
    std::vector<std::uint8_t> soa_signature; ///< RRSIG RDATA of the SOA
};

/// Everything that responses are made from. Immutable; Authority::apply replaces it as a whole.
struct Snapshot {
    const NameTable::Root* names = nullptr;
    std::vector<std::shared_ptr<const ZoneView>> zones; ///< by zone number; null if the number is unused
    std::size_t name_count = 0;
    std::size_t max_labels = 0; ///< label count of the deepest name; lookups need not try longer suffixes
};

} // namespace orrery::dns
