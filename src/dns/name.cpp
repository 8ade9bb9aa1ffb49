#include "dns/name.h"

#include "core/truncate.h"

#include <fmt/format.h>

#include <cstring>

namespace orrery::dns {

Result<Name> Name::from_text(std::string_view text) {
    const auto bad = [&](std::string_view why) {
        return Error{Code::invalid, fmt::format("\"{}\" is not a domain name: {}", truncate(text, 300), why)};
    };
    Name out;
    if (text.empty() || text == ".") return out;
    std::size_t at = 0; // offset of the current label's length byte
    std::size_t length = 0;
    const auto put = [&](std::uint8_t c) {
        if (length >= max_label_size || at + 1 + length + 1 >= max_size) return false;
        out.wire_[at + 1 + length++] = c;
        return true;
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '.') {
            if (length == 0) return bad("empty label");
            out.wire_[at] = static_cast<std::uint8_t>(length);
            at += 1 + length;
            length = 0;
            continue;
        }
        auto byte = static_cast<std::uint8_t>(c);
        if (c == '\\') {
            const auto digit = [&](std::size_t k) { return i + k < text.size() && text[i + k] >= '0' && text[i + k] <= '9'; };
            if (digit(1) && digit(2) && digit(3)) {
                const int value = (text[i + 1] - '0') * 100 + (text[i + 2] - '0') * 10 + (text[i + 3] - '0');
                if (value > 255) return bad("escape over 255");
                byte = static_cast<std::uint8_t>(value);
                i += 3;
            } else if (i + 1 < text.size()) {
                byte = static_cast<std::uint8_t>(text[++i]);
            } else {
                return bad("trailing backslash");
            }
        }
        if (!put(byte)) return bad("name over 255 bytes or label over 63 bytes");
    }
    if (length > 0) {
        out.wire_[at] = static_cast<std::uint8_t>(length);
        at += 1 + length;
    }
    out.wire_[at] = 0;
    out.size_ = static_cast<std::uint8_t>(at + 1);
    return out;
}

bool Name::read(Bytes message, std::size_t& at, Pointers pointers) {
    std::size_t here = at, length = 0, barrier = at;
    bool jumped = false;
    for (;;) {
        if (here >= message.size()) return false;
        const auto c = message[here];
        if (c == 0) {
            wire_[length++] = 0;
            if (!jumped) at = here + 1;
            size_ = static_cast<std::uint8_t>(length);
            return true;
        }
        if ((c & 0xC0) == 0xC0) {
            if (pointers == Pointers::no || here + 1 >= message.size()) return false;
            const std::size_t target = static_cast<std::size_t>(c & 0x3F) << 8 | message[here + 1];
            // RFC 1035 section 4.1.4: to a prior occurrence. Each pointer must lead before the last one, so the loop ends.
            if (target >= barrier) return false;
            if (!jumped) at = here + 2;
            jumped = true;
            barrier = target;
            here = target;
            continue;
        }
        if ((c & 0xC0) != 0) return false;
        if (here + 1 + c > message.size() || length + 1 + c + 1 > max_size) return false;
        std::memcpy(&wire_[length], &message[here], 1U + c);
        length += 1U + c;
        here += 1U + c;
    }
}

bool Name::append(const Name& parent) {
    if (size_ - 1U + parent.size_ > max_size) return false;
    std::memcpy(&wire_[size_ - 1U], parent.wire_.data(), parent.size_);
    size_ = static_cast<std::uint8_t>(size_ - 1U + parent.size_);
    return true;
}

bool Name::prepend(std::string_view label) {
    if (label.empty() || label.size() > max_label_size || size_ + 1U + label.size() > max_size) return false;
    std::memmove(&wire_[1 + label.size()], wire_.data(), size_);
    wire_[0] = static_cast<std::uint8_t>(label.size());
    std::memcpy(&wire_[1], label.data(), label.size());
    size_ = static_cast<std::uint8_t>(size_ + 1U + label.size());
    return true;
}

std::size_t Name::label_count() const {
    std::size_t count = 0;
    for (std::size_t at = 0; wire_[at] != 0; at += 1U + wire_[at]) ++count;
    return count;
}

std::vector<std::string_view> Name::labels() const {
    std::vector<std::string_view> out;
    for (std::size_t at = 0; wire_[at] != 0; at += 1U + wire_[at])
        out.emplace_back(reinterpret_cast<const char*>(&wire_[at + 1]), wire_[at]);
    return out;
}

Name Name::parent(std::size_t count) const {
    std::size_t at = 0;
    while (count-- > 0 && wire_[at] != 0) at += 1U + wire_[at];
    Name out;
    out.size_ = static_cast<std::uint8_t>(size_ - at);
    std::memcpy(out.wire_.data(), &wire_[at], out.size_);
    return out;
}

bool Name::operator==(const Name& other) const {
    if (size_ != other.size_) return false;
    // Label lengths are at most 63, below 'A', so `lower` does not change them.
    for (std::size_t i = 0; i < size_; ++i)
        if (lower(wire_[i]) != lower(other.wire_[i])) return false;
    return true;
}

bool Name::is_within(const Name& zone) const {
    const auto mine = label_count(), theirs = zone.label_count();
    return mine >= theirs && parent(mine - theirs) == zone;
}

std::string Name::to_text() const {
    if (is_root()) return ".";
    std::string out;
    for (std::size_t at = 0; wire_[at] != 0; at += 1U + wire_[at]) {
        if (!out.empty()) out += '.';
        for (std::size_t i = at + 1; i <= at + wire_[at]; ++i) {
            const auto c = wire_[i];
            if (c == '.' || c == '\\')
                out += fmt::format("\\{}", static_cast<char>(c));
            else if (c <= ' ' || c >= 0x7f)
                out += fmt::format("\\{:03}", c);
            else
                out += static_cast<char>(c);
        }
    }
    return out;
}

std::string Name::lowered() const {
    auto text = to_text();
    for (char& c : text) c = static_cast<char>(lower(static_cast<std::uint8_t>(c)));
    return text;
}

} // namespace orrery::dns
