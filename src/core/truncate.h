#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace orrery {

/// The longest prefix of a UTF-8 text that has at most `max_bytes` bytes and ends at a character boundary. Use it for external
/// values that a message quotes: a partial character would make the message invalid UTF-8 and a JSON response invalid.
inline std::string truncate(std::string_view text, std::size_t max_bytes) {
    if (text.size() > max_bytes)
        while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xc0U) == 0x80U) --max_bytes;
    return std::string(text.substr(0, max_bytes));
}

} // namespace orrery
