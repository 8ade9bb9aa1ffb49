#include "core/truncate.h"
#include "dns/rdata.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <map>
#include <optional>

/// Service bindings: parses and formats the RDATA of SVCB and HTTPS records (RFC 9460).
namespace orrery::dns {

namespace {

enum class ValueType { keys, protocols, none, port, ipv4, base64, ipv6, text };
struct ServiceKey {
    std::string_view name;
    std::uint16_t number;
    ValueType type;
};
constexpr std::uint16_t key_mandatory = 0, key_alpn = 1, key_no_default_alpn = 2;
constexpr std::array service_keys{
    ServiceKey{"mandatory", key_mandatory, ValueType::keys},
    ServiceKey{"alpn", key_alpn, ValueType::protocols},
    ServiceKey{"no-default-alpn", key_no_default_alpn, ValueType::none},
    ServiceKey{"port", 3, ValueType::port},
    ServiceKey{"ipv4hint", 4, ValueType::ipv4},
    ServiceKey{"ech", 5, ValueType::base64},
    ServiceKey{"ipv6hint", 6, ValueType::ipv6},
    ServiceKey{"dohpath", 7, ValueType::text},
    ServiceKey{"ohttp", 8, ValueType::none},
};
constexpr std::uint16_t invalid_key = 65535;

const ServiceKey* find_key(std::uint16_t number) {
    const auto* at = std::find_if(service_keys.begin(), service_keys.end(), [&](const auto& one) { return one.number == number; });
    return at == service_keys.end() ? nullptr : at;
}

ValueType type_of(std::uint16_t key) {
    const auto* known = find_key(key);
    return known == nullptr ? ValueType::text : known->type;
}

std::string key_name(std::uint16_t number) {
    const auto* known = find_key(number);
    return known == nullptr ? fmt::format("key{}", number) : std::string(known->name);
}

std::optional<std::uint16_t> key_number(std::string_view name) {
    for (const auto& known : service_keys)
        if (known.name == name) return known.number;
    std::uint16_t out = 0;
    if (!name.starts_with("key")) return std::nullopt;
    const auto* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + 3, end, out);
    const bool canonical = name.size() == 4 || (name.size() > 4 && name[3] != '0');
    return error == std::errc{} && stop == end && canonical && out != invalid_key ? std::optional(out) : std::nullopt;
}

/// The items of a comma-separated list; a backslash escapes a comma.
std::vector<std::string> items_of(std::string_view text) {
    std::vector<std::string> out(1);
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == ',')
            out.emplace_back();
        else if (text[i] == '\\' && i + 1 < text.size())
            out.back() += text[++i];
        else
            out.back() += text[i];
    }
    return out;
}

using Value = std::vector<std::uint8_t>;
using Parameters = std::map<std::uint16_t, Value>;

bool append_address(Value& out, const std::string& text, bool v6) {
    std::array<std::uint8_t, 16> address{};
    if (::inet_pton(v6 ? AF_INET6 : AF_INET, text.c_str(), address.data()) != 1) return false;
    out.insert(out.end(), address.begin(), address.begin() + (v6 ? 16 : 4));
    return true;
}

Result<Value> value_of(std::uint16_t key, const std::string& text) {
    Value out;
    const auto invalid = [&](std::string_view wanted) {
        return Error{Code::invalid, fmt::format("{} must be {}, got \"{}\"", key_name(key), wanted, truncate(text, 100))};
    };
    switch (type_of(key)) {
    case ValueType::keys: {
        std::vector<std::uint16_t> keys;
        for (const auto& item : items_of(text)) {
            const auto number = key_number(item);
            if (!number || *number == key_mandatory) return invalid("a list of other keys, such as alpn,port");
            keys.push_back(*number);
        }
        std::sort(keys.begin(), keys.end());
        if (std::adjacent_find(keys.begin(), keys.end()) != keys.end()) return invalid("a list with no key twice");
        for (const auto number : keys) append_integer(out, number, 2);
        return out;
    }
    case ValueType::protocols:
        for (const auto& item : items_of(text)) {
            if (item.empty() || item.size() > 255) return invalid("a list of protocols, such as h2,h3");
            out.push_back(static_cast<std::uint8_t>(item.size()));
            out.insert(out.end(), item.begin(), item.end());
        }
        return out;
    case ValueType::none:
        if (!text.empty()) return invalid("without a value");
        return out;
    case ValueType::port: {
        std::uint16_t port = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
        if (error != std::errc{} || end != text.data() + text.size()) return invalid("a port from 0 to 65535");
        append_integer(out, port, 2);
        return out;
    }
    case ValueType::ipv4:
    case ValueType::ipv6:
        for (const auto& item : items_of(text))
            if (!append_address(out, item, type_of(key) == ValueType::ipv6)) return invalid("a list of addresses of its family");
        return out;
    case ValueType::base64:
        if (!append_base64(out, text)) return invalid("base64");
        return out;
    case ValueType::text: break;
    }
    out.assign(text.begin(), text.end());
    return out;
}

