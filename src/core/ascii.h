#pragma once

#include <string>
#include <string_view>

namespace orrery {

/// The text with its ASCII letters in lower case; other bytes do not change.
inline std::string ascii_lower(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
    return out;
}

} // namespace orrery
