#include "drivers/ldap/ldap_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace orrery::drivers {

std::string escape_filter(std::string_view value) {
    std::string out;
    for (const char c : value) {
        const auto byte = static_cast<unsigned char>(c);
        // RFC 4515 requires NUL ( ) * and backslash to be escaped. Control characters and bytes beyond ASCII may be escaped; then
        // every server accepts them.
        if (byte < 0x20 || byte >= 0x7f || c == '(' || c == ')' || c == '*' || c == '\\')
            fmt::format_to(std::back_inserter(out), "\\{:02x}", byte);
        else
            out += c;
    }
    return out;
}

std::string fill_filter(std::string_view pattern, std::string_view user, std::string_view dn) {
    std::string out;
    while (!pattern.empty()) {
        if (pattern.starts_with("{user}")) {
            out += escape_filter(user);
            pattern.remove_prefix(6);
        } else if (pattern.starts_with("{dn}")) {
            out += escape_filter(dn);
            pattern.remove_prefix(4);
        } else {
            out += pattern.front();
            pattern.remove_prefix(1);
        }
    }
    return out;
}

std::string first_value(std::string_view dn) {
    const auto equals = dn.find('=');
    if (equals == std::string_view::npos) return {};
    std::size_t end = equals + 1;
    while (end < dn.size() && dn[end] != ',' && dn[end] != '+') end += dn[end] == '\\' ? 2 : 1;
    return std::string(dn.substr(equals + 1, std::min(end, dn.size()) - equals - 1));
}

} // namespace orrery::drivers
