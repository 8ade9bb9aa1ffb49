#include "jobs/secrets.h"

#include "core/truncate.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <algorithm>

namespace orrery::jobs {

std::string with_secrets(std::string_view text, const Secrets& secrets) {
    constexpr std::string_view opening = "${secret.";
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const auto rest = text.substr(at);
        if (rest.front() != '$') {
            const auto plain = rest.substr(0, rest.find('$'));
            out += plain;
            at += plain.size();
            continue;
        }
        const auto end = rest.find('}');
        const auto found = rest.starts_with(opening) && end != rest.npos
                               ? secrets.find(rest.substr(opening.size(), end - opening.size()))
                               : secrets.end();
        if (found != secrets.end()) {
            out += found->second;
            at += end + 1;
        } else {
            out += '$';
            at += rest.starts_with("$$") ? 2 : 1;
        }
    }
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

void MaskedTail::add(std::string_view bytes) {
    constexpr std::size_t kept = 8000;
    while (!bytes.empty()) {
        const auto piece = bytes.substr(0, 64 << 10);
        bytes.remove_prefix(piece.size());
        tail_ += masker_.feed(held_, piece);
        if (tail_.size() > kept) tail_.erase(0, tail_.size() - kept);
    }
}

std::string MaskedTail::last_line() const {
    const auto all = text();
    std::string_view rest(all);
    while (!rest.empty() && static_cast<unsigned char>(rest.back()) <= ' ') rest.remove_suffix(1);
    const auto start = rest.rfind('\n');
    return std::string(truncate(rest.substr(start == std::string_view::npos ? 0 : start + 1), 300));
}

} // namespace orrery::jobs
