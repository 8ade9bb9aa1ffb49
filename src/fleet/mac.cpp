#include "fleet/mac.h"

namespace orrery::fleet {

std::string normalized_mac(std::string_view text) {
    constexpr std::size_t length = 17;
    if (text.size() == length + 3 && text.starts_with("01-")) text.remove_prefix(3);
    if (text.size() != length) return {};
    std::string out;
    for (std::size_t i = 0; i < length; ++i) {
        char c = text[i];
        if (i % 3 == 2) {
            if (c != ':' && c != '-') return {};
            out += ':';
            continue;
        }
        if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return {};
        out += c;
    }
    return out;
}

} // namespace orrery::fleet
