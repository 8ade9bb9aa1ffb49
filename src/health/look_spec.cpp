#include "health/look_spec.h"

#include "core/clock.h"
#include "health/more_probes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <unistd.h>

namespace orrery::health {

namespace {

enum class Type { text, number, real, flag, texts, map, duration };

/// A field that looks may have, and the kinds it means something to.
struct LookField {
    std::string_view name;
    Type type;
    std::string_view kinds;          ///< separated by spaces, with one before and after
    std::size_t least = 0, most = 0; ///< length of a text or list, or the number itself
};

constexpr LookField look_fields[] = {
    {"port", Type::number, " tcp tls http https grpc udp dns ", 1, 65535},
    {"host", Type::text, " tls http https grpc ", 1, 253},
    {"verify", Type::flag, " tls https "},
    {"least_left", Type::duration, " tls https "},
    {"path", Type::text, " http https ", 1, 2048},
    {"method", Type::text, " http https ", 1, 16},
    {"headers", Type::map, " http https ", 0, 32},
    {"body", Type::text, " http https ", 0, 65536},
    {"expect", Type::text, " http https ", 3, 256},
    {"reuse", Type::flag, " http https "},
    {"follow_redirects", Type::number, " http https ", 0, 10},
    {"send", Type::text, " tcp udp ", 0, 4096},
    {"contains", Type::text, " tcp http https udp dns ", 1, 1024},
    {"matches", Type::text, " tcp http https udp ", 1, 1024},
    {"service", Type::text, " grpc ", 0, 256},
    {"secure", Type::flag, " grpc "},
    {"name", Type::text, " dns ", 1, 254},
    {"type", Type::text, " dns ", 1, 8},
    {"rcode", Type::number, " dns ", 0, 23},
    {"authoritative", Type::flag, " dns "},
    {"command", Type::texts, " plugin exec ", 1, 64},
    {"source", Type::text, " octavia prometheus ", 1, 253},
    {"id", Type::text, " octavia ", 1, 64},
    {"query", Type::text, " prometheus ", 1, 4096},
    {"label", Type::text, " prometheus ", 1, 128},
    {"least", Type::real, " prometheus "},
    {"most", Type::real, " prometheus "},
    {"ttl", Type::duration, " push "},
};

bool means_something(const LookField& field, std::string_view kind) {
    return field.kinds.find(fmt::format(" {} ", kind)) != std::string_view::npos;
}

std::string look_text(const json::object& spec, std::string_view key) {
    const auto* value = spec.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}

std::optional<std::int64_t> look_number(const json::object& spec, std::string_view key) {
    const auto* value = spec.if_contains(key);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    boost::system::error_code error;
    const auto number = value->to_number<std::int64_t>(error);
    return error ? std::nullopt : std::optional(number);
}

bool look_flag(const json::object& spec, std::string_view key, bool otherwise) {
    const auto* value = spec.if_contains(key);
    return value != nullptr && value->is_bool() ? value->get_bool() : otherwise;
}

std::vector<std::string> look_texts(const json::object& spec, std::string_view key) {
    std::vector<std::string> out;
    if (const auto* value = spec.if_contains(key); value != nullptr && value->is_array())
        for (const auto& item : value->get_array())
            if (item.is_string()) out.emplace_back(std::string_view(item.get_string()));
    return out;
}

bool has_control(std::string_view text) {
    return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; });
}

