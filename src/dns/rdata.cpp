#include "dns/rdata.h"

#include "dns/message.h"
#include "dns/zone_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <optional>

namespace orrery::dns {

namespace {

struct KnownType {
    std::string_view name;
    std::uint16_t type;
    std::string_view fields; ///< see `parse_rdata`; empty: only as "\# length hex"
};
// n name, a IPv4, 6 IPv6, 1 2 4 numbers of so many bytes, t a time, s a string, S strings to the end, q a quoted or plain rest
// without length, x hex to the end, b base64 to the end, T a type.
constexpr std::array known_types{
    KnownType{"A", type::a, "a"},
    KnownType{"NS", type::ns, "n"},
    KnownType{"CNAME", type::cname, "n"},
    KnownType{"SOA", type::soa, "nn4tttt"},
    KnownType{"PTR", type::ptr, "n"},
    KnownType{"HINFO", 13, "ss"},
    KnownType{"MX", type::mx, "2n"},
    KnownType{"TXT", type::txt, "S"},
    KnownType{"RP", 17, "nn"},
    KnownType{"AFSDB", 18, "2n"},
    KnownType{"AAAA", type::aaaa, "6"},
    KnownType{"LOC", 29, ""},
    KnownType{"SRV", type::srv, "222n"},
    KnownType{"NAPTR", 35, "22sssn"},
    KnownType{"CERT", 37, "221b"},
    KnownType{"DNAME", 39, ""},
    KnownType{"DS", 43, "211x"},
    KnownType{"SSHFP", 44, "11x"},
    KnownType{"RRSIG", 46, ""},
    KnownType{"NSEC", 47, ""},
    KnownType{"DNSKEY", 48, "211b"},
    KnownType{"NSEC3", 50, ""},
    KnownType{"NSEC3PARAM", 51, ""},
    KnownType{"TLSA", 52, "111x"},
    KnownType{"SMIMEA", 53, "111x"},
    KnownType{"CDS", 59, "211x"},
    KnownType{"CDNSKEY", 60, "211b"},
    KnownType{"OPENPGPKEY", 61, "b"},
    KnownType{"SVCB", 64, ""},
    KnownType{"HTTPS", 65, ""},
    KnownType{"SPF", 99, "S"},
    KnownType{"URI", 256, "22q"},
    KnownType{"CAA", 257, "1sq"},
};

std::string upper(std::string_view text) {
    std::string out(text);
    for (auto& c : out)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
    return out;
}

template <class T> std::optional<T> number(std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size() && !text.empty() ? std::optional(value) : std::nullopt;
}

Error invalid_word(const ZoneToken& word, std::string_view wanted) {
    return {Code::invalid, fmt::format("\"{}\" is no {}", word.text.substr(0, 100), wanted)};
}

void put_number(std::vector<std::uint8_t>& out, std::uint64_t value, int bytes) {
    while (bytes-- > 0) out.push_back(static_cast<std::uint8_t>(value >> 8 * bytes));
}

/// A character string without its length: escapes undone.
Result<std::string> plain(const ZoneToken& word) {
    std::string out;
    const auto& text = word.text;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\\') {
            out += text[i];
            continue;
        }
        const auto digit = [&](std::size_t k) { return i + k < text.size() && text[i + k] >= '0' && text[i + k] <= '9'; };
        if (digit(1) && digit(2) && digit(3)) {
            const int value = (text[i + 1] - '0') * 100 + (text[i + 2] - '0') * 10 + (text[i + 3] - '0');
            if (value > 255) return Error{Code::invalid, "an escape is over 255"};
            out += static_cast<char>(value);
            i += 3;
        } else if (i + 1 < text.size()) {
            out += text[++i];
        } else {
            return Error{Code::invalid, "a string ends in a backslash"};
        }
    }
    return out;
}

int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool put_hex(std::vector<std::uint8_t>& out, std::string_view text) {
    if (text.size() % 2 != 0) return false;
    for (std::size_t i = 0; i < text.size(); i += 2) {
        const int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
        if (high < 0 || low < 0) return false;
        out.push_back(static_cast<std::uint8_t>(high << 4 | low));
    }
    return true;
}

