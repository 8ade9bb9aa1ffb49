#include "health/probe_spec.h"

#include "core/clock.h"
#include "core/json_fields.h"
#include "health/engine/tls_client.h"
#include "health/probes/dns_probe.h"
#include "health/probes/grpc_probe.h"
#include "health/probes/http_probe.h"
#include "health/probes/icmp_probe.h"
#include "health/probes/plugin_probe.h"
#include "health/probes/tcp_probe.h"
#include "health/probes/tls_probe.h"
#include "health/probes/udp_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unistd.h>

namespace orrery::health {

namespace {

enum class Type { text, number, real, flag, texts, map, duration };

/// A field of probes, and the kinds that have it.
struct ProbeField {
    std::string_view name;
    Type type;
    std::uint32_t kinds;          ///< bits, made by `for_kinds`
    std::size_t min = 0, max = 0; ///< length of a text or list, or the number itself
};

template <class... Kinds> constexpr std::uint32_t for_kinds(Kinds... kinds) { return ((1U << static_cast<unsigned>(kinds)) | ...); }

std::span<const ProbeField> probe_fields() {
    using enum ProbeKind;
    static constexpr ProbeField fields[] = {
        {"port", Type::number, for_kinds(tcp, tls, http, https, grpc, udp, dns), 1, 65535},
        {"host", Type::text, for_kinds(tls, http, https, grpc), 1, 253},
        {"verify", Type::flag, for_kinds(tls, https)},
        {"min_certificate_lifetime", Type::duration, for_kinds(tls, https)},
        {"ca", Type::text, for_kinds(tls, https, grpc), 1, 65536},
        {"path", Type::text, for_kinds(http, https), 1, 2048},
        {"method", Type::text, for_kinds(http, https), 1, 16},
        {"headers", Type::map, for_kinds(http, https), 0, 32},
        {"body", Type::text, for_kinds(http, https), 0, 65536},
        {"expect", Type::text, for_kinds(http, https), 3, 256},
        {"reuse", Type::flag, for_kinds(http, https)},
        {"follow_redirects", Type::number, for_kinds(http, https), 0, 10},
        {"send", Type::text, for_kinds(tcp, udp), 0, 4096},
        {"contains", Type::text, for_kinds(tcp, http, https, udp, dns), 1, 1024},
        {"matches", Type::text, for_kinds(tcp, http, https, udp), 1, 1024},
        {"service", Type::text, for_kinds(grpc), 0, 256},
        {"secure", Type::flag, for_kinds(grpc)},
        {"name", Type::text, for_kinds(dns), 1, 254},
        {"type", Type::text, for_kinds(dns), 1, 8},
        {"rcode", Type::number, for_kinds(dns), 0, 23},
        {"authoritative", Type::flag, for_kinds(dns)},
        {"command", Type::texts, for_kinds(plugin, exec), 1, 64},
        {"source", Type::text, for_kinds(octavia, prometheus), 1, 253},
        {"id", Type::text, for_kinds(octavia), 1, 64},
        {"query", Type::text, for_kinds(prometheus), 1, 4096},
        {"label", Type::text, for_kinds(prometheus), 1, 128},
        {"min", Type::real, for_kinds(prometheus)},
        {"max", Type::real, for_kinds(prometheus)},
        {"ttl", Type::duration, for_kinds(push)},
    };
    return fields;
}

bool has_field(const ProbeField& field, ProbeKind kind) { return (field.kinds & for_kinds(kind)) != 0; }

std::optional<std::int64_t> field_number(const json::object& spec, std::string_view key) {
    const auto* value = spec.if_contains(key);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    boost::system::error_code error;
    const auto number = value->to_number<std::int64_t>(error);
    return error ? std::nullopt : std::optional(number);
}

/// The object that names a value of a Secret instead of a text; null if the value is not one.
const json::object* secret_in(const json::value& value) {
    const auto* object = value.if_object();
    return object != nullptr && object->contains("secret") ? object : nullptr;
}

bool may_be_secret(std::string_view field) { return field == "headers" || field == "body" || field == "ca"; }

/// Calls `visit` with each value of a spec that may name a Secret.
template <class Spec, class Visit> void visit_secret_values(Spec& spec, const Visit& visit) {
    if (auto* headers = spec.if_contains("headers"); headers != nullptr && headers->is_object())
        for (auto& [name, value] : headers->get_object()) visit(value);
    for (const auto* field : {"body", "ca"})
        if (auto* value = spec.if_contains(field)) visit(*value);
}

/// The text of such a value. Values of Secrets are added to `secrets`.
Result<std::string> text_or_secret(const json::value& value, std::vector<std::string>& secrets) {
    if (value.is_string()) return std::string(std::string_view(value.get_string()));
    const auto* named = secret_in(value);
    if (named == nullptr) return std::string();
    if (named->contains("value")) {
        secrets.push_back(text_at(*named, "value"));
        return secrets.back();
    }
    const auto error = text_at(*named, "error");
    return Error{Code::unavailable,
                 error.empty() ? fmt::format("this vantage does not know Secret value {}", text_at(*named, "secret")) : error};
}

/// The error in an object that names a value of a Secret; empty: none.
std::string secret_error(const json::object& named) {
    for (const auto& [key, value] : named) {
        if (key != "secret" && key != "value" && key != "error") return "must be a text or {secret: NAME.KEY}";
        if (!value.is_string() || value.get_string().size() > 65536) return fmt::format("{} must be a text", std::string_view(key));
    }
    return {};
}

bool has_control(std::string_view text) {
    return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; });
}