/// An inconsistency between parameters; empty if there is none.
std::string problem_in(const Parameters& all) {
    if (all.contains(key_no_default_alpn) && !all.contains(key_alpn)) return "no-default-alpn needs alpn";
    if (const auto mandatory = all.find(key_mandatory); mandatory != all.end())
        for (std::size_t at = 0; at + 1 < mandatory->second.size(); at += 2) {
            const auto key = static_cast<std::uint16_t>(mandatory->second[at] << 8 | mandatory->second[at + 1]);
            if (!all.contains(key)) return fmt::format("mandatory names {}, which is missing", key_name(key));
        }
    return {};
}

bool is_valid_value(std::uint16_t key, Bytes value) {
    const auto size = value.size();
    switch (type_of(key)) {
    case ValueType::keys:
        for (std::size_t at = 0; at + 1 < size; at += 2) {
            const auto number = value[at] << 8 | value[at + 1];
            const auto before = at == 0 ? int{key_mandatory} : value[at - 2] << 8 | value[at - 1];
            if (number <= before) return false;
        }
        return size > 0 && size % 2 == 0;
    case ValueType::protocols: {
        std::size_t at = 0;
        for (; at < size; at += 1U + value[at])
            if (value[at] == 0) return false;
        return size > 0 && at == size;
    }
    case ValueType::none: return size == 0;
    case ValueType::port: return size == 2;
    case ValueType::ipv4: return size > 0 && size % 4 == 0;
    case ValueType::ipv6: return size > 0 && size % 16 == 0;
    case ValueType::base64: return size > 0;
    case ValueType::text: return true;
    }
    return true;
}

/// Decoded RDATA.
struct Binding {
    std::uint16_t priority = 0;
    Name target;
    Parameters parameters;
};

std::optional<Binding> read_svcb(Bytes data) {
    Binding out;
    if (data.size() < 3) return std::nullopt;
    out.priority = static_cast<std::uint16_t>(data[0] << 8 | data[1]);
    std::size_t at = 2;
    if (!out.target.read(data, at, Name::Pointers::no)) return std::nullopt;
    int last = -1;
    while (at < data.size()) {
        if (data.size() - at < 4) return std::nullopt;
        const auto key = static_cast<std::uint16_t>(data[at] << 8 | data[at + 1]);
        const std::size_t size = static_cast<std::size_t>(data[at + 2] << 8 | data[at + 3]);
        at += 4;
        if (key <= last || key == invalid_key || size > data.size() - at || !is_valid_value(key, data.subspan(at, size)))
            return std::nullopt;
        last = key;
        out.parameters[key].assign(data.begin() + static_cast<std::ptrdiff_t>(at),
                                   data.begin() + static_cast<std::ptrdiff_t>(at + size));
        at += size;
    }
    if (!problem_in(out.parameters).empty()) return std::nullopt;
    return out;
}

/// Formats a character string, with quotes if necessary.
std::string quoted(std::string_view text) {
    std::string out;
    bool quotes = text.empty();
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            out += fmt::format("\\{}", c);
        else if (byte < ' ' || byte >= 0x7f)
            out += fmt::format("\\{:03}", byte);
        else
            out += c;
        quotes = quotes || c == ' ' || c == ';' || c == '(' || c == ')' || c == '"';
    }
    return quotes ? fmt::format("\"{}\"", out) : out;
}

