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

/// A domain name as it goes over the wire, without compression: labels with their lengths, then a zero. Fixed size, no allocation.
/// Compares without regard to the case of ASCII letters.
class Name {
public:
    static constexpr std::size_t longest = 255, longest_label = 63;

    Name() { wire_[0] = 0; } ///< the root

    /// "web.service.consul", with or without the last dot; "" and "." are the root. `invalid` for labels that are empty or too
    /// long. Backslashes escape as in zone files: "\." and "\065".
    static Result<Name> from_text(std::string_view text);
    /// At `at` in a message; moves `at` behind it. False for what is cut short, too long, has unknown label types, or pointers that
    /// do not point backwards. `Pointers::no` refuses all pointers: a question has none.
    enum class Pointers { no, yes };
    bool read(Bytes message, std::size_t& at, Pointers pointers);
    /// This name below `parent`: "web" + "service.consul". False if it would be too long.
    bool append(const Name& parent);
    /// One label in front. False if it is too long or empty.
    bool prepend(std::string_view label);

    Bytes wire() const { return {wire_.data(), size_}; }
    std::size_t size() const { return size_; }
    bool is_root() const { return size_ == 1; }
    std::size_t label_count() const;
    /// In order, left to right; each as long as this name.
    std::vector<std::string_view> labels() const;
    /// Without the first `count` labels.
    Name parent(std::size_t count = 1) const;
    bool is_within(const Name& zone) const;
    std::string to_text() const; ///< with escapes, without the last dot; "." for the root
    bool operator==(const Name& other) const;
    /// As it is written, with letters in lower case: a key for maps.
    std::string lowered() const;

private:
    std::array<std::uint8_t, longest> wire_;
    std::uint8_t size_ = 1;
};

constexpr std::uint8_t lower(std::uint8_t c) { return c >= 'A' && c <= 'Z' ? static_cast<std::uint8_t>(c + 32) : c; }

} // namespace orrery::dns
