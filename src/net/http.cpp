#include "net/http.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::net {

namespace {

char lower_case(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

bool same_name(std::string_view a, std::string_view b) {
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower_case(x) == lower_case(y); });
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool is_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const auto byte = static_cast<unsigned char>(text[at]);
        if (byte < 0x80) {
            ++at;
            continue;
        }
        const std::size_t length = byte >= 0xc2 && byte < 0xe0   ? 2
                                   : byte >= 0xe0 && byte < 0xf0 ? 3
                                   : byte >= 0xf0 && byte < 0xf5 ? 4
                                                                 : 0;
        if (length == 0 || at + length > text.size()) return false;
        for (std::size_t next = 1; next < length; ++next)
            if ((static_cast<unsigned char>(text[at + next]) & 0xc0) != 0x80) return false;
        const auto second = static_cast<unsigned char>(text[at + 1]);
        // Overlong forms, surrogates and what is beyond Unicode.
        if ((byte == 0xe0 && second < 0xa0) || (byte == 0xed && second >= 0xa0) || (byte == 0xf0 && second < 0x90) ||
            (byte == 0xf4 && second >= 0x90))
            return false;
        at += length;
    }
    return true;
}

enum class Plus { stays, is_space };

Result<std::string> percent_decode(std::string_view text, Plus plus) {
    std::string decoded;
    decoded.reserve(text.size());
    for (std::size_t at = 0; at < text.size(); ++at) {
        char c = text[at];
        if (c == '%') {
            const int high = at + 2 < text.size() ? hex_digit(text[at + 1]) : -1;
            const int low = at + 2 < text.size() ? hex_digit(text[at + 2]) : -1;
            if (high < 0 || low < 0) return Error{Code::invalid, "a '%' in the target is not followed by two hexadecimal digits"};
            c = static_cast<char>(high * 16 + low);
            if (c == '\0') return Error{Code::invalid, "the target has a NUL in it"};
            at += 2;
        } else if (c == '+' && plus == Plus::is_space) {
            c = ' ';
        }
        decoded.push_back(c);
    }
    if (!is_utf8(decoded)) return Error{Code::invalid, "the target is not UTF-8"};
    return decoded;
}

/// Removes "." and ".." segments; `invalid` where that leads above the root.
Result<std::string> without_dots(std::string path) {
    if (path.find("/.") == std::string::npos) return path;
    std::string clean;
    clean.reserve(path.size());
    for (std::size_t at = 0; at < path.size();) {
        auto next = path.find('/', at + 1);
        if (next == std::string::npos) next = path.size();
        const auto segment = std::string_view(path).substr(at, next - at); // with its slash
        const bool last = next == path.size();
        if (segment == "/.") {
            if (last) clean.push_back('/');
        } else if (segment == "/..") {
            if (clean.empty()) return Error{Code::invalid, "the target climbs above the root"};
            clean.resize(clean.rfind('/'));
            if (last) clean.push_back('/');
        } else {
            clean.append(segment);
        }
        at = next;
    }
    return clean;
}

} // namespace

std::string_view Headers::get(std::string_view name) const {
    for (const auto& [key, value] : fields_)
        if (same_name(key, name)) return value;
    return {};
}

bool Headers::has(std::string_view name) const {
    return std::any_of(fields_.begin(), fields_.end(), [name](const auto& field) { return same_name(field.first, name); });
}

void Headers::set(std::string_view name, std::string value) {
    remove(name);
    fields_.emplace_back(name, std::move(value));
}

void Headers::remove(std::string_view name) {
    std::erase_if(fields_, [name](const auto& field) { return same_name(field.first, name); });
}

std::optional<std::string> Target::param(std::string_view name) const {
    for (const auto& [key, value] : query)
        if (key == name) return value;
    return {};
}

Result<Target> parse_target(std::string_view text) {
    if (!text.starts_with('/')) return Error{Code::invalid, "the target does not begin with '/'"};
    for (const char c : text)
        if (c <= ' ' || c > '~' || c == '#')
            return Error{Code::invalid, "the target has a character in it that must be percent-encoded"};

    Target target;
    const auto question = text.find('?');
    TRY(auto path, percent_decode(text.substr(0, question), Plus::stays));
    TRY(target.path, without_dots(std::move(path)));
    if (question == std::string_view::npos) return target;

    for (auto rest = text.substr(question + 1); !rest.empty();) {
        const auto pair = rest.substr(0, rest.find('&'));
        rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
        if (pair.empty()) continue;
        const auto equals = pair.find('=');
        TRY(auto name, percent_decode(pair.substr(0, equals), Plus::is_space));
        TRY(auto value, percent_decode(equals == std::string_view::npos ? "" : pair.substr(equals + 1), Plus::is_space));
        target.query.emplace_back(std::move(name), std::move(value));
    }
    return target;
}

std::string percent_encode(std::string_view text) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    std::string encoded;
    encoded.reserve(text.size());
    for (const char c : text) {
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
            c == '~') {
            encoded.push_back(c);
        } else {
            encoded.push_back('%');
            encoded.push_back(digits[static_cast<unsigned char>(c) >> 4]);
            encoded.push_back(digits[static_cast<unsigned char>(c) & 15]);
        }
    }
    return encoded;
}

Task<std::string> read_all(Context ctx, BodyReader& body, std::size_t limit) {
    std::string all;
    for (;;) {
        CO_TRY(auto piece, co_await body.read_some(ctx));
        if (piece.empty()) co_return all;
        if (piece.size() > limit - all.size())
            co_return Error{Code::too_large, fmt::format("the body is longer than {} bytes", limit)};
        if (all.empty())
            all = std::move(piece);
        else
            all += piece;
    }
}

int http_status(Code code) {
    switch (code) {
    case Code::invalid: return 400;
    case Code::unauthenticated: return 401;
    case Code::denied: return 403;
    case Code::not_found: return 404;
    case Code::conflict: return 409;
    case Code::compacted: return 410;
    case Code::too_large: return 413;
    case Code::unsupported: return 501;
    case Code::throttled: return 429;
    case Code::cancelled: return 503;
    case Code::timeout: return 504;
    case Code::unavailable: return 503;
    case Code::no_space: return 507;
    case Code::internal: return 500;
    }
    return 500;
}

std::string_view reason_phrase(int status) {
    switch (status) {
    case 100: return "Continue";
    case 101: return "Switching Protocols";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 203: return "Non-Authoritative Information";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 207: return "Multi-Status";
    case 300: return "Multiple Choices";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 303: return "See Other";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 411: return "Length Required";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 416: return "Range Not Satisfiable";
    case 417: return "Expectation Failed";
    case 421: return "Misdirected Request";
    case 422: return "Unprocessable Content";
    case 423: return "Locked";
    case 426: return "Upgrade Required";
    case 428: return "Precondition Required";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    default: return "Unknown";
    }
}

} // namespace orrery::net
