#pragma once

#include "core/clock.h"
#include "dns/prefix.h"
#include "dns/server.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace orrery::dns {

/// Response rate limiting (RRL): limits UDP responses per client network and kind of response, so that spoofed queries cannot use
/// this server for a reflection attack. Lock-free, of fixed size; any thread may call `check`.
class RateLimit {
public:
    struct Options {
        std::uint32_t per_second = 0;                ///< per network and kind of response; 0: no limit
        std::uint32_t burst = 0;                     ///< 0: the responses of 2.5 seconds
        std::uint32_t slip = 2;                      ///< one of N responses over the limit is sent truncated (TC); 0: none
        std::uint8_t prefix_v4 = 24, prefix_v6 = 56; ///< prefix length of a client network
        std::vector<Prefix> exempt;
    };
    enum class Kind : std::uint8_t { positive, nodata, nxdomain, referral, error };
    enum class Action { answer, truncate, drop };

    explicit RateLimit(Options options);
    bool is_enabled() const { return options_.per_second > 0; }
    Action check(const Client& client, Kind kind, SteadyTime now, std::uint64_t random);

private:
    Options options_;
    std::uint64_t burst_;
    std::unique_ptr<std::atomic<std::uint64_t>[]> cells_;
};

} // namespace orrery::dns