bool put_base64(std::vector<std::uint8_t>& out, std::string_view text) {
    if (text.empty() || text.size() % 4 != 0) return false;
    std::uint32_t bits = 0;
    int count = 0;
    std::size_t padding = 0;
    for (const char c : text) {
        int value = -1;
        if (c >= 'A' && c <= 'Z') value = c - 'A';
        if (c >= 'a' && c <= 'z') value = c - 'a' + 26;
        if (c >= '0' && c <= '9') value = c - '0' + 52;
        if (c == '+') value = 62;
        if (c == '/') value = 63;
        if (c == '=' && ++padding <= 2)
            value = 0;
        else if (padding > 0)
            return false;
        if (value < 0) return false;
        bits = bits << 6 | static_cast<std::uint32_t>(value);
        if (++count % 4 == 0) put_number(out, bits & 0xFFFFFF, 3);
    }
    out.resize(out.size() - padding);
    return true;
}

/// "\# 4 0A000001"
Result<std::vector<std::uint8_t>> generic(const std::vector<ZoneToken>& words, std::size_t& at) {
    std::vector<std::uint8_t> out;
    at = std::min<std::size_t>(1, words.size() - 1);
    const auto length = words.size() > 1 ? number<std::uint16_t>(words[1].text) : std::nullopt;
    if (!length) return Error{Code::invalid, "\"\\#\" is followed by a length in bytes"};
    std::string hex;
    for (at = 2; at < words.size(); ++at) hex += words[at].text;
    at = words.size() - 1;
    if (!put_hex(out, hex)) return Error{Code::invalid, "the data after \"\\#\" and the length is hex, two digits a byte"};
    if (out.size() != *length)
        return Error{Code::invalid, fmt::format("{} bytes were announced, {} are there", *length, out.size())};
    return out;
}

} // namespace

std::string type_name(std::uint16_t of) {
    for (const auto& known : known_types)
        if (known.type == of) return std::string(known.name);
    return of == type::any ? "ANY" : of == type::axfr ? "AXFR" : of == type::ixfr ? "IXFR" : fmt::format("TYPE{}", of);
}

std::uint16_t type_named(std::string_view name) {
    const auto wanted = upper(name);
    for (const auto& known : known_types)
        if (known.name == wanted) return known.type;
    if (wanted.starts_with("TYPE")) return number<std::uint16_t>(std::string_view(wanted).substr(4)).value_or(0);
    return 0;
}

Result<Name> zone_name(const ZoneToken& word, const Name& origin) {
    if (word.quoted) return Error{Code::invalid, "a name is written without quotes"};
    if (word.text == "@") return origin;
    TRY(auto name, Name::from_text(word.text));
    // The last dot is one only where it is not escaped: an even number of backslashes before it.
    std::size_t slashes = 0;
    const bool dot = !word.text.empty() && word.text.back() == '.';
    while (dot && slashes + 1 < word.text.size() && word.text[word.text.size() - 2 - slashes] == '\\') ++slashes;
    if (dot && slashes % 2 == 0) return name;
    if (!name.append(origin)) return Error{Code::invalid, fmt::format("\"{}\" with its origin is too long for a name", word.text)};
    return name;
}

Result<std::uint32_t> zone_time(std::string_view text) {
    const Error bad{Code::invalid,
                    fmt::format("\"{}\" is no time (0 to 2147483647 seconds, or 1h30m, 2d, 1w)", text.substr(0, 50))};
    std::uint64_t sum = 0, part = 0;
    bool digits = false, unit_last = false;
    for (const char c : text) {
        if (c >= '0' && c <= '9') {
            part = part * 10 + static_cast<std::uint64_t>(c - '0');
            digits = true;
            unit_last = false;
            if (part > 0x7FFFFFFF) return bad;
            continue;
        }
        const std::uint64_t unit = c == 's' || c == 'S'   ? 1
                                   : c == 'm' || c == 'M' ? 60
                                   : c == 'h' || c == 'H' ? 3600
                                   : c == 'd' || c == 'D' ? 86400
                                   : c == 'w' || c == 'W' ? 604800
                                                          : 0;
        if (unit == 0 || !digits) return bad;
        sum += part * unit;
        part = 0;
        digits = false;
        unit_last = true;
        if (sum > 0x7FFFFFFF) return bad;
    }
    if (!digits && !unit_last) return bad;
    sum += part;
    if (sum > 0x7FFFFFFF) return bad;
    return static_cast<std::uint32_t>(sum);
}

