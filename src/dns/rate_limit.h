#pragma once

#include "core/clock.h"
#include "dns/choice.h"
#include "dns/server.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace orrery::dns {

/// How many answers of one kind the clients of one network get over UDP, so that forged questions cannot turn us against a victim.
/// Safe from any thread, without a lock, of fixed size.
class RateLimit {
public:
    struct Options {
        std::uint32_t per_second = 0;                ///< to each network and kind of answer; 0: no limit
        std::uint32_t burst = 0;                     ///< so many at once; 0: two and a half seconds' worth
        std::uint32_t slip = 2;                      ///< of what is over, each so-many-th is answered "ask over TCP"; 0: none
        std::uint8_t prefix_v4 = 24, prefix_v6 = 56; ///< what counts as one network
        std::vector<Prefix> exempt;
    };
    enum class Kind : std::uint8_t { positive, nodata, nxdomain, referral, error };
    enum class Verdict { answer, truncate, drop };

    explicit RateLimit(Options options);
    bool is_on() const { return options_.per_second > 0; }
    Verdict check(const Asker& asker, Kind kind, SteadyTime now, std::uint64_t random);

private:
    Options options_;
    std::uint64_t burst_;
    std::unique_ptr<std::atomic<std::uint64_t>[]> cells_;
};

/// Whether `prefix` holds this address.
bool holds(const Prefix& prefix, const std::array<std::uint8_t, 16>& address, bool v6);
/// A number for the first `bits` of an address: the same for all of one network.
std::uint64_t network_hash(const std::array<std::uint8_t, 16>& address, bool v6, unsigned bits);

} // namespace orrery::dns
