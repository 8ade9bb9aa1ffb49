#include "core/ids.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <random>
#include <sys/random.h>
#include <vector>

namespace orrery {

namespace {

void fill_random(void* data, std::size_t size) {
    auto* at = static_cast<unsigned char*>(data);
    while (size > 0) {
        const auto got = ::getrandom(at, size, 0);
        if (got < 0) std::abort(); // a kernel without randomness: nothing we make would be safe
        at += got;
        size -= static_cast<std::size_t>(got);
    }
}

std::uint64_t fast_random() {
    static thread_local std::mt19937_64 engine = [] {
        std::uint64_t seed = 0;
        fill_random(&seed, sizeof seed);
        return std::mt19937_64{seed};
    }();
    return engine();
}

constexpr std::string_view digits32 = "0123456789abcdefghjkmnpqrstvwxyz"; // Crockford's, which sorts as its values do

std::string time_part(WallTime moment) {
    auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(0, moment.time_since_epoch().count()));
    std::string out(10, '0');
    for (int i = 9; i >= 0; --i, value >>= 5U) out[static_cast<std::size_t>(i)] = digits32[value & 31U];
    return out;
}

} // namespace

std::string random_id() { return fmt::format("{:016x}", fast_random()); }

std::string random_secret(std::size_t bytes) {
    constexpr std::string_view alphabet = "abcdefghijklmnopqrstuvwxyz234567";
    std::vector<unsigned char> raw(bytes);
    fill_random(raw.data(), raw.size());
    std::string out;
    unsigned buffer = 0, bits = 0;
    for (const unsigned char byte : raw) {
        buffer = (buffer << 8U) | byte;
        bits += 8;
        while (bits >= 5) {
            bits -= 5;
            out += alphabet[(buffer >> bits) & 31U];
        }
    }
    if (bits > 0) out += alphabet[(buffer << (5 - bits)) & 31U];
    return out;
}

std::string time_ordered_id(WallTime now) {
    static std::mutex mutex;
    static WallTime last{};
    static std::uint64_t counter = 0;
    std::lock_guard lock(mutex);
    if (now > last) {
        last = now;
        counter = fast_random() >> 24U; // 40 bits, so that some room to count up is left in the 45 that are written
    } else {
        ++counter; // the clock stands still or went back: stay in order all the same
    }
    std::string tail(16, '0');
    auto count = counter;
    for (int i = 8; i >= 0; --i, count >>= 5U) tail[static_cast<std::size_t>(i)] = digits32[count & 31U];
    auto noise = fast_random();
    for (std::size_t i = 9; i < 16; ++i, noise >>= 5U) tail[i] = digits32[noise & 31U];
    return time_part(last) + tail;
}

std::string time_ordered_bound(WallTime moment) { return time_part(moment) + std::string(16, '0'); }

std::string_view nearest(std::string_view word, const std::string_view* begin, const std::string_view* end) {
    std::string_view best;
    std::size_t best_distance = word.size() / 3 + 2;
    for (const auto* candidate = begin; candidate != end; ++candidate) {
        std::vector<std::size_t> row(candidate->size() + 1);
        std::iota(row.begin(), row.end(), 0U);
        for (std::size_t i = 0; i < word.size(); ++i) {
            std::size_t corner = row[0];
            row[0] = i + 1;
            for (std::size_t j = 0; j < candidate->size(); ++j) {
                const auto above = row[j + 1];
                row[j + 1] = word[i] == (*candidate)[j] ? corner : 1 + std::min({corner, above, row[j]});
                corner = above;
            }
        }
        if (row.back() < best_distance) {
            best_distance = row.back();
            best = *candidate;
        }
    }
    return best;
}

} // namespace orrery
