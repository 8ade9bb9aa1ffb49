#include "health/observation.h"

#include <algorithm>

namespace orrery::health {

std::string_view name_of(Outcome outcome) {
    switch (outcome) {
    case Outcome::ok: return "ok";
    case Outcome::warning: return "warning";
    case Outcome::local_error: return "local_error";
    case Outcome::refused: return "refused";
    case Outcome::unreachable: return "unreachable";
    case Outcome::timeout_connect: return "timeout_connect";
    case Outcome::timeout_tls: return "timeout_tls";
    case Outcome::tls_error: return "tls_error";
    case Outcome::tls_expired: return "tls_expired";
    case Outcome::timeout_read: return "timeout_read";
    case Outcome::bad_status: return "bad_status";
    case Outcome::bad_body: return "bad_body";
    case Outcome::protocol: return "protocol";
    case Outcome::dns_error: return "dns_error";
    case Outcome::failed: return "failed";
    }
    return "local_error";
}

Outcome outcome_from(std::string_view name) {
    for (int i = 0; i <= static_cast<int>(Outcome::failed); ++i)
        if (name_of(static_cast<Outcome>(i)) == name) return static_cast<Outcome>(i);
    return Outcome::local_error;
}

namespace {

/// How many bytes of a UTF-8 character begin here; 0: none that may be shown.
std::size_t character_at(std::string_view text) {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
    const auto first = byte(0);
    if (first < 0x80) return first >= ' ' && first != 0x7f ? 1 : 0;
    const std::size_t size = first >= 0xC2 && first <= 0xDF   ? 2
                             : (first & 0xF0U) == 0xE0        ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
    if (size == 0 || size > text.size()) return 0;
    for (std::size_t at = 1; at < size; ++at)
        if ((byte(at) & 0xC0U) != 0x80) return 0;
    if ((first == 0xC2 && byte(1) < 0xA0) || (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
        (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F))
        return 0;
    return size;
}

} // namespace

std::string message_with_remedy(const Error& error) {
    return error.remedy.empty() ? error.message : error.message + "; " + error.remedy;
}

std::string evidence_text(std::string_view text) {
    constexpr std::size_t max_size = 256;
    std::string out;
    while (!text.empty()) {
        const auto size = character_at(text);
        const auto piece = size > 0 ? text.substr(0, size) : std::string_view(" ");
        const bool blank = piece == " ";
        if (out.size() + piece.size() + 3 > max_size) {
            out += "...";
            return out;
        }
        if (!blank || (!out.empty() && out.back() != ' ')) out += piece;
        text.remove_prefix(std::max<std::size_t>(size, 1));
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
}

} // namespace orrery::health
