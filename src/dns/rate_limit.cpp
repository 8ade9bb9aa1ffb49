#include "dns/rate_limit.h"

#include "dns/draw.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace orrery::dns {

namespace {
// A cell: who (20 bits), how much was used lately in 1/256 (24 bits), when that was in 4 ms (20 bits: over an hour).
constexpr std::size_t buckets = 1U << 14, ways = 4;
constexpr std::uint64_t used_bits = 24, when_bits = 20, one_answer = 256;
constexpr std::uint64_t used_mask = (1ULL << used_bits) - 1, when_mask = (1ULL << when_bits) - 1;
constexpr std::uint64_t tick_ms = 4;
} // namespace

bool holds(const Prefix& prefix, const std::array<std::uint8_t, 16>& address, bool v6) {
    if (prefix.v6 != v6) return false;
    const auto whole = static_cast<std::size_t>(prefix.length / 8), rest = static_cast<std::size_t>(prefix.length % 8);
    if (whole > 16 || std::memcmp(prefix.address.data(), address.data(), whole) != 0) return false;
    return rest == 0 || whole >= 16 || ((prefix.address[whole] ^ address[whole]) >> (8 - rest)) == 0;
}

std::uint64_t network_hash(const std::array<std::uint8_t, 16>& address, bool v6, unsigned bits) {
    std::uint64_t high = 0, low = 0;
    for (std::size_t i = 0; i < 8; ++i) {
        high = high << 8 | address[i];
        low = low << 8 | address[i + 8];
    }
    if (bits < 64) {
        high = bits == 0 ? 0 : high >> (64 - bits);
        low = 0;
    } else if (bits < 128) {
        low = bits == 64 ? 0 : low >> (128 - bits);
    }
    return mixed(mixed(high) ^ low ^ (v6 ? 0x6666000000000000U : 0));
}

RateLimit::RateLimit(Options options)
    : options_(std::move(options)),
      burst_(std::min<std::uint64_t>((options_.burst > 0 ? options_.burst : std::uint64_t{options_.per_second} * 5 / 2 + 1) *
                                         one_answer,
                                     used_mask - 2 * one_answer)) {
    if (is_on()) cells_ = std::make_unique<std::atomic<std::uint64_t>[]>(buckets * ways);
}

RateLimit::Verdict RateLimit::check(const Asker& asker, Kind kind, SteadyTime now, std::uint64_t random) {
    if (!is_on()) return Verdict::answer;
    for (const auto& prefix : options_.exempt)
        if (holds(prefix, asker.address, asker.v6)) return Verdict::answer;
    const auto hash = mixed(network_hash(asker.address, asker.v6, asker.v6 ? options_.prefix_v6 : options_.prefix_v4) +
                            static_cast<std::uint64_t>(kind));
    auto* bucket = &cells_[(hash & (buckets - 1)) * ways];
    const auto tag = hash >> 44;
    const auto tick =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count()) /
            tick_ms &
        when_mask;
    const auto used_now = [&](std::uint64_t cell) {
        const auto used = cell >> when_bits & used_mask, passed = (tick - (cell & when_mask)) & when_mask;
        const auto earned = passed * options_.per_second * one_answer * tick_ms / 1000;
        return earned >= used ? 0 : used - earned;
    };
    for (;;) {
        // Ours, or else the one that was used the least.
        std::size_t at = 0;
        std::uint64_t seen = 0, used = ~0ULL;
        for (std::size_t i = 0; i < ways; ++i) {
            const auto cell = bucket[i].load(std::memory_order_relaxed);
            const auto level = used_now(cell);
            const bool ours = cell != 0 && cell >> (used_bits + when_bits) == tag;
            if (ours || level < used) at = i, seen = cell, used = level;
            if (ours) break;
        }
        const bool ours = seen != 0 && seen >> (used_bits + when_bits) == tag;
        if (!ours) used = 0;
        const bool over = used + one_answer > burst_;
        const auto next = tag << (used_bits + when_bits) | (over ? used : used + one_answer) << when_bits | tick;
        if (over && used == (seen >> when_bits & used_mask)) {
            if (options_.slip > 0 && random % options_.slip == 0) return Verdict::truncate;
            return Verdict::drop;
        }
        if (!bucket[at].compare_exchange_weak(seen, next, std::memory_order_relaxed)) continue;
        if (!over) return Verdict::answer;
        return options_.slip > 0 && random % options_.slip == 0 ? Verdict::truncate : Verdict::drop;
    }
}

} // namespace orrery::dns
