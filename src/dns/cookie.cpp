#include "dns/cookie.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace orrery::dns {

namespace {

std::uint64_t read_little(const std::uint8_t* at, std::size_t size = 8) {
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < size; ++i) out |= static_cast<std::uint64_t>(at[i]) << 8 * i;
    return out;
}

} // namespace

std::uint64_t siphash(const CookieSecret& key, Bytes bytes) {
    const auto k0 = read_little(key.data()), k1 = read_little(&key[8]);
    std::uint64_t v0 = k0 ^ 0x736f6d6570736575U, v1 = k1 ^ 0x646f72616e646f6dU, v2 = k0 ^ 0x6c7967656e657261U,
                  v3 = k1 ^ 0x7465646279746573U;
    const auto round = [&] {
        v0 += v1, v2 += v3;
        v1 = std::rotl(v1, 13) ^ v0, v3 = std::rotl(v3, 16) ^ v2;
        v0 = std::rotl(v0, 32);
        v2 += v1, v0 += v3;
        v1 = std::rotl(v1, 17) ^ v2, v3 = std::rotl(v3, 21) ^ v0;
        v2 = std::rotl(v2, 32);
    };
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
        const auto word = read_little(&bytes[at]);
        v3 ^= word;
        round(), round();
        v0 ^= word;
    }
    const auto last = read_little(bytes.data() + at, bytes.size() - at) | static_cast<std::uint64_t>(bytes.size()) << 56;
    v3 ^= last;
    round(), round();
    v0 ^= last;
    v2 ^= 0xFF;
    round(), round(), round(), round();
    return v0 ^ v1 ^ v2 ^ v3;
}

ServerCookie make_cookie(const CookieSecret& secret, Bytes client_cookie, const Client& client, std::uint32_t now) {
    std::array<std::uint8_t, 32> input{};
    std::memcpy(input.data(), client_cookie.data(), 8);
    input[8] = 1;
    for (std::size_t i = 0; i < 4; ++i) input[12 + i] = static_cast<std::uint8_t>(now >> 8 * (3 - i));
    const std::size_t address = client.v6 ? 16 : 4;
    std::memcpy(&input[16], client.address.data(), address);
    const auto hash = siphash(secret, Bytes(input).first(16 + address));
    ServerCookie out{};
    std::memcpy(out.data(), &input[8], 8);
    for (std::size_t i = 0; i < 8; ++i) out[8 + i] = static_cast<std::uint8_t>(hash >> 8 * i);
    return out;
}

CookieCheck check_cookie(std::span<const CookieSecret> secrets, Bytes client_cookie, Bytes server_cookie, const Client& client,
                         std::uint32_t now) {
    if (server_cookie.size() != 16 || server_cookie[0] != 1 || server_cookie[1] != 0 || server_cookie[2] != 0 ||
        server_cookie[3] != 0)
        return {};
    std::uint32_t made = 0;
    for (std::size_t i = 4; i < 8; ++i) made = made << 8 | server_cookie[i];
    const auto age = static_cast<std::int32_t>(now - made); // RFC 1982
    if (age > 3600 || age < -300) return {};
    for (std::size_t i = 0; i < secrets.size(); ++i) {
        const auto right = make_cookie(secrets[i], client_cookie, client, made);
        unsigned differs = 0; // constant time
        for (std::size_t k = 0; k < right.size(); ++k) differs |= static_cast<unsigned>(right[k] ^ server_cookie[k]);
        if (differs == 0) return {.valid = true, .renew = age > 1800 || age < 0 || i > 0};
    }
    return {};
}

} // namespace orrery::dns
