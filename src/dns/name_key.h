#pragma once

#include "dns/draw.h"
#include "dns/name.h"

#include <array>
#include <cstring>
#include <string>

namespace orrery::dns {

/// A name as it is looked up: in lower case, with the places of its labels and a hash of each of its tails.
class NameKey {
public:
    explicit NameKey(const Name& name) : NameKey(name.wire()) {}
    explicit NameKey(Bytes wire) {
        size_ = static_cast<std::uint8_t>(wire.size());
        for (std::size_t at = 0; wire[at] != 0; at += 1U + wire[at]) labels_[count_++] = static_cast<std::uint8_t>(at);
        for (std::size_t i = 0; i < wire.size(); ++i) wire_[i] = lower(wire[i]);
        hashes_[count_] = root_hash;
        for (std::size_t i = count_; i-- > 0;)
            hashes_[i] = hash_below(hashes_[i + 1], Bytes(wire_).subspan(labels_[i], 1U + wire_[labels_[i]]));
    }

    std::size_t label_count() const { return count_; }
    std::size_t size() const { return size_; }
    /// Without the first `skip` labels.
    Bytes tail(std::size_t skip = 0) const { return Bytes(wire_).subspan(at(skip), size_ - at(skip)); }
    std::uint64_t hash(std::size_t skip = 0) const { return hashes_[skip]; }
    std::size_t at(std::size_t label) const { return label == count_ ? size_ - 1U : labels_[label]; }
    std::string text(std::size_t skip = 0) const {
        const auto bytes = tail(skip);
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    /// The hash of a label, with its length in front, below a name with this hash.
    static std::uint64_t hash_below(std::uint64_t parent, Bytes label) {
        std::uint64_t hash = parent;
        std::size_t at = 0;
        for (; at + 8 <= label.size(); at += 8) {
            std::uint64_t piece = 0;
            std::memcpy(&piece, &label[at], 8);
            hash = folded(hash ^ piece);
        }
        std::uint64_t rest = 0;
        if (at < label.size()) std::memcpy(&rest, &label[at], label.size() - at);
        return folded(hash ^ rest ^ label.size() << 56);
    }
    static constexpr std::uint64_t root_hash = 0x2545F4914F6CDD1DU;

private:
    static std::uint64_t folded(std::uint64_t x) {
        const auto product = static_cast<unsigned __int128>(x ^ 0x9E3779B97F4A7C15U) * 0xD6E8FEB86659FD93U;
        return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
    }

    std::array<std::uint8_t, Name::longest> wire_;
    std::array<std::uint8_t, 128> labels_;
    std::array<std::uint64_t, 129> hashes_;
    std::size_t count_ = 0;
    std::uint8_t size_ = 0;
};

} // namespace orrery::dns