/// The error in the value of one field; empty: none.
std::string value_error(const ProbeField& field, const json::value& value) {
    const auto within = [&](std::size_t size, std::string_view what) {
        return size >= field.min && size <= field.max
                   ? std::string()
                   : fmt::format("must be between {} and {}{}, got {}", field.min, field.max, what, size);
    };
    if (const auto* named = secret_in(value); named != nullptr && field.type == Type::text && may_be_secret(field.name))
        return secret_error(*named);
    switch (field.type) {
    case Type::text: {
        if (!value.is_string()) return "must be a text";
        const auto& text = value.get_string();
        if (field.name != "body" && field.name != "send" && field.name != "contains" && field.name != "ca" && has_control(text))
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
        return within(value.get_array().size(), " items");
    }
    case Type::map: {
        if (!value.is_object()) return "must be names with texts";
        for (const auto& [name, item] : value.get_object()) {
            if (const auto* named = secret_in(item); named != nullptr && !has_control(name)) {
                if (auto error = secret_error(*named); !error.empty()) return error;
                continue;
            }
            if (!item.is_string() || item.get_string().size() > 4096 || has_control(item.get_string()) || has_control(name))
                return fmt::format("\"{}\" must be one line of up to 4096 characters", std::string_view(name));
        }
        return within(value.get_object().size(), " fields");
    }
    }
    return {};
}

/// Authorities are not masked, even if a Secret holds them.
Result<std::string> authorities_pem(const json::object& spec) {
    std::vector<std::string> ignored;
    const auto* value = spec.if_contains("ca");
    return value == nullptr ? std::string() : text_or_secret(*value, ignored);
}

/// The trusted authorities: those of the check, or those of this server.
Result<std::shared_ptr<net::TlsContext>> authorities_of(const json::object& spec, const ProbeDeps& deps) {
    TRY(const auto pem, authorities_pem(spec));
    if (pem.empty()) return deps.tls;
    return tls_from_pem(pem);
}

/// What the response must contain.
Result<Pattern> pattern_from(const json::object& spec) {
    return Pattern::make(text_at(spec, "contains"), text_at(spec, "matches"));
}