/// What is wrong with a value by itself; empty: nothing.
std::string trouble_with(const LookField& field, const json::value& value) {
    const auto within = [&](std::size_t size, std::string_view what) {
        return size >= field.least && size <= field.most
                   ? std::string()
                   : fmt::format("must be between {} and {}{}, got {}", field.least, field.most, what, size);
    };
    switch (field.type) {
    case Type::text: {
        if (!value.is_string()) return "must be a text";
        const auto& text = value.get_string();
        if (field.name != "body" && field.name != "send" && field.name != "contains" && has_control(text))
            return "must be one line";
        return within(text.size(), " characters");
    }
    case Type::number: {
        boost::system::error_code error;
        const auto number = value.is_number() ? value.to_number<std::int64_t>(error) : -1;
        if (!value.is_number() || error || number < 0) return "must be a whole number";
        return within(static_cast<std::size_t>(number), "");
    }
    case Type::real: return value.is_number() ? std::string() : "must be a number";
    case Type::flag: return value.is_bool() ? std::string() : "must be true or false";
    case Type::duration:
        return value.is_string() && parse_duration(std::string_view(value.get_string())).ok() ? std::string()
                                                                                              : "must be a time like 14d";
    case Type::texts: {
        if (!value.is_array()) return "must be a list of texts";
        for (const auto& item : value.get_array())
            if (!item.is_string() || item.get_string().size() > 4096 || item.get_string().find('\0') != json::string::npos)
                return "must be a list of texts of up to 4096 characters";
        return within(value.get_array().size(), " words");
    }
    case Type::map: {
        if (!value.is_object()) return "must be names with texts";
        for (const auto& [name, item] : value.get_object())
            if (!item.is_string() || item.get_string().size() > 4096 || has_control(item.get_string()) || has_control(name))
                return fmt::format("\"{}\" must be one line of up to 4096 characters", std::string_view(name));
        return within(value.get_object().size(), " fields");
    }
    }
    return {};
}

/// What is looked for in the answer.
Result<Pattern> wanted_in(const json::object& spec) {
    return Pattern::make(look_text(spec, "contains"), look_text(spec, "matches"));
}

Result<ProbePtr> http_from(const json::object& spec, std::string_view kind, const std::string& address, std::uint16_t port,
                           const LookTools& tools) {
    HttpLook look;
    const auto asked = look_text(spec, "host");
    const auto& name = asked.empty() ? address : asked;
    const auto path = look_text(spec, "path");
    const bool v6 = name.find(':') != std::string::npos;
    look.url = fmt::format("{}://{}{}{}:{}{}", kind, v6 ? "[" : "", name, v6 ? "]" : "", port, path.empty() ? "/" : path);
    look.address = address;
    if (const auto method = look_text(spec, "method"); !method.empty()) look.method = method;
    if (const auto* headers = spec.if_contains("headers"); headers != nullptr && headers->is_object())
        for (const auto& [field, value] : headers->get_object())
            if (value.is_string()) look.headers.emplace(std::string_view(field), std::string_view(value.get_string()));
    look.body = look_text(spec, "body");
    look.contains = look_text(spec, "contains");
    look.matches = look_text(spec, "matches");
    look.verify = look_flag(spec, "verify", true);
    look.reuse = look_flag(spec, "reuse", true);
    look.follow_redirects = static_cast<int>(look_number(spec, "follow_redirects").value_or(0));
    if (const auto left = look_text(spec, "least_left"); !left.empty()) {
        TRY(look.least_left, parse_duration(left));
    }
    if (const auto codes = look_text(spec, "expect"); !codes.empty()) {
        TRY(look.codes, parse_status_codes(codes));
    }
    return http_probe(std::move(look), tools.tls);
}

