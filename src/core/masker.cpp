#include "core/masker.h"

#include "core/digest.h"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace orrery {

namespace {

constexpr std::string_view mask_mark = "(secret)";
constexpr std::size_t min_masked = 4;
constexpr std::size_t min_line = 12;      // of base64 broken into lines
constexpr std::size_t min_run = 16;       // of letters and digits within a secret
constexpr std::size_t min_beginning = 12; // of a secret that was cut

std::string base64_of(std::string_view bytes) {
    constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const auto at = [&](std::size_t k) { return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u; };
        const unsigned word = at(0) << 16 | at(1) << 8 | at(2);
        out += digits[word >> 18];
        out += digits[word >> 12 & 63];
        out += i + 1 < bytes.size() ? digits[word >> 6 & 63] : '=';
        out += i + 2 < bytes.size() ? digits[word & 63] : '=';
    }
    return out;
}

/// The digits of base64 that depend on `value` alone when it begins at byte `shift` (mod 3) of what is encoded.
std::string base64_core(std::string_view value, std::size_t shift) {
    const auto whole = base64_of(std::string(shift, '\0') + std::string(value));
    const std::size_t first = (shift * 8 + 5) / 6;          // the first digit made of the value's bits only
    const std::size_t end = (shift + value.size()) * 8 / 6; // the digit after the last such
    return whole.substr(first, end > first ? end - first : 0);
}

bool is_plain(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

/// `kept`: characters besides letters and digits that are not escaped.
std::string url_form(std::string_view value, std::string_view kept, std::string_view blank, HexCase letters) {
    std::string out;
    for (const char c : value) {
        if (is_plain(c) || kept.find(c) != std::string_view::npos)
            out += c;
        else if (c == ' ' && !blank.empty())
            out += blank;
        else
            out += '%' + to_hex(std::string_view(&c, 1), letters);
    }
    return out;
}

/// With every code beyond ASCII as \uXXXX.
std::string ascii_json(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const auto first = static_cast<unsigned char>(text[i]);
        const std::size_t length = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        if (length == 1 || i + length > text.size()) {
            out += text[i++];
            continue;
        }
        std::uint32_t code = first & (0xff >> (length + 1));
        for (std::size_t k = 1; k < length; ++k) code = code << 6 | (static_cast<unsigned char>(text[i + k]) & 63);
        const auto add = [&out](std::uint32_t unit) {
            const char bytes[] = {static_cast<char>(unit >> 8), static_cast<char>(unit)};
            out += "\\u" + to_hex({bytes, 2});
        };
        if (code >= 0x10000) {
            add(0xd800 + ((code - 0x10000) >> 10));
            add(0xdc00 + ((code - 0x10000) & 0x3ff));
        } else {
            add(code);
        }
        i += length;
    }
    return out;
}

std::string replaced(std::string_view text, std::initializer_list<std::pair<char, std::string_view>> by) {
    std::string out;
    for (const char c : text) {
        const auto* found = std::find_if(by.begin(), by.end(), [c](const auto& one) { return one.first == c; });
        if (found == by.end())
            out += c;
        else
            out += found->second;
    }
    return out;
}

/// The value verbatim and in all encodings; many of them are equal for simple values.
std::vector<std::string> written_forms(std::string_view value) {
    std::vector<std::string> out{std::string(value)};
    for (const auto letters : {HexCase::lower, HexCase::upper}) {
        out.push_back(to_hex(value, letters));
        for (const auto* kept : {"-._~", "-._~/", "-._~!'()*", "-._*"})
            for (const auto* blank : {"", "+"}) out.push_back(url_form(value, kept, blank, letters));
    }
    const auto quoted = boost::json::serialize(boost::json::value(value));
    const auto inner = quoted.substr(1, quoted.size() - 2);
    out.push_back(inner);
    out.push_back(ascii_json(inner));
    out.push_back(replaced(inner, {{'/', "\\/"}}));
    out.push_back(replaced(inner, {{'\\', "\\\\"}, {'"', "\\\""}})); // JSON within JSON
    out.push_back(replaced(value, {{'\'', "'\\''"}}));
    for (const auto* apostrophe : {"'", "&#39;", "&apos;"})
        out.push_back(replaced(value, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', apostrophe}}));
    return out;
}

std::vector<std::string_view> lines_of(std::string_view value) {
    std::vector<std::string_view> out;
    for (std::size_t begin = 0; begin < value.size();) {
        const auto end = std::min(value.find('\n', begin), value.size());
        out.push_back(value.substr(begin, end - begin));
        begin = end + 1;
    }
    return out;
}

std::uint32_t first_four(std::string_view text) {
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < min_masked; ++i) out = out << 8 | static_cast<unsigned char>(text[i]);
    return out;
}

std::size_t common_length(std::string_view a, std::string_view b) {
    const auto size = std::min(a.size(), b.size());
    return static_cast<std::size_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(size), b.begin()).first -
                                    a.begin());
}

} // namespace