Result<ProbePtr> program_from(const json::object& spec, bool plain, const std::string& address, std::uint16_t port,
                              const ProbeDeps& deps) {
    if (deps.programs == nullptr) return Error{Code::unsupported, "this vantage runs no programs for checks"};
    if (deps.outbound) // only the address of the target can be checked, not the arguments
        if (const auto checked = deps.outbound->check_literal(address, port); !checked.ok())
            return Error{Code::unsupported, checked.error().message, checked.error().remedy};
    auto argv = texts_at(spec, "command");
    if (argv.empty() || argv.front().empty() || argv.front().find('/') != std::string::npos || argv.front().starts_with('.'))
        return Error{Code::invalid, "command must begin with the name of a program, as health.programs has it, without a path"};
    for (auto argument = argv.begin() + 1; argument != argv.end(); ++argument)
        for (const auto& [mark, value] :
             {std::pair<std::string_view, std::string>{"$HOSTADDRESS$", address}, {"$PORT$", std::to_string(port)}})
            for (auto at = argument->find(mark); at != std::string::npos; at = argument->find(mark, at + value.size()))
                argument->replace(at, mark.size(), value);
    const auto probe_with = [&](std::string path) {
        argv.front() = std::move(path);
        return plugin_probe(*deps.programs, {.argv = std::move(argv), .environment = {}, .plain = plain});
    };
    // Not checked here whether the program exists: it may be installed later.
    if (const auto named = deps.program_paths.find(argv.front()); named != deps.program_paths.end())
        return probe_with(named->second);
    for (const auto& folder : deps.plugin_folders)
        if (auto path = fmt::format("{}/{}", folder, argv.front()); ::access(path.c_str(), X_OK) == 0)
            return probe_with(std::move(path));
    return Error{Code::unsupported, fmt::format("this vantage has no program {} for checks", argv.front()),
                 "name it in the server's setting health.programs, or start a checker with --program"};
}

Result<ProbePtr> tls_from(const json::object& spec, const std::string& address, std::uint16_t port, const ProbeDeps& deps) {
    TlsProbeOptions options{
        .host = address, .port = port, .server_name = text_at(spec, "host"), .verify = flag_at(spec, "verify", true)};
    options.outbound = deps.outbound;
    if (const auto left = text_at(spec, "min_certificate_lifetime"); !left.empty()) {
        TRY(options.min_certificate_lifetime, parse_duration(left));
    }
    TRY(auto tls, authorities_of(spec, deps));
    return tls_probe(std::move(options), std::move(tls));
}

Result<ProbePtr> grpc_from(const json::object& spec, const std::string& address, std::uint16_t port, const ProbeDeps& deps) {
    TRY(std::ignore, authorities_of(spec, deps));
    TRY(auto pem, authorities_pem(spec));
    return grpc_probe({.host = address,
                       .port = port,
                       .service = text_at(spec, "service"),
                       .secure = flag_at(spec, "secure", false),
                       .authorities = std::move(pem),
                       .server_name = text_at(spec, "host"),
                       .outbound = deps.outbound});
}

Result<ProbePtr> dns_from(const json::object& spec, const std::string& address, std::uint16_t port, const ProbeDeps& deps) {
    DnsProbeOptions options{.host = address, .port = port, .name = text_at(spec, "name")};
    if (const auto type = text_at(spec, "type"); !type.empty()) options.type = type;
    options.rcode = static_cast<std::uint16_t>(std::clamp<std::int64_t>(field_number(spec, "rcode").value_or(0), 0, 4095));
    options.contains = text_at(spec, "contains");
    options.authoritative = flag_at(spec, "authoritative", false);
    options.outbound = deps.outbound;
    return dns_probe(std::move(options));
}

/// For probes whose spec and target have no port; 0 if the kind has no default.
std::uint16_t default_port(ProbeKind kind) {
    switch (kind) {
    case ProbeKind::http: return 80;
    case ProbeKind::https:
    case ProbeKind::tls: return 443;
    case ProbeKind::dns: return 53;
    default: return 0;
    }
}

Result<ProbePtr> no_port() { return Error{Code::invalid, "there is no port to probe", "give the Monitor or the target a port"}; }

} // namespace

bool runs_program(const json::object& spec) {
    const auto kind = probe_kind_of(spec);
    return kind == ProbeKind::plugin || kind == ProbeKind::exec;
}

bool is_passive(const json::object& spec) {
    const auto kind = probe_kind_of(spec);
    return kind == ProbeKind::octavia || kind == ProbeKind::prometheus || kind == ProbeKind::push;
}

bool names_secrets(const json::object& spec) {
    bool out = false;
    visit_secret_values(spec, [&](const json::value& value) { out = out || secret_in(value) != nullptr; });
    return out;
}

