#pragma once

#include "dns/query_ring.h"
#include "dns/relaxed_counter.h"
#include "dns/signature_cache.h"

#include <array>
#include <cstdint>
#include <memory>

namespace orrery::dns {

constexpr std::size_t counted_types = 259, counted_rcodes = 24;

/// State of one answering thread, in its epoch slot (see epoch.h): only the thread that occupies the slot writes to it.
struct ThreadState {
    std::size_t slot = 0; ///< index of the epoch slot
    std::uint64_t random = 0;
    std::uint32_t rotation = 0;                              ///< response counter, for round robin
    std::unique_ptr<OnDemandSignatureCache> signature_cache; ///< allocated at first use
    std::unique_ptr<QueryRing> query_ring;                   ///< null if the query log is disabled
    std::uint32_t queries_until_logged = 0;                  ///< for sampling
    std::uint32_t signing_second = 0, signatures_this_second = 0;
    RelaxedCounter signed_on_demand, signing_limited;
    RelaxedCounter queries, tcp, truncated, rate_limited, slipped, malformed, with_client_subnet, valid_cookies;
    std::array<RelaxedCounter, counted_types> by_type;
    std::array<RelaxedCounter, counted_rcodes> by_rcode;

    std::uint64_t next_random() { // xorshift64*
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        return random * 0x2545F4914F6CDD1DU;
    }
};

/// Query counters of one zone, one cache line per epoch slot.
struct ZoneCounters {
    explicit ZoneCounters(std::size_t slot_count) : slots(slot_count) {}
    struct alignas(64) Slot {
        RelaxedCounter queries, nxdomain;
    };
    std::vector<Slot> slots;
};

} // namespace orrery::dns