Result<ProbePtr> program_from(const json::object& spec, bool plain, const std::string& address, std::uint16_t port,
                              const LookTools& tools) {
    if (tools.programs == nullptr) return Error{Code::unsupported, "no programs are run here to look at something"};
    auto argv = look_texts(spec, "command");
    if (argv.empty() || argv.front().empty() || argv.front().find('/') != std::string::npos || argv.front().starts_with('.'))
        return Error{Code::invalid, "command must begin with the name of a program in a folder for plugins, without a path"};
    for (auto word = argv.begin() + 1; word != argv.end(); ++word)
        for (const auto& [mark, value] :
             {std::pair<std::string_view, std::string>{"$HOSTADDRESS$", address}, {"$PORT$", std::to_string(port)}})
            for (auto at = word->find(mark); at != std::string::npos; at = word->find(mark, at + value.size()))
                word->replace(at, mark.size(), value);
    for (const auto& folder : tools.plugin_folders)
        if (auto path = fmt::format("{}/{}", folder, argv.front()); ::access(path.c_str(), X_OK) == 0) {
            argv.front() = std::move(path);
            return plugin_probe(*tools.programs, {.argv = std::move(argv), .environment = {}, .plain = plain});
        }
    return Error{Code::unsupported,
                 fmt::format("there is no program {} in {}", argv.front(), fmt::join(tools.plugin_folders, ", "))};
}

} // namespace

const std::vector<std::string_view>& look_kinds() {
    static const std::vector<std::string_view> kinds{"tcp", "tls",    "http", "https",   "grpc",       "icmp", "udp",
                                                     "dns", "plugin", "exec", "octavia", "prometheus", "push"};
    return kinds;
}

bool is_informed(const json::object& look) {
    const auto kind = look_text(look, "kind");
    return kind == "octavia" || kind == "prometheus" || kind == "push";
}

std::vector<FieldError> check_look(const json::object& spec, std::string_view at, const std::vector<std::string_view>& others) {
    std::vector<FieldError> out;
    const auto path = [&](std::string_view field) { return fmt::format("{}.{}", at, field); };
    const auto kind = look_text(spec, "kind");
    if (std::find(look_kinds().begin(), look_kinds().end(), kind) == look_kinds().end()) {
        out.push_back({path("kind"), fmt::format("must be one of {}", fmt::join(look_kinds(), ", "))});
        return out;
    }
    for (const auto& [name, value] : spec) {
        if (name == "kind" || std::find(others.begin(), others.end(), std::string_view(name)) != others.end()) continue;
        const auto* field = std::find_if(std::begin(look_fields), std::end(look_fields),
                                         [&](const LookField& one) { return one.name == std::string_view(name); });
        if (field == std::end(look_fields) || !means_something(*field, kind)) {
            out.push_back({path(name), fmt::format("means nothing to a look of kind {}", kind)});
            continue;
        }
        if (auto trouble = trouble_with(*field, value); !trouble.empty()) out.push_back({path(name), std::move(trouble)});
    }
    if (!out.empty()) return out;
    const auto demand = [&](std::string_view field, const auto& result) {
        if (!result.ok()) out.push_back({path(field), result.error().message});
    };
    if (const auto text = look_text(spec, "path"); !text.empty() && !text.starts_with('/'))
        out.push_back({path("path"), "must begin with /"});
    if (const auto codes = look_text(spec, "expect"); !codes.empty()) demand("expect", parse_status_codes(codes));
    demand("matches", wanted_in(spec));
    if (kind == "dns" && !spec.contains("name")) out.push_back({path("name"), "must say what to ask for"});
    if (kind == "udp" && !spec.contains("send")) out.push_back({path("send"), "must say what to send"});
    for (const std::string_view field : {"source", "id", "query"})
        if (((kind == "octavia" && field != "query") || (kind == "prometheus" && field != "id")) && !spec.contains(field))
            out.push_back({path(field), fmt::format("a look of kind {} needs it", kind)});
    if (kind == "prometheus" && !spec.contains("least") && !spec.contains("most"))
        out.push_back({path("least"), "say what is good: at least this, or at most what `most` says"});
    if (is_informed(spec)) return out;
    if (kind == "plugin" || kind == "exec") {
        const auto command = look_texts(spec, "command");
        if (command.empty() || command.front().empty() || command.front().find('/') != std::string::npos ||
            command.front().starts_with('.'))
            out.push_back({path("command"), "must begin with the name of a program in a folder for plugins, without a path"});
    } else if (out.empty()) { // what only the whole can say: names, methods, header fields
        if (const auto made = probe_from(spec, "192.0.2.1", 1, {}); !made.ok())
            out.push_back({std::string(at), made.error().message});
    }
    return out;
}

