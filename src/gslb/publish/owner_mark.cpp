#include "gslb/publish/owner_mark.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace orrery::gslb {

namespace {

/// FNV-1a: detects accidental changes. Protection against forgery is pointless: a forger can write the record itself.
std::uint64_t digest_of(const RecordSet& set) {
    std::uint64_t out = 0xcbf29ce484222325ULL;
    const auto add = [&](std::string_view text) {
        for (const char c : text) out = (out ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ULL;
        out = (out ^ 0xFFU) * 0x100000001b3ULL;
    };
    add(name_of(set.type));
    add(std::to_string(set.ttl));
    for (const auto& value : set.values) add(value);
    return out;
}

constexpr std::string_view mark_begins = "orrery owner=";

} // namespace

std::string mark_of(std::string_view owner, const RecordSet& set) {
    return fmt::format("{}{} set={:016x}", mark_begins, owner, digest_of(set));
}

Ownership ownership(const RecordSet& set, std::string_view owner) {
    if (!set.mark.starts_with(mark_begins)) return set.mark.empty() ? Ownership::unmarked : Ownership::anothers;
    if (set.mark == mark_of(owner, set)) return Ownership::ours;
    return set.mark.starts_with(fmt::format("{}{} set=", mark_begins, owner)) ? Ownership::altered : Ownership::anothers;
}

bool is_owner(std::string_view text) {
    return !text.empty() && text.size() <= 40 && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    });
}

} // namespace orrery::gslb
