#include "dns/rdata.h"

#include "core/truncate.h"
#include "dns/message.h"
#include "dns/zone_file.h"

#include <fmt/format.h>
#include <openssl/evp.h>

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
    std::string_view fields; ///< one letter per field, see below; empty: only as "\# length hex"
};
// n: name; a: IPv4; 6: IPv6; 1, 2, 4: integer of that many bytes; t: time; s: string; S: strings to the end; q: string without
// length byte; x: hex to the end; b: base64 to the end; v: service binding.
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
    KnownType{"SVCB", type::svcb, "v"},
    KnownType{"HTTPS", type::https, "v"},
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

template <class T> std::optional<T> parse_integer(std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size() && !text.empty() ? std::optional(value) : std::nullopt;
}

Error invalid_token(const ZoneToken& token, std::string_view wanted) {
    return {Code::invalid, fmt::format("\"{}\" is not a valid {}", truncate(token.text, 100), wanted)};
}

int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool append_hex(std::vector<std::uint8_t>& out, std::string_view text) {
    if (text.size() % 2 != 0) return false;
    for (std::size_t i = 0; i < text.size(); i += 2) {
        const int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
        if (high < 0 || low < 0) return false;
        out.push_back(static_cast<std::uint8_t>(high << 4 | low));
    }
    return true;
}

/// "\# 4 0A000001"
Result<std::vector<std::uint8_t>> parse_generic(const std::vector<ZoneToken>& tokens, std::size_t& at) {
    std::vector<std::uint8_t> out;
    at = std::min<std::size_t>(1, tokens.size() - 1);
    const auto length = tokens.size() > 1 ? parse_integer<std::uint16_t>(tokens[1].text) : std::nullopt;
    if (!length) return Error{Code::invalid, "\"\\#\" is followed by a length in bytes"};
    std::string hex;
    for (at = 2; at < tokens.size(); ++at) hex += tokens[at].text;
    at = tokens.size() - 1;
    if (!append_hex(out, hex)) return Error{Code::invalid, "the data after \"\\#\" and the length is hex, two digits a byte"};
    if (out.size() != *length)
        return Error{Code::invalid, fmt::format("the length is {}, but there are {} bytes", *length, out.size())};
    return out;
}

} // namespace

void append_integer(std::vector<std::uint8_t>& out, std::uint64_t value, int bytes) {
    while (bytes-- > 0) out.push_back(static_cast<std::uint8_t>(value >> 8 * bytes));
}

Result<std::string> unescape(const ZoneToken& token) {
    std::string out;
    const auto& text = token.text;
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

bool append_base64(std::vector<std::uint8_t>& out, std::string_view text) {
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
        if (++count % 4 == 0) append_integer(out, bits & 0xFFFFFF, 3);
    }
    out.resize(out.size() - padding);
    return true;
}

std::string to_base64(Bytes data) {
    std::string out(4 * ((data.size() + 2) / 3) + 1, '\0');
    out.resize(static_cast<std::size_t>(
        ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), data.data(), static_cast<int>(data.size()))));
    return out;
}

std::string type_name(std::uint16_t of) {
    for (const auto& known : known_types)
        if (known.type == of) return std::string(known.name);
    return of == type::any ? "ANY" : of == type::axfr ? "AXFR" : of == type::ixfr ? "IXFR" : fmt::format("TYPE{}", of);
}

std::uint16_t type_from_name(std::string_view name) {
    const auto wanted = upper(name);
    for (const auto& known : known_types)
        if (known.name == wanted) return known.type;
    if (wanted.starts_with("TYPE")) return parse_integer<std::uint16_t>(std::string_view(wanted).substr(4)).value_or(0);
    return 0;
}

Result<Name> parse_zone_name(const ZoneToken& token, const Name& origin) {
    if (token.quoted) return Error{Code::invalid, "a name is written without quotes"};
    if (token.text == "@") return origin;
    TRY(auto name, Name::from_text(token.text));
    // A trailing dot counts only if it is not escaped: an even number of backslashes precedes it.
    std::size_t slashes = 0;
    const bool dot = !token.text.empty() && token.text.back() == '.';
    while (dot && slashes + 1 < token.text.size() && token.text[token.text.size() - 2 - slashes] == '\\') ++slashes;
    if (dot && slashes % 2 == 0) return name;
    if (!name.append(origin)) return Error{Code::invalid, fmt::format("\"{}\" with its origin is too long for a name", token.text)};
    return name;
}

