#pragma once

#include "core/result.h"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::dns {

using Bytes = std::span<const std::uint8_t>;

/// A domain name in wire format, without compression. Fixed size, no allocation. Comparison ignores the case of ASCII letters.
class Name {
public:
    static constexpr std::size_t max_size = 255, max_label_size = 63;

    Name() { wire_[0] = 0; } ///< the root

    /// Parses "web.service.consul", with or without the trailing dot; "" and "." are the root. Backslashes escape as in zone files:
    /// "\." and "\065". `invalid` if a label is empty or too long.
    static Result<Name> from_text(std::string_view text);
    /// Reads the name at offset `at` of a message and moves `at` past it. False if the name is incomplete or too long, or has an
    /// unknown label type or a compression pointer that does not point backwards. `Pointers::no` rejects all pointers.
    enum class Pointers { no, yes };
    bool read(Bytes message, std::size_t& at, Pointers pointers);
    /// Appends `parent`: "web" + "service.consul". False if the result would be too long.
    bool append(const Name& parent);
    /// Prepends one label. False if the label is empty or the result would be too long.
    bool prepend(std::string_view label);

    Bytes wire() const { return {wire_.data(), size_}; }
    std::size_t size() const { return size_; }
    bool is_root() const { return size_ == 1; }
    std::size_t label_count() const;
    /// The labels from left to right. The views are valid as long as this name.
    std::vector<std::string_view> labels() const;
    /// The name without its first `count` labels.
    Name parent(std::size_t count = 1) const;
    bool is_within(const Name& zone) const;
    std::string to_text() const; ///< with escapes, without the trailing dot; "." for the root
    bool operator==(const Name& other) const;
    /// The text in lower case: a key for maps.
    std::string lowered() const;

private:
    std::array<std::uint8_t, max_size> wire_;
    std::uint8_t size_ = 1;
};

constexpr std::uint8_t lower(std::uint8_t c) { return c >= 'A' && c <= 'Z' ? static_cast<std::uint8_t>(c + 32) : c; }

} // namespace orrery::dns
