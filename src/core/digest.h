#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

/// SHA-256, hexadecimal text, FNV-1a and splitmix64. No other file has its own version of them.
namespace orrery {

using Sha256 = std::array<unsigned char, 32>;
Sha256 sha256(std::string_view bytes);
/// The first `digits` hexadecimal digits of the SHA-256, at most 64.
std::string sha256_hex(std::string_view bytes, std::size_t digits = 64);

enum class HexCase { lower, upper };
std::string to_hex(std::string_view bytes, HexCase letters = HexCase::lower);
std::string to_hex(const Sha256& digest);

/// FNV-1a, 64 bit. Equal on all servers and after restarts. Not for protection against deliberate collisions.
class Fnv1a {
public:
    constexpr Fnv1a& add(std::string_view bytes) {
        for (const char c : bytes) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
        return *this;
    }
    /// Marks the end of a field, so that ("a", "bc") and ("ab", "c") differ.
    constexpr Fnv1a& end_field() {
        value_ = (value_ ^ 0xffU) * 0x100000001b3U;
        return *this;
    }
    constexpr std::uint64_t value() const { return value_; }

private:
    std::uint64_t value_ = 0xcbf29ce484222325U;
};
constexpr std::uint64_t fnv1a(std::string_view bytes) { return Fnv1a().add(bytes).value(); }

/// splitmix64: distributes inputs that differ in few bits over all 64 bits.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
}

} // namespace orrery
