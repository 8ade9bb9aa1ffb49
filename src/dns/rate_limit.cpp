#include "dns/rate_limit.h"

#include "core/digest.h"

#include <algorithm>
#include <chrono>

namespace orrery::dns {

namespace {
// A cell packs a tag of the network (20 bits), the recent usage in 1/256 responses (24 bits), and the time of the last update in
// units of 4 ms (20 bits: over an hour).
constexpr std::size_t buckets = 1U << 14, ways = 4;
constexpr std::uint64_t used_bits = 24, when_bits = 20, one_response = 256;
constexpr std::uint64_t used_mask = (1ULL << used_bits) - 1, when_mask = (1ULL << when_bits) - 1;
constexpr std::uint64_t tick_ms = 4;
} // namespace

RateLimit::RateLimit(Options options)
    : options_(std::move(options)),
      burst_(std::min<std::uint64_t>((options_.burst > 0 ? options_.burst : std::uint64_t{options_.per_second} * 5 / 2 + 1) *
                                         one_response,
                                     used_mask - 2 * one_response)) {
    if (is_enabled()) cells_ = std::make_unique<std::atomic<std::uint64_t>[]>(buckets * ways);
}

RateLimit::Action RateLimit::check(const Client& client, Kind kind, SteadyTime now, std::uint64_t random) {
    if (!is_enabled()) return Action::answer;
    for (const auto& prefix : options_.exempt)
        if (contains(prefix, client.address, client.v6)) return Action::answer;
    const auto hash = mix_bits(network_hash(client.address, client.v6, client.v6 ? options_.prefix_v6 : options_.prefix_v4) +
                               static_cast<std::uint64_t>(kind));
    auto* bucket = &cells_[(hash & (buckets - 1)) * ways];
    const auto tag = hash >> 44;
    const auto tick =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count()) /
            tick_ms &
        when_mask;
    const auto used_now = [&](std::uint64_t cell) {
        const auto used = cell >> when_bits & used_mask, passed = (tick - (cell & when_mask)) & when_mask;
        const auto earned = passed * options_.per_second * one_response * tick_ms / 1000;
        return earned >= used ? 0 : used - earned;
    };
    for (;;) {
        // The cell of this network, otherwise the one with the lowest usage.
        std::size_t at = 0;
        std::uint64_t seen = 0, used = ~0ULL;
        for (std::size_t i = 0; i < ways; ++i) {
            const auto cell = bucket[i].load(std::memory_order_relaxed);
            const auto level = used_now(cell);
            const bool is_own = cell != 0 && cell >> (used_bits + when_bits) == tag;
            if (is_own || level < used) at = i, seen = cell, used = level;
            if (is_own) break;
        }
        const bool is_own = seen != 0 && seen >> (used_bits + when_bits) == tag;
        if (!is_own) used = 0;
        const bool over = used + one_response > burst_;
        const auto next = tag << (used_bits + when_bits) | (over ? used : used + one_response) << when_bits | tick;
        if (over && used == (seen >> when_bits & used_mask)) {
            if (options_.slip > 0 && random % options_.slip == 0) return Action::truncate;
            return Action::drop;
        }
        if (!bucket[at].compare_exchange_weak(seen, next, std::memory_order_relaxed)) continue;
        if (!over) return Action::answer;
        return options_.slip > 0 && random % options_.slip == 0 ? Action::truncate : Action::drop;
    }
}

} // namespace orrery::dns
