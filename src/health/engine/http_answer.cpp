#include "health/engine/http_answer.h"

#include <algorithm>
#include <charconv>

namespace orrery::health {

namespace {

constexpr std::size_t max_fields = 256, max_reason = 64, max_trailer = 8 << 10, max_location = 2048;
constexpr int max_interim = 8;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// -1: not a hexadecimal digit.
int hex_digit(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool is_field_name(std::string_view name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
        return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
    });
}

bool same_token(std::string_view left, std::string_view lower) {
    return left.size() == lower.size() && std::equal(left.begin(), left.end(), lower.begin(), [](char a, char b) {
               return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b;
           });
}

std::string_view without_blanks(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

/// Calls `each` with the tokens of a comma-separated list.
template <class F> void for_each_token(std::string_view list, F each) {
    for (;;) {
        const auto comma = list.find(',');
        if (const auto token = without_blanks(list.substr(0, comma)); !token.empty()) each(token);
        if (comma == std::string_view::npos) return;
        list.remove_prefix(comma + 1);
    }
}

} // namespace

void HttpAnswer::begin(Options options) {
    options_ = options;
    state_ = State::head;
    framing_ = Framing::none;
    began_ = keep_alive_ = whole_ = has_length_ = has_encoding_ = false;
    interim_ = 0;
    status_ = 0;
    left_ = seen_ = 0;
    head_.clear();
    reason_.clear();
    body_.clear();
    location_.clear();
    problem_ = {};
}

HttpAnswer::State HttpAnswer::broken(std::string_view why) {
    problem_ = why;
    return state_ = State::broken;
}

HttpAnswer::State HttpAnswer::done(bool whole) {
    whole_ = whole;
    return state_ = State::done;
}

HttpAnswer::State HttpAnswer::feed(std::string_view bytes) {
    if (!bytes.empty()) began_ = true;
    while (state_ == State::head && !bytes.empty()) feed_head(bytes);
    if (state_ == State::body)
        feed_body(bytes);
    else if (state_ == State::done && !bytes.empty())
        whole_ = false; // unrequested bytes: the next response could not be recognised
    return state_;
}

/// Removes a head from the front of `bytes`, or all bytes if the head is incomplete.
HttpAnswer::State HttpAnswer::feed_head(std::string_view& bytes) {
    constexpr std::string_view start = "HTTP/1.";
    const bool joined = !head_.empty();
    const auto before = head_.size();
    if (joined) head_.append(bytes.substr(0, max_head + 4 - std::min(before, max_head)));
    const std::string_view text = joined ? std::string_view(head_) : bytes;
    if (!start.starts_with(text.substr(0, start.size()))) return broken("no HTTP answer");
    // The end may lie across pieces. Bytes that were searched before are not searched again.
    const auto end = text.find("\r\n\r\n", before < 3 ? 0 : before - 3);
    if (end == std::string_view::npos || end + 4 > max_head) {
        if (text.size() >= max_head) return broken("an HTTP head over 32 KiB");
        if (!joined) head_.assign(bytes);
        bytes = {};
        return state_;
    }
    if (!read_head(text.substr(0, end))) return state_ = State::broken;
    bytes.remove_prefix(end + 4 - before);
    head_.clear();
    if (status_ < 200 && status_ != 101) { // an interim answer: the real one follows
        if (++interim_ > max_interim) return broken("more than 8 interim answers");
        status_ = 0;
        reason_.clear();
        location_.clear();
        has_length_ = has_encoding_ = false;
        framing_ = Framing::none;
        return state_;
    }
    if (options_.to_head || status_ == 204 || status_ == 304 || status_ == 101) {
        if (status_ == 101) keep_alive_ = false;
        return done(true);
    }
    if (has_encoding_) {
        if (has_length_) keep_alive_ = false; // RFC 9112 6.3: likely an attempt at smuggling
    } else if (has_length_) {
        framing_ = Framing::length;
        if (left_ == 0) return done(true);
    } else {
        framing_ = Framing::close;
    }
    chunk_ = Chunk::size;
    digits_ = 0;
    trailer_ = 0;
    if (framing_ == Framing::chunks) left_ = 0;
    return state_ = State::body;
}

bool HttpAnswer::read_head(std::string_view head) {
    auto line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(head.size(), line.size() + 2));
    // "HTTP/1.1 200 OK"; the reason may be missing, with or without its space.
    if (line.size() < 12 || !is_digit(line[7]) || line[8] != ' ' || !is_digit(line[9]) || !is_digit(line[10]) ||
        !is_digit(line[11]) || (line.size() > 12 && line[12] != ' ')) {
        problem_ = "no HTTP status line";
        return false;
    }
    status_ = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    if (status_ < 100) {
        problem_ = "no HTTP status line";
        return false;
    }
    keep_alive_ = line[7] != '0';
    reason_.assign(line.size() > 13 ? line.substr(13, max_reason) : std::string_view{});
    for (char& c : reason_)
        if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
    for (std::size_t fields = 0; !head.empty(); ++fields) {
        line = head.substr(0, head.find("\r\n"));
        head.remove_prefix(std::min(head.size(), line.size() + 2));
        if (fields >= max_fields) {
            problem_ = "an HTTP head of more than 256 fields";
            return false;
        }
        if (!read_field(line)) return false;
    }
    return true;
}

