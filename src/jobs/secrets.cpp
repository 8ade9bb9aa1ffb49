#include "jobs/secrets.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <algorithm>

namespace orrery::jobs {

namespace {

constexpr std::string_view mask_mark = "(secret)";
constexpr std::size_t least_masked = 4;

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

} // namespace

std::string with_secrets(std::string_view text, const Secrets& secrets) {
    constexpr std::string_view opening = "${secret.";
    std::string out;
    std::size_t from = 0;
    for (;;) {
        const auto begin = text.find(opening, from);
        if (begin == std::string_view::npos) break;
        const auto end = text.find('}', begin);
        if (end == std::string_view::npos) break;
        const auto found = secrets.find(text.substr(begin + opening.size(), end - begin - opening.size()));
        if (found == secrets.end()) {
            out += text.substr(from, end + 1 - from);
        } else {
            out += text.substr(from, begin - from);
            out += found->second;
        }
        from = end + 1;
    }
    out += text.substr(from);
    return out;
}

boost::json::value json_with_secrets(const boost::json::value& value, const Secrets& secrets) {
    if (const auto* text = value.if_string()) return boost::json::value(with_secrets(std::string_view(*text), secrets));
    if (const auto* list = value.if_array()) {
        boost::json::array out;
        for (const auto& item : *list) out.push_back(json_with_secrets(item, secrets));
        return out;
    }
    if (const auto* object = value.if_object()) {
        boost::json::object out;
        for (const auto& [key, item] : *object) out[key] = json_with_secrets(item, secrets);
        return out;
    }
    return value;
}

Masker::Masker(const Secrets& secrets) {
    const auto add = [this](std::string needle) {
        if (needle.size() >= least_masked) needles_.push_back(std::move(needle));
    };
    for (const auto& [name, value] : secrets) {
        if (value.size() < least_masked) continue;
        add(value);
        // A secret that ends with a newline is often used without it; one of many lines leaks line by line.
        for (std::size_t begin = 0; begin < value.size();) {
            const auto end = std::min(value.find('\n', begin), value.size());
            add(value.substr(begin, end - begin));
            begin = end + 1;
        }
        for (std::size_t shift = 0; shift < 3; ++shift) add(base64_core(value, shift));
    }
    std::sort(needles_.begin(), needles_.end(),
              [](const std::string& a, const std::string& b) { return a.size() != b.size() ? a.size() > b.size() : a < b; });
    needles_.erase(std::unique(needles_.begin(), needles_.end()), needles_.end());
    if (!needles_.empty()) longest_ = needles_.front().size();
}

/// Masks `text` as far as can be decided; `used` is how many bytes of it that was. With `last` all of it is.
std::string Masker::replace(std::string_view text, bool last, std::size_t& used) const {
    std::string out;
    std::size_t at = 0;
    while (at < text.size()) {
        const auto rest = text.substr(at);
        bool undecided = false;
        const std::string* hit = nullptr;
        for (const auto& needle : needles_) {
            if (rest.starts_with(needle)) {
                hit = &needle;
                break;
            }
            if (!last && rest.size() < needle.size() && std::string_view(needle).starts_with(rest)) undecided = true;
        }
        if (undecided) break; // a longer one may yet come to match
        if (hit != nullptr) {
            out += mask_mark;
            at += hit->size();
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
    return replace(text, true, used);
}

std::string Masker::feed(std::string& held, std::string_view piece) const {
    if (needles_.empty()) return std::string(piece);
    held += piece;
    std::size_t used = 0;
    auto out = replace(held, false, used);
    held.erase(0, used);
    return out;
}

std::string Masker::finish(std::string& held) const {
    auto out = mask(held);
    held.clear();
    return out;
}

} // namespace orrery::jobs