json::object with_secret_values(json::object spec, const SecretReader& secrets) {
    visit_secret_values(spec, [&](json::value& value) {
        const auto* named = secret_in(value);
        if (named == nullptr || named->contains("value") || named->contains("error")) return;
        const auto name = text_at(*named, "secret");
        const auto found =
            secrets ? secrets(name) : Error{Code::not_found, fmt::format("this vantage does not know Secret value {}", name)};
        auto& filled = value.get_object();
        if (found.ok())
            filled["value"] = *found;
        else
            filled["error"] = found.error().message;
    });
    return spec;
}

json::object without_secret_values(json::object spec, std::string_view reason) {
    return with_secret_values(std::move(spec), [&](std::string_view named) -> Result<std::string> {
        return Error{Code::denied, fmt::format("Secret value {} {}", named, reason)};
    });
}

std::vector<FieldError> validate_probe(const json::object& spec, std::string_view at, const std::vector<std::string_view>& others) {
    std::vector<FieldError> out;
    const auto path = [&](std::string_view field) { return fmt::format("{}.{}", at, field); };
    const auto kind = probe_kind_of(spec);
    if (!kind) {
        out.push_back({path("kind"), fmt::format("must be one of {}", fmt::join(probe_kind_names(), ", "))});
        return out;
    }
    for (const auto& [name, value] : spec) {
        if (name == "kind" || std::find(others.begin(), others.end(), std::string_view(name)) != others.end()) continue;
        const auto fields = probe_fields();
        const auto field =
            std::find_if(fields.begin(), fields.end(), [&](const ProbeField& one) { return one.name == std::string_view(name); });
        if (field == fields.end() || !has_field(*field, *kind)) {
            out.push_back({path(name), fmt::format("is not a field of a probe of kind {}", name_of(*kind))});
            continue;
        }
        if (auto error = value_error(*field, value); !error.empty()) out.push_back({path(name), std::move(error)});
    }
    if (!out.empty()) return out;
    const auto demand = [&](std::string_view field, const auto& result) {
        if (!result.ok()) out.push_back({path(field), result.error().message});
    };
    if (const auto text = text_at(spec, "path"); !text.empty() && !text.starts_with('/'))
        out.push_back({path("path"), "must begin with /"});
    if (const auto codes = text_at(spec, "expect"); !codes.empty()) demand("expect", parse_status_codes(codes));
    demand("matches", pattern_from(spec));
    // The values of Secrets are validated when a probe is made.
    auto sample = spec;
    if (const auto* authorities = spec.if_contains("ca"); authorities != nullptr && !authorities->is_string()) sample.erase("ca");
    visit_secret_values(sample, [](json::value& value) {
        if (secret_in(value) != nullptr) value = "x";
    });
    demand("ca", authorities_of(sample, {}));
    if (kind == ProbeKind::dns && !spec.contains("name")) out.push_back({path("name"), "must be the name to query"});
    if (kind == ProbeKind::udp && !spec.contains("send")) out.push_back({path("send"), "must be the text to send"});
    for (const std::string_view field : {"source", "id", "query"})
        if (((kind == ProbeKind::octavia && field != "query") || (kind == ProbeKind::prometheus && field != "id")) &&
            !spec.contains(field))
            out.push_back({path(field), fmt::format("a probe of kind {} requires it", name_of(*kind))});
    if (kind == ProbeKind::prometheus && !spec.contains("min") && !spec.contains("max"))
        out.push_back({path("min"), "give the smallest good value as `min`, the largest as `max`, or both"});
    if (is_passive(spec)) return out;
    if (runs_program(spec)) {
        const auto command = texts_at(spec, "command");
        if (command.empty() || command.front().empty() || command.front().find('/') != std::string::npos ||
            command.front().starts_with('.'))
            out.push_back({path("command"), "must begin with the name of a program, as health.programs has it, without a path"});
    } else if (out.empty()) { // errors that only the whole probe shows: names, methods, header fields
        if (const auto made = probe_from(sample, "192.0.2.1", 1, {}); !made.ok())
            out.push_back({std::string(at), made.error().message});
    }
    return out;
}

