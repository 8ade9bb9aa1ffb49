#include "core/ids.h"

#include "core/id_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
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

std::mutex id_mutex;
WallTime last_id_time{};
std::uint64_t id_counter = 0;

void advance_ids_to(WallTime moment) {
    last_id_time = moment;
    id_counter = fast_random() >> 24U; // 40 bits, so that some room to count up is left in the 45 that are written
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
    std::lock_guard lock(id_mutex);
    if (now > last_id_time)
        advance_ids_to(now);
    else
        ++id_counter; // the clock did not advance: keep the order anyway
    std::string tail(16, '0');
    auto count = id_counter;
    for (int i = 8; i >= 0; --i, count >>= 5U) tail[static_cast<std::size_t>(i)] = digits32[count & 31U];
    auto noise = fast_random();
    for (std::size_t i = 9; i < 16; ++i, noise >>= 5U) tail[i] = digits32[noise & 31U];
    return time_part(last_id_time) + tail;
}

void continue_ids_after(std::string_view id) {
    std::uint64_t value = 0;
    if (id.size() != 26) return;
    for (const char one : id.substr(0, 10)) {
        const auto digit = digits32.find(one);
        if (digit == std::string_view::npos) return;
        value = (value << 5U) | digit;
    }
    const WallTime moment{WallTime::duration(static_cast<std::int64_t>(value))};
    std::lock_guard lock(id_mutex);
    if (moment >= last_id_time) advance_ids_to(moment + std::chrono::milliseconds(1));
}

std::string time_ordered_bound(WallTime moment) { return time_part(moment) + std::string(16, '0'); }

} // namespace orrery