Masker::Masker(const std::map<std::string, std::string, std::less<>>& secrets) {
    const auto add = [this](std::string needle) {
        if (needle.size() >= min_masked) needles_.push_back(std::move(needle));
    };
    for (const auto& [name, value] : secrets) {
        if (value.size() < min_masked) continue;
        for (auto& form : written_forms(value)) add(std::move(form));
        // A secret that ends with a newline is often used without it; one of many lines leaks line by line.
        for (const auto line : lines_of(value)) {
            if (line.size() >= min_masked && line.size() < value.size())
                for (auto& form : written_forms(line)) add(std::move(form));
        }
        for (std::size_t shift = 0; shift < 3; ++shift) add(base64_core(value, shift));
        // Runs of letters and digits survive all other escapes.
        for (std::size_t begin = 0, end = 0; begin < value.size(); begin = end + 1) {
            for (end = begin; end < value.size() && is_plain(value[end]);) ++end;
            if (end - begin >= min_run) add(value.substr(begin, end - begin));
        }
        // base64 and openssl break lines after 76 and 64 characters; a short last line is ambiguous.
        const auto whole = base64_core(value, 0);
        for (const std::size_t width : {76u, 64u})
            for (std::size_t at = 0; whole.size() > width && at < whole.size(); at += width)
                if (whole.size() - at >= min_line) add(whole.substr(at, width));
    }
    // The same in the alphabet for URLs.
    for (std::size_t i = 0, count = needles_.size(); i < count; ++i)
        if (auto other = needles_[i]; other.find_first_of("+/") != std::string::npos) {
            std::replace(other.begin(), other.end(), '+', '-');
            std::replace(other.begin(), other.end(), '/', '_');
            needles_.push_back(std::move(other));
        }
    std::sort(needles_.begin(), needles_.end(),
              [](const std::string& a, const std::string& b) { return a.size() != b.size() ? a.size() > b.size() : a < b; });
    needles_.erase(std::unique(needles_.begin(), needles_.end()), needles_.end());
    for (std::uint32_t i = 0; i < needles_.size(); ++i) by_first_four_[first_four(needles_[i])].push_back(i);
    if (!needles_.empty()) max_needle_ = needles_.front().size();
}

/// Masks `text` up to the first undecided byte; `used` is the number of processed bytes. With `last` all bytes are processed.
std::string Masker::replace(std::string_view text, bool last, Match match, std::size_t& used) const {
    std::string out;
    std::size_t at = 0;
    while (at < text.size()) {
        const auto rest = text.substr(at);
        if (!last && rest.size() < max_needle_ && std::any_of(needles_.begin(), needles_.end(), [rest](const std::string& needle) {
                return rest.size() < needle.size() && std::string_view(needle).starts_with(rest);
            }))
            break; // a longer secret may still match
        std::size_t hit = 0;
        if (rest.size() >= min_masked)
            if (const auto found = by_first_four_.find(first_four(rest)); found != by_first_four_.end())
                for (const auto i : found->second) {
                    const auto same = common_length(rest, needles_[i]);
                    const bool cut = match == Match::beginnings && (same >= min_beginning || same == rest.size());
                    if (same == needles_[i].size() || cut) hit = std::max(hit, same);
                }
        if (hit > 0) {
            out += mask_mark;
            at += hit;
        } else {
            out += text[at++];
        }
    }
    used = at;
    return out;
}

std::string Masker::mask(std::string_view text) const {
    if (needles_.empty()) return std::string(text);
    std::size_t used = 0;
    return replace(text, true, Match::whole, used);
}

std::string Masker::mask_cut(std::string_view text) const {
    if (needles_.empty()) return std::string(text);
    std::size_t used = 0;
    return replace(text, true, Match::beginnings, used);
}

std::string Masker::feed(std::string& pending, std::string_view piece) const {
    if (needles_.empty()) return std::string(piece);
    pending += piece;
    std::size_t used = 0;
    auto out = replace(pending, false, Match::whole, used);
    pending.erase(0, used);
    return out;
}

std::string Masker::finish(std::string& pending) const {
    auto out = mask(pending);
    pending.clear();
    return out;
}

} // namespace orrery