Result<HttpProbeOptions> http_headers_and_body(const json::object& spec) {
    HttpProbeOptions options;
    if (const auto* headers = spec.if_contains("headers"); headers != nullptr && headers->is_object())
        for (const auto& [field, value] : headers->get_object()) {
            TRY(auto text, text_or_secret(value, options.secrets));
            if (secret_in(value) != nullptr) // values from files often end with a newline
                text.erase(text.find_last_not_of("\r\n") + 1);
            options.headers.emplace(std::string_view(field), std::move(text));
        }
    if (const auto* body = spec.if_contains("body")) {
        TRY(options.body, text_or_secret(*body, options.secrets));
    }
    return options;
}

Result<HttpProbeOptions> http_probe_options(const json::object& spec, const std::string& address, std::uint16_t port) {
    TRY(auto options, http_headers_and_body(spec));
    const auto kind = text_at(spec, "kind");
    const auto asked = text_at(spec, "host");
    const auto& name = asked.empty() ? address : asked;
    const auto path = text_at(spec, "path");
    const bool v6 = name.find(':') != std::string::npos;
    options.url = fmt::format("{}://{}{}{}:{}{}", kind, v6 ? "[" : "", name, v6 ? "]" : "", port, path.empty() ? "/" : path);
    options.address = address;
    if (const auto method = text_at(spec, "method"); !method.empty()) options.method = method;
    options.contains = text_at(spec, "contains");
    options.matches = text_at(spec, "matches");
    options.verify = flag_at(spec, "verify", true);
    options.reuse = flag_at(spec, "reuse", true);
    options.follow_redirects = static_cast<int>(field_number(spec, "follow_redirects").value_or(0));
    if (const auto left = text_at(spec, "min_certificate_lifetime"); !left.empty()) {
        TRY(options.min_certificate_lifetime, parse_duration(left));
    }
    if (const auto codes = text_at(spec, "expect"); !codes.empty()) {
        TRY(options.codes, parse_status_codes(codes));
    }
    return options;
}

Result<ProbePtr> probe_from(const json::object& spec, const std::string& address, std::uint16_t target_port,
                            const ProbeDeps& deps) {
    const auto kind = probe_kind_of(spec);
    if (!kind) return Error{Code::invalid, fmt::format("there is no probe of kind \"{}\"", text_at(spec, "kind"))};
    auto port = static_cast<std::uint16_t>(std::clamp<std::int64_t>(field_number(spec, "port").value_or(target_port), 0, 65535));
    if (port == 0) port = default_port(*kind);
    const auto expecting = [&](auto make, auto options) -> Result<ProbePtr> {
        if (port == 0) return no_port();
        options.host = address;
        options.port = port;
        options.send = text_at(spec, "send");
        TRY(options.expect, pattern_from(spec));
        options.outbound = deps.outbound;
        return make(std::move(options));
    };
    switch (*kind) {
    case ProbeKind::tcp: return expecting(tcp_probe, TcpProbeOptions{});
    case ProbeKind::udp: return expecting(udp_probe, UdpProbeOptions{});
    case ProbeKind::tls: return tls_from(spec, address, port, deps);
    case ProbeKind::http:
    case ProbeKind::https: {
        TRY(auto options, http_probe_options(spec, address, port));
        options.outbound = deps.outbound;
        TRY(auto tls, authorities_of(spec, deps));
        return http_probe(std::move(options), std::move(tls));
    }
    case ProbeKind::grpc: return port == 0 ? no_port() : grpc_from(spec, address, port, deps);
    case ProbeKind::icmp: return icmp_probe({.host = address, .outbound = deps.outbound});
    case ProbeKind::dns: return dns_from(spec, address, port, deps);
    case ProbeKind::plugin:
    case ProbeKind::exec: return program_from(spec, kind == ProbeKind::exec, address, port, deps);
    case ProbeKind::octavia:
    case ProbeKind::prometheus:
    case ProbeKind::push:
        if (deps.passive == nullptr)
            return Error{Code::unsupported, fmt::format("this vantage has no external source for kind {}", name_of(*kind))};
        return deps.passive->probe(spec, address, target_port);
    }
    return Error{Code::internal, "the kind of the probe has no implementation"};
}

Result<std::vector<std::pair<int, int>>> parse_status_codes(std::string_view text) {
    std::vector<std::pair<int, int>> out;
    const Error bad{Code::invalid, fmt::format("\"{}\" is not a list of HTTP status codes", text), "write it as in 200-299,301"};
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
