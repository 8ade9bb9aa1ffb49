#pragma once

#include "dns/name.h"

#include <array>
#include <cstring>
#include <string>

namespace orrery::dns {

/// A name prepared for lookup: in lower case, with the offsets of its labels and a hash of each suffix.
class NameKey {
public:
    explicit NameKey(const Name& name) : NameKey(name.wire()) {}
    explicit NameKey(Bytes wire) {
        size_ = static_cast<std::uint8_t>(wire.size());
        for (std::size_t at = 0; wire[at] != 0; at += 1U + wire[at]) labels_[count_++] = static_cast<std::uint8_t>(at);
        std::size_t done = 0;
        for (; done + 8 <= wire.size(); done += 8) {
            std::uint64_t eight = 0;
            std::memcpy(&eight, &wire[done], 8);
            eight = lower_eight(eight);
            std::memcpy(&wire_[done], &eight, 8);
        }
        for (; done < wire.size(); ++done) wire_[done] = lower(wire[done]);
        hashes_[count_] = root_hash;
        for (std::size_t i = count_; i-- > 0;)
            hashes_[i] = hash_below(hashes_[i + 1], Bytes(wire_).subspan(labels_[i], 1U + wire_[labels_[i]]));
    }

    std::size_t label_count() const { return count_; }
    std::size_t size() const { return size_; }
    /// The suffix without the first `skip` labels.
    Bytes suffix(std::size_t skip = 0) const { return Bytes(wire_).subspan(at(skip), size_ - at(skip)); }
    std::uint64_t hash(std::size_t skip = 0) const { return hashes_[skip]; }
    std::size_t at(std::size_t label) const { return label == count_ ? size_ - 1U : labels_[label]; }
    std::string text(std::size_t skip = 0) const {
        const auto bytes = suffix(skip);
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    /// The hash of a name from the hash of its parent and its first label (with the length byte).
    static std::uint64_t hash_below(std::uint64_t parent, Bytes label) {
        std::uint64_t hash = parent;
        std::size_t at = 0;
        for (; at + 8 <= label.size(); at += 8) {
            std::uint64_t piece = 0;
            std::memcpy(&piece, &label[at], 8);
            hash = folded(hash ^ piece);
        }
        return folded(hash ^ up_to_seven(label.subspan(at)) ^ label.size() << 56);
    }
    static constexpr std::uint64_t root_hash = 0x2545F4914F6CDD1DU;

private:
    /// Converts eight bytes at once: sets bit 5 of each byte from 'A' to 'Z'. Label lengths are below 'A'.
    static std::uint64_t lower_eight(std::uint64_t bytes) {
        constexpr std::uint64_t each = 0x0101010101010101U;
        const auto low = bytes & each * 0x7F;
        const auto from_a = low + each * (0x80 - 'A'), past_z = low + each * (0x80 - 'Z' - 1);
        return bytes | ((from_a & ~past_z & ~bytes & each * 0x80) >> 2);
    }
    /// Loads up to seven bytes, little endian. Avoids a memcpy call: this runs for every label of every query.
    static std::uint64_t up_to_seven(Bytes bytes) {
        const auto size = bytes.size();
        if (size >= 4) {
            std::uint32_t first = 0, last = 0;
            std::memcpy(&first, bytes.data(), 4);
            std::memcpy(&last, &bytes[size - 4], 4);
            return first | std::uint64_t{last} << 8 * (size - 4);
        }
        std::uint64_t out = 0;
        for (std::size_t i = 0; i < size; ++i) out |= std::uint64_t{bytes[i]} << 8 * i;
        return out;
    }
    static std::uint64_t folded(std::uint64_t x) {
        const auto product = static_cast<unsigned __int128>(x ^ 0x9E3779B97F4A7C15U) * 0xD6E8FEB86659FD93U;
        return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
    }

    std::array<std::uint8_t, Name::max_size> wire_;
    std::array<std::uint8_t, 128> labels_;
    std::array<std::uint64_t, 129> hashes_;
    std::size_t count_ = 0;
    std::uint8_t size_ = 0;
};

} // namespace orrery::dns