std::string value_text(std::uint16_t key, const Value& value) {
    std::vector<std::string> items;
    switch (type_of(key)) {
    case ValueType::keys:
        for (std::size_t at = 0; at < value.size(); at += 2)
            items.push_back(key_name(static_cast<std::uint16_t>(value[at] << 8 | value[at + 1])));
        break;
    case ValueType::protocols:
        for (std::size_t at = 0; at < value.size(); at += 1U + value[at]) {
            std::string item;
            for (std::size_t i = at + 1; i <= at + value[at]; ++i) {
                if (value[i] == ',' || value[i] == '\\') item += '\\';
                item += static_cast<char>(value[i]);
            }
            items.push_back(std::move(item));
        }
        break;
    case ValueType::none: return {};
    case ValueType::port: return std::to_string(value[0] << 8 | value[1]);
    case ValueType::ipv4:
    case ValueType::ipv6: {
        const std::size_t size = type_of(key) == ValueType::ipv6 ? 16 : 4;
        for (std::size_t at = 0; at < value.size(); at += size) {
            std::array<char, INET6_ADDRSTRLEN> text{};
            ::inet_ntop(size == 16 ? AF_INET6 : AF_INET, &value[at], text.data(), text.size());
            items.emplace_back(text.data());
        }
        break;
    }
    case ValueType::base64: return to_base64(value);
    case ValueType::text: return quoted(std::string_view(reinterpret_cast<const char*>(value.data()), value.size()));
    }
    return quoted(fmt::format("{}", fmt::join(items, ",")));
}

/// Parses "key", "key=value", or "key=" directly followed by a quoted value.
Result<std::pair<std::string, std::string>> parameter_at(const std::vector<ZoneToken>& tokens, std::size_t& at) {
    const auto& token = tokens[at];
    if (token.quoted) return Error{Code::invalid, "a parameter is written as key=value"};
    const auto equals = token.text.find('=');
    std::pair<std::string, std::string> out{token.text.substr(0, equals), {}};
    if (equals == std::string::npos) return out;
    auto value = token;
    value.text = token.text.substr(equals + 1);
    if (value.text.empty() && at + 1 < tokens.size()) {
        const auto& next = tokens[at + 1];
        if (next.quoted && next.line == token.line && next.column == token.column + static_cast<int>(token.text.size())) {
            value = next;
            ++at;
        }
    }
    TRY(out.second, unescape(value));
    return out;
}

} // namespace

Result<std::vector<std::uint8_t>> parse_svcb(const std::vector<ZoneToken>& tokens, const Name& origin, std::size_t& at) {
    std::vector<std::uint8_t> out;
    at = 0;
    if (tokens.size() < 2) return Error{Code::invalid, "a service binding needs a priority and a target, as in 1 . alpn=h2"};
    std::uint16_t priority = 0;
    const auto& first = tokens[0].text;
    const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), priority);
    if (error != std::errc{} || end != first.data() + first.size())
        return Error{Code::invalid, fmt::format("the priority \"{}\" must be a number from 0 to 65535", truncate(first, 100))};
    append_integer(out, priority, 2);
    at = 1;
    TRY(const auto target, parse_zone_name(tokens[1], origin));
    out.insert(out.end(), target.wire().begin(), target.wire().end());
    Parameters parameters;
    for (at = 2; at < tokens.size(); ++at) {
        TRY(const auto given, parameter_at(tokens, at));
        const auto key = key_number(given.first);
        if (!key)
            return Error{Code::invalid, fmt::format("\"{}\" is not a key: use {}, or key and its number", truncate(given.first, 64),
                                                    "mandatory, alpn, no-default-alpn, port, ipv4hint, ech, ipv6hint, dohpath")};
        if (parameters.contains(*key)) return Error{Code::invalid, fmt::format("duplicate key {}", key_name(*key))};
        TRY(parameters[*key], value_of(*key, given.second));
    }
    at = tokens.size() - 1;
    if (priority == 0 && !parameters.empty())
        return Error{Code::invalid, "a record with priority 0 is an alias and has no parameters"};
    if (auto problem = problem_in(parameters); !problem.empty()) return Error{Code::invalid, std::move(problem)};
    for (const auto& [key, value] : parameters) {
        append_integer(out, key, 2);
        append_integer(out, value.size(), 2);
        out.insert(out.end(), value.begin(), value.end());
        if (out.size() > 0xFFFF) return Error{Code::too_large, "a record holds at most 65535 bytes"};
    }
    return out;
}

bool is_svcb(Bytes data) { return read_svcb(data).has_value(); }

std::string svcb_text(Bytes data) {
    const auto binding = read_svcb(data);
    if (!binding) return {};
    auto out = fmt::format("{} {}{}", binding->priority, binding->target.to_text(), binding->target.is_root() ? "" : ".");
    for (const auto& [key, value] : binding->parameters) {
        out += " " + key_name(key);
        if (type_of(key) == ValueType::none || (value.empty() && type_of(key) == ValueType::text)) continue;
        out += "=" + value_text(key, value);
    }
    return out;
}

} // namespace orrery::dns
