#pragma once

#include "jobs/output.h"

#include <fmt/format.h>

#include <cstring>

/// Private to the output logs: the format of their bytes, in files and in the store.
namespace orrery::jobs {

/// A frame: kind, offset of its end in the attempt's stream (8 bytes), length (4), bytes. Little-endian.
constexpr std::size_t frame_head = 13;
constexpr std::size_t max_frame = 8u << 20;
/// A frame without bytes. Its offset is the wall clock in milliseconds at which the next frames were received, or later.
constexpr char time_mark = 't';
constexpr auto time_mark_interval = std::chrono::milliseconds(100);

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
/// Nothing where the bytes are not the head of a frame.
inline std::optional<FrameHead> frame_head_of(std::string_view bytes) {
    if (bytes.size() < frame_head || std::memchr("oesnt", bytes[0], 5) == nullptr) return {};
    FrameHead head{bytes[0], get_bytes(bytes.substr(1), 8), get_bytes(bytes.substr(9), 4)};
    if (head.length > max_frame) return {};
    return head;
}

/// Counts a complete frame.
inline void count_frame(OutputLog::StoredOutput& stored, const FrameHead& head, std::string_view bytes) {
    constexpr std::size_t max_line = 1 << 20;
    stored.size += frame_head + head.length;
    auto& at = stored.offsets;
    if (head.kind == 'e') at.err = head.end;
    if (head.kind != 'o') return;
    at.out = head.end;
    const auto line = bytes.rfind('\n');
    if (line != std::string_view::npos) at.line.clear();
    at.line += bytes.substr(line + 1);
    if (at.line.size() > max_line) at.line.resize(max_line);
}

/// Steps of earlier versions have their message in the field "words". In JSON text that key cannot occur within a value, where its
/// quotes would be escaped.
inline std::string current_step(std::string json) {
    constexpr std::string_view old_key = ",\"words\":", key = ",\"message\":";
    if (const auto at = json.find(old_key); at != std::string::npos) json.replace(at, old_key.size(), key);
    return json;
}

/// Joins frames to the pieces of a page.
class PageBuilder {
public:
    void add(const FrameHead& head, std::string bytes) {
        if (head.kind == time_mark)
            time_ = WallTime(std::chrono::milliseconds(static_cast<std::int64_t>(head.end)));
        else if (!page.pieces.empty() && page.pieces.back().kind == head.kind && page.pieces.back().time == time_ &&
                 head.kind != 's')
            page.pieces.back().bytes += bytes;
        else
            page.pieces.push_back({head.kind, head.kind == 's' ? current_step(std::move(bytes)) : std::move(bytes), time_});
    }
    OutputLog::Page page;

private:
    std::optional<WallTime> time_;
};

inline Error invalid_position(std::uint64_t from) {
    return Error{Code::invalid, fmt::format("{} is not a position in this output", from), "pass the \"next\" of the last page"};
}

} // namespace orrery::jobs
