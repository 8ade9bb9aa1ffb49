#pragma once

#include "jobs/output.h"

#include <fmt/format.h>

#include <cstring>

/// Private to the output logs: the form of their bytes, wherever they are kept.
namespace orrery::jobs {

/// A frame: kind, end of the attempt's stream after it (8 bytes), length (4), bytes. Little-endian.
constexpr std::size_t frame_head = 13;
constexpr std::size_t longest_frame = 8u << 20;

inline void put_bytes(std::string& out, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}
inline std::uint64_t get_bytes(std::string_view from, int bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i)
        value |= std::uint64_t{static_cast<unsigned char>(from[static_cast<std::size_t>(i)])} << (8 * i);
    return value;
}

struct FrameHead {
    char kind = 'o';
    std::uint64_t end = 0;
    std::size_t length = 0;
};
/// Nothing where this is no head.
inline std::optional<FrameHead> frame_head_of(std::string_view bytes) {
    if (bytes.size() < frame_head || std::memchr("oesn", bytes[0], 4) == nullptr) return {};
    FrameHead head{bytes[0], get_bytes(bytes.substr(1), 8), get_bytes(bytes.substr(9), 4)};
    if (head.length > longest_frame) return {};
    return head;
}

/// A frame that is kept whole.
inline void count_frame(OutputLog::Kept& kept, const FrameHead& head, std::string_view bytes) {
    constexpr std::size_t longest_line = 1 << 20;
    kept.size += frame_head + head.length;
    auto& at = kept.offsets;
    if (head.kind == 'e') at.err = head.end;
    if (head.kind != 'o') return;
    at.out = head.end;
    const auto line = bytes.rfind('\n');
    if (line != std::string_view::npos) at.line.clear();
    at.line += bytes.substr(line + 1);
    if (at.line.size() > longest_line) at.line.resize(longest_line);
}

inline void add_piece(OutputLog::Page& page, char kind, std::string bytes) {
    if (!page.pieces.empty() && page.pieces.back().kind == kind && kind != 's')
        page.pieces.back().bytes += bytes;
    else
        page.pieces.push_back({kind, std::move(bytes)});
}

inline Error not_a_place(std::uint64_t from) {
    return Error{Code::invalid, fmt::format("{} is not a place in this output", from), "give what the last page gave as next"};
}

} // namespace orrery::jobs