bool HttpAnswer::read_field(std::string_view line) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || !is_field_name(line.substr(0, colon)) ||
        line.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos) {
        problem_ = "a line in the HTTP head that is no field";
        return false;
    }
    const auto name = line.substr(0, colon), value = without_blanks(line.substr(colon + 1));
    if (same_token(name, "content-length")) {
        std::uint64_t length = 0;
        const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), length);
        if (value.empty() || error != std::errc{} || stop != value.data() + value.size() || (has_length_ && length != left_)) {
            problem_ = "an invalid Content-Length";
            return false;
        }
        has_length_ = true;
        left_ = length;
    } else if (same_token(name, "transfer-encoding")) {
        has_encoding_ = true;
        framing_ = Framing::close; // unless the last encoding is chunked, which marks the end
        for_each_token(value,
                       [&](std::string_view token) { framing_ = same_token(token, "chunked") ? Framing::chunks : Framing::close; });
    } else if (same_token(name, "connection")) {
        for_each_token(value, [&](std::string_view token) {
            if (same_token(token, "close")) keep_alive_ = false;
            if (same_token(token, "keep-alive")) keep_alive_ = true;
        });
    } else if (same_token(name, "location")) {
        location_.assign(value.substr(0, max_location));
    }
    return true;
}

void HttpAnswer::keep(std::string_view piece) {
    seen_ += piece.size();
    if (body_.size() < options_.keep) body_.append(piece.substr(0, options_.keep - body_.size()));
}

HttpAnswer::State HttpAnswer::feed_body(std::string_view bytes) {
    if (framing_ == Framing::chunks) return feed_chunks(bytes);
    if (framing_ == Framing::length) {
        const auto piece = bytes.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), left_)));
        keep(piece);
        left_ -= piece.size();
        if (left_ == 0) return done(piece.size() == bytes.size());
    } else {
        keep(bytes);
    }
    return seen_ >= options_.read ? done(false) : state_;
}

HttpAnswer::State HttpAnswer::feed_chunk_size(char c) {
    if (const int digit = hex_digit(c); digit >= 0) {
        if (++digits_ > 15) return broken("a chunk size over 15 digits");
        left_ = left_ * 16 + static_cast<unsigned>(digit);
    } else if (digits_ > 0 && c == '\r') {
        chunk_ = Chunk::size_end;
    } else if (digits_ > 0 && (c == ';' || c == ' ' || c == '\t')) {
        chunk_ = Chunk::extension;
    } else {
        return broken("a chunk without a size");
    }
    return state_;
}

HttpAnswer::State HttpAnswer::feed_trailer(char c) {
    if (chunk_ == Chunk::trailer_start) {
        chunk_ = c == '\r' ? Chunk::last_lf : Chunk::trailer;
    } else if (chunk_ == Chunk::trailer) {
        if (++trailer_ > max_trailer) return broken("trailers over 8 KiB");
        if (c == '\r') chunk_ = Chunk::trailer_lf;
    } else {
        if (c != '\n') return broken("a trailer that ends badly");
        chunk_ = Chunk::trailer_start;
    }
    return state_;
}

HttpAnswer::State HttpAnswer::feed_chunks(std::string_view bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
        const char c = bytes[at];
        switch (chunk_) {
        case Chunk::size:
            ++at;
            if (feed_chunk_size(c) == State::broken) return state_;
            break;
        case Chunk::extension:
            ++at;
            if (++trailer_ > max_trailer) return broken("chunk extensions over 8 KiB");
            if (c == '\n') return broken("a chunk size that ends badly");
            if (c == '\r') chunk_ = Chunk::size_end;
            break;
        case Chunk::size_end:
            ++at;
            if (c != '\n') return broken("a chunk size that ends badly");
            digits_ = 0;
            chunk_ = left_ == 0 ? Chunk::trailer_start : Chunk::data;
            break;
        case Chunk::data: {
            const auto piece = bytes.substr(at, static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size() - at, left_)));
            keep(piece);
            left_ -= piece.size();
            at += piece.size();
            if (left_ == 0) chunk_ = Chunk::data_cr;
            if (seen_ >= options_.read) return done(false);
            break;
        }
        case Chunk::data_cr:
            ++at;
            if (c != '\r') return broken("a chunk longer than it says");
            chunk_ = Chunk::data_lf;
            break;
        case Chunk::data_lf:
            ++at;
            if (c != '\n') return broken("a chunk longer than it says");
            chunk_ = Chunk::size;
            break;
        case Chunk::trailer_start:
        case Chunk::trailer:
        case Chunk::trailer_lf:
            ++at;
            if (feed_trailer(c) == State::broken) return state_;
            break;
        case Chunk::last_lf:
            ++at;
            if (c != '\n') return broken("a trailer that ends badly");
            return done(at == bytes.size());
        }
    }
    return state_;
}

HttpAnswer::State HttpAnswer::end() {
    if (state_ == State::body && framing_ == Framing::close) {
        keep_alive_ = false;
        return done(true);
    }
    if (state_ == State::head)
        return broken(began_ ? "the connection was closed within the head" : "the connection was closed without an answer");
    if (state_ == State::body) return broken("the connection was closed within the body");
    return state_;
}

} // namespace orrery::health