Result<ProbePtr> probe_from(const json::object& spec, const std::string& address, std::uint16_t target_port,
                            const LookTools& tools) {
    const auto kind = look_text(spec, "kind");
    if (is_informed(spec)) {
        if (tools.informed == nullptr) return Error{Code::unsupported, fmt::format("nothing of kind {} is known here", kind)};
        return tools.informed->probe(spec, address, target_port);
    }
    auto port = static_cast<std::uint16_t>(std::clamp<std::int64_t>(look_number(spec, "port").value_or(target_port), 0, 65535));
    if (port == 0) port = kind == "http" ? 80 : kind == "https" || kind == "tls" ? 443 : kind == "dns" ? 53 : 0;
    if (port == 0 && (kind == "tcp" || kind == "udp" || kind == "grpc"))
        return Error{Code::invalid, "there is no port to look at", "give the monitor or the target a port"};
    if (kind == "tcp") {
        TRY(auto expect, wanted_in(spec));
        return tcp_probe({.host = address, .port = port, .send = look_text(spec, "send"), .expect = std::move(expect)});
    }
    if (kind == "tls") {
        TlsLook look{
            .host = address, .port = port, .server_name = look_text(spec, "host"), .verify = look_flag(spec, "verify", true)};
        if (const auto left = look_text(spec, "least_left"); !left.empty()) {
            TRY(look.least_left, parse_duration(left));
        }
        return tls_probe(std::move(look), tools.tls);
    }
    if (kind == "http" || kind == "https") return http_from(spec, kind, address, port, tools);
    if (kind == "grpc")
        return grpc_probe({.host = address,
                           .port = port,
                           .service = look_text(spec, "service"),
                           .secure = look_flag(spec, "secure", false),
                           .authorities = {},
                           .server_name = look_text(spec, "host")});
    if (kind == "icmp") return icmp_probe({.host = address});
    if (kind == "udp") {
        TRY(auto expect, wanted_in(spec));
        return udp_probe({.host = address, .port = port, .send = look_text(spec, "send"), .expect = std::move(expect)});
    }
    if (kind == "dns") {
        DnsLook look{.host = address, .port = port, .name = look_text(spec, "name")};
        if (const auto type = look_text(spec, "type"); !type.empty()) look.type = type;
        look.rcode = static_cast<std::uint16_t>(std::clamp<std::int64_t>(look_number(spec, "rcode").value_or(0), 0, 4095));
        look.contains = look_text(spec, "contains");
        look.authoritative = look_flag(spec, "authoritative", false);
        return dns_probe(std::move(look));
    }
    if (kind == "plugin" || kind == "exec") return program_from(spec, kind == "exec", address, port, tools);
    return Error{Code::invalid, fmt::format("there is no look of kind \"{}\"", kind)};
}

Result<std::vector<std::pair<int, int>>> parse_status_codes(std::string_view text) {
    std::vector<std::pair<int, int>> out;
    const Error bad{Code::invalid, fmt::format("\"{}\" is no list of HTTP status codes", text), "write it as in 200-299,301"};
    const auto number = [](std::string_view part, int& value) {
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
        return error == std::errc{} && end == part.data() + part.size() && value >= 100 && value <= 599;
    };
    for (;;) {
        const auto comma = text.find(',');
        const auto part = text.substr(0, comma);
        const auto dash = part.find('-');
        int first = 0, last = 0;
        if (!number(part.substr(0, dash), first)) return bad;
        last = first;
        if (dash != std::string_view::npos && !number(part.substr(dash + 1), last)) return bad;
        if (last < first) return bad;
        out.emplace_back(first, last);
        if (comma == std::string_view::npos) return out;
        text.remove_prefix(comma + 1);
    }
}

} // namespace orrery::health