Result<std::vector<std::uint8_t>> parse_rdata(std::uint16_t record_type, const std::vector<ZoneToken>& words, const Name& origin,
                                              std::size_t& at) {
    at = 0;
    const auto known =
        std::find_if(known_types.begin(), known_types.end(), [&](const auto& one) { return one.type == record_type; });
    if (!words.empty() && !words[0].quoted && words[0].text == "\\#") {
        TRY(auto data, generic(words, at));
        if (!is_well_formed(record_type, data))
            return Error{Code::invalid, fmt::format("these bytes are no data of type {}", type_name(record_type))};
        return data;
    }
    if (known == known_types.end() || known->fields.empty())
        return Error{Code::unsupported,
                     fmt::format("data of type {} is written as \"\\# length hex\" here (RFC 3597)", type_name(record_type))};
    std::vector<std::uint8_t> out;
    const auto joined = [&] {
        std::string text;
        for (; at < words.size(); ++at) text += words[at].text;
        at = words.size() - 1;
        return text;
    };
    for (std::size_t field = 0; field < known->fields.size(); ++field) {
        const char kind = known->fields[field];
        if (at >= words.size()) {
            at = words.empty() ? 0 : words.size() - 1;
            return Error{Code::invalid, fmt::format("a record of type {} needs more data", known->name)};
        }
        const auto& word = words[at];
        switch (kind) {
        case 'n': {
            TRY(auto name, zone_name(word, origin));
            out.insert(out.end(), name.wire().begin(), name.wire().end());
            break;
        }
        case 'a':
        case '6': {
            std::array<std::uint8_t, 16> address{};
            if (::inet_pton(kind == 'a' ? AF_INET : AF_INET6, word.text.c_str(), address.data()) != 1)
                return invalid_word(word, kind == 'a' ? "IPv4 address" : "IPv6 address");
            out.insert(out.end(), address.begin(), address.begin() + (kind == 'a' ? 4 : 16));
            break;
        }
        case '1':
        case '2':
        case '4': {
            const int bytes = kind - '0';
            const auto value = number<std::uint64_t>(word.text);
            if (!value || *value >> 8 * bytes != 0)
                return invalid_word(word, fmt::format("number from 0 to {}", (1ULL << 8 * bytes) - 1));
            put_number(out, *value, bytes);
            break;
        }
        case 't': {
            TRY(auto time, zone_time(word.text));
            put_number(out, time, 4);
            break;
        }
        case 's':
        case 'S': {
            do {
                TRY(auto text, plain(words[at]));
                if (text.size() > 255)
                    return Error{Code::invalid,
                                 fmt::format("a string has {} bytes, at most 255 are allowed: split it in two", text.size())};
                out.push_back(static_cast<std::uint8_t>(text.size()));
                out.insert(out.end(), text.begin(), text.end());
            } while (kind == 'S' && ++at < words.size());
            if (kind == 'S') --at;
            break;
        }
        case 'q': {
            TRY(auto text, plain(word));
            out.insert(out.end(), text.begin(), text.end());
            break;
        }
        case 'x':
            if (!put_hex(out, joined())) return Error{Code::invalid, "this is no hex, two digits a byte"};
            break;
        case 'b':
            if (!put_base64(out, joined())) return Error{Code::invalid, "this is no base64"};
            break;
        default: break;
        }
        ++at;
        if (out.size() > 0xFFFF) return Error{Code::too_large, "a record holds at most 65535 bytes"};
    }
    if (at < words.size())
        return Error{Code::invalid,
                     fmt::format("\"{}\" is more than a record of type {} holds", words[at].text.substr(0, 100), known->name)};
    if (!is_well_formed(record_type, out)) return Error{Code::invalid, fmt::format("these are no data of type {}", known->name)};
    return out;
}

bool is_well_formed(std::uint16_t record_type, Bytes data) {
    const auto known =
        std::find_if(known_types.begin(), known_types.end(), [&](const auto& one) { return one.type == record_type; });
    if (data.size() > 0xFFFF) return false;
    if (known == known_types.end() || known->fields.empty()) return true;
    std::size_t at = 0;
    for (const char kind : known->fields) {
        std::size_t need = 0;
        switch (kind) {
        case 'n': {
            Name name;
            if (!name.read(data, at, Name::Pointers::no)) return false;
            break;
        }
        case 'a':
        case '4':
        case 't': need = 4; break;
        case '6': need = 16; break;
        case '1': need = 1; break;
        case '2': need = 2; break;
        case 's':
        case 'S':
            do {
                if (at >= data.size() || at + 1 + data[at] > data.size()) return false;
                at += 1U + data[at];
            } while (kind == 'S' && at < data.size());
            break;
        case 'x':
        case 'b':
            if (at >= data.size()) return false;
            [[fallthrough]];
        default: at = data.size();
        }
        at += need;
        if (at > data.size()) return false;
    }
    return at == data.size();
}

} // namespace orrery::dns