Result<std::uint32_t> parse_ttl(std::string_view text) {
    const Error bad{Code::invalid,
                    fmt::format("\"{}\" is not a valid time (0 to 2147483647 seconds, or 1h30m, 2d, 1w)", truncate(text, 50))};
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

namespace {

/// Parses the fields of a record one by one.
class RdataParser {
public:
    RdataParser(const std::vector<ZoneToken>& tokens, const Name& origin, std::size_t& at)
        : tokens_(tokens), origin_(origin), at_(at) {}

    /// Parses one field, starting at the current token; `at` is the last token that was read.
    Result<Unit> parse_field(char kind) {
        const auto& token = tokens_[at_];
        switch (kind) {
        case 'n': {
            TRY(auto name, parse_zone_name(token, origin_));
            append(name.wire());
            return Unit{};
        }
        case 'a': return parse_address(token, AF_INET);
        case '6': return parse_address(token, AF_INET6);
        case '1':
        case '2':
        case '4': return parse_number(token, kind - '0');
        case 't': {
            TRY(auto time, parse_ttl(token.text));
            append_integer(out_, time, 4);
            return Unit{};
        }
        case 's': return parse_string(token);
        case 'S':
            for (;; ++at_) {
                TRY(std::ignore, parse_string(tokens_[at_]));
                if (at_ + 1 == tokens_.size()) return Unit{};
            }
        case 'q': {
            TRY(auto text, unescape(token));
            out_.insert(out_.end(), text.begin(), text.end());
            return Unit{};
        }
        case 'x':
            if (!append_hex(out_, rest())) return Error{Code::invalid, "not valid hex (two digits per byte)"};
            return Unit{};
        case 'b':
            if (!append_base64(out_, rest())) return Error{Code::invalid, "not valid base64"};
            return Unit{};
        default: return Unit{};
        }
    }
    std::vector<std::uint8_t>& data() { return out_; }

private:
    void append(Bytes bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
    Result<Unit> parse_address(const ZoneToken& token, int family) {
        std::array<std::uint8_t, 16> address{};
        if (::inet_pton(family, token.text.c_str(), address.data()) != 1)
            return invalid_token(token, family == AF_INET ? "IPv4 address" : "IPv6 address");
        append(Bytes(address).first(family == AF_INET ? 4 : 16));
        return Unit{};
    }
    Result<Unit> parse_number(const ZoneToken& token, int bytes) {
        const auto value = parse_integer<std::uint64_t>(token.text);
        if (!value || *value >> 8 * bytes != 0)
            return invalid_token(token, fmt::format("integer from 0 to {}", (1ULL << 8 * bytes) - 1));
        append_integer(out_, *value, bytes);
        return Unit{};
    }
    Result<Unit> parse_string(const ZoneToken& token) {
        TRY(auto text, unescape(token));
        if (text.size() > 255)
            return Error{Code::invalid,
                         fmt::format("a string has {} bytes, at most 255 are allowed: split it in two", text.size())};
        out_.push_back(static_cast<std::uint8_t>(text.size()));
        out_.insert(out_.end(), text.begin(), text.end());
        return Unit{};
    }
    /// The text of all remaining tokens.
    std::string rest() {
        std::string text;
        for (; at_ < tokens_.size(); ++at_) text += tokens_[at_].text;
        at_ = tokens_.size() - 1;
        return text;
    }

    const std::vector<ZoneToken>& tokens_;
    const Name& origin_;
    std::size_t& at_;
    std::vector<std::uint8_t> out_;
};

} // namespace

Result<std::vector<std::uint8_t>> parse_rdata(std::uint16_t record_type, const std::vector<ZoneToken>& tokens, const Name& origin,
                                              std::size_t& at) {
    at = 0;
    const auto known =
        std::find_if(known_types.begin(), known_types.end(), [&](const auto& one) { return one.type == record_type; });
    if (!tokens.empty() && !tokens[0].quoted && tokens[0].text == "\\#") {
        TRY(auto data, parse_generic(tokens, at));
        if (!is_well_formed(record_type, data))
            return Error{Code::invalid, fmt::format("these bytes are not valid data of type {}", type_name(record_type))};
        return data;
    }
    if (known == known_types.end() || known->fields.empty())
        return Error{Code::unsupported,
                     fmt::format("write data of type {} as \"\\# length hex\" (RFC 3597)", type_name(record_type))};
    if (known->fields == "v") return parse_svcb(tokens, origin, at);
    RdataParser parser(tokens, origin, at);
    for (const char kind : known->fields) {
        if (at >= tokens.size()) {
            at = tokens.empty() ? 0 : tokens.size() - 1;
            return Error{Code::invalid, fmt::format("a record of type {} needs more fields", known->name)};
        }
        TRY(std::ignore, parser.parse_field(kind));
        ++at;
        if (parser.data().size() > 0xFFFF) return Error{Code::too_large, "a record holds at most 65535 bytes"};
    }
    if (at < tokens.size())
        return Error{Code::invalid, fmt::format("\"{}\" is after the last field of a record of type {}",
                                                truncate(tokens[at].text, 100), known->name)};
    if (!is_well_formed(record_type, parser.data()))
        return Error{Code::invalid, fmt::format("not valid data of type {}", known->name)};
    return std::move(parser.data());
}

bool is_well_formed(std::uint16_t record_type, Bytes data) {
    const auto known =
        std::find_if(known_types.begin(), known_types.end(), [&](const auto& one) { return one.type == record_type; });
    if (data.size() > 0xFFFF) return false;
    if (known == known_types.end() || known->fields.empty()) return true;
    if (known->fields == "v") return is_svcb(data);
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
