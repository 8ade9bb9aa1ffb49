#include "catalog/check.h"

#include "core/json_fields.h"
#include "health/probe_spec.h"

#include <fmt/format.h>

#include <array>
#include <set>

namespace orrery::catalog {

namespace {

constexpr std::array<std::pair<Check::Kind, std::string_view>, 5> check_kinds{{{Check::Kind::tcp, "tcp"},
                                                                               {Check::Kind::http, "http"},
                                                                               {Check::Kind::command, "command"},
                                                                               {Check::Kind::ttl, "ttl"},
                                                                               {Check::Kind::external, "external"}}};

} // namespace

std::string_view name_of(CheckStatus status) {
    switch (status) {
    case CheckStatus::passing: return "passing";
    case CheckStatus::warning: return "warning";
    case CheckStatus::critical: return "critical";
    }
    return "critical";
}

Result<CheckStatus> parse_check_status(std::string_view text) {
    for (const auto status : {CheckStatus::passing, CheckStatus::warning, CheckStatus::critical})
        if (text == name_of(status)) return status;
    return Error{Code::invalid, fmt::format("\"{}\" is no status of a check", text), "a check is passing, warning or critical"};
}

std::string_view name_of(Check::Kind kind) {
    for (const auto& [known, name] : check_kinds)
        if (known == kind) return name;
    return "external";
}

Check Check::from(const json::object& spec) {
    Check check;
    check.id = text_at(spec, "id");
    check.name = text_at(spec, "name");
    const auto kind_name = text_at(spec, "kind");
    for (const auto& [known, name] : check_kinds)
        if (kind_name == name) check.kind = known;
    check.address = text_at(spec, "address");
    check.port = static_cast<std::uint16_t>(integer_at(spec, "port", 0));
    check.url = text_at(spec, "url");
    if (const auto path = text_at(spec, "path"); !path.empty()) check.path = path;
    if (const auto method = text_at(spec, "method"); !method.empty()) check.method = method;
    if (const auto* body = spec.if_contains("body")) check.body = *body;
    check.contains = text_at(spec, "contains");
    check.expect = text_at(spec, "expect");
    check.headers = object_at(spec, "headers");
    check.command = texts_at(spec, "command");
    check.ttl = duration_at(spec, "ttl", Duration{});
    check.interval = duration_at(spec, "interval", check.interval);
    check.timeout = duration_at(spec, "timeout", std::min<Duration>(std::chrono::seconds(5), check.interval));
    check.rise = static_cast<int>(integer_at(spec, "rise", check.rise));
    check.fall = static_cast<int>(integer_at(spec, "fall", check.fall));
    check.initial = parse_check_status(text_at(spec, "initial")).value_or(CheckStatus::critical);
    if (spec.contains("remove_after")) check.remove_after = duration_at(spec, "remove_after", std::chrono::minutes(1));
    check.notes = text_at(spec, "notes");
    return check;
}

json::object Check::to_json() const {
    json::object out;
    const auto put = [&](std::string_view key, const std::string& text, std::string_view otherwise = "") {
        if (text != otherwise) out[key] = text;
    };
    put("id", id);
    put("name", name);
    out["kind"] = name_of(kind);
    put("address", address);
    if (port != 0) out["port"] = port;
    put("url", url);
    put("path", path, "/");
    put("method", method, "GET");
    if (!body.is_null()) out["body"] = body;
    put("contains", contains);
    put("expect", expect);
    if (!headers.empty()) out["headers"] = headers;
    if (!command.empty()) out["command"] = json::array(command.begin(), command.end());
    if (kind == Kind::ttl) out["ttl"] = to_text(ttl);
    if (kind == Kind::tcp || kind == Kind::http || kind == Kind::command) {
        out["interval"] = to_text(interval);
        out["timeout"] = to_text(timeout);
        out["rise"] = rise;
        out["fall"] = fall;
    }
    out["initial"] = name_of(initial);
    if (remove_after) out["remove_after"] = to_text(*remove_after);
    put("notes", notes);
    return out;
}

resource::Field checks_field(std::string doc) {
    using namespace resource;
    auto check =
        object("check", "A check.")
            .with(text("id", "Unique id. Default: service:<instance id>, with a number if there are several.")
                      .format(Format::one_line)
                      .between(1, 256))
            .with(text("name", "Display name.").format(Format::one_line).between(1, 256))
            .with(text("kind", "tcp: the target accepts a connection. http: a response with the expected code and body. command: "
                               "exit 0 passes, 1 "
                               "warns, run on the node over SSH. ttl: a client reports within each ttl. external: the client that "
                               "registered it "
                               "writes its state.")
                      .required()
                      .one_of({"tcp", "http", "command", "ttl", "external"}))
            .with(text("address", "tcp, http: address to connect to. Default: the address of the instance.").format(Format::host))
            .with(integer("port", "tcp, http: port. Default: the port of the instance.").between(1, 65535))
            .with(text("url", "http: complete URL, instead of address, port and path; https:// is verified.").format(Format::url))
            .with(text("path", "http: path and query.").between(1, 2048).format(Format::one_line))
            .with(text("method", "http: method.").one_of({"GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE"}))
            .with(map("headers", "http: request header fields.",
                      text("value", "A value, or {secret: NAME.KEY}.").or_secret().format(Format::one_line).between(0, 4096))
                      .between(0, 32))
            .with(text("body", "http: request body, or {secret: NAME.KEY}.").or_secret().between(0, 65536))
            .with(text("contains", "http: text that the first 64 KiB of the response must contain.").between(1, 1024))
            .with(text("expect", "http: codes that pass, such as 200-299,301. Default: 2xx passes, 429 warns.")
                      .format(Format::one_line)
                      .between(3, 256))
            .with(list("command", "command: program and arguments; no shell.", text("argument", "An argument.").between(0, 4096))
                      .between(1, 64))
            .with(duration("ttl", "ttl: how long a report is valid.").between(1, 10 * 365 * 86400))
            .with(duration("interval", "Time between runs. Default 10s.").between(1, 86400))
            .with(duration("timeout", "Time limit of one run; at most the interval. Default 5s."))
            .with(integer("rise", "Good results in a row before a critical check passes.").between(1, 100))
            .with(integer("fall", "Bad results before a passing check is critical.").between(1, 100))
            .with(text("initial", "Status before the first result.").one_of({"passing", "warning", "critical"}))
            .with(duration("remove_after", "The instance is removed after this check was critical for this long.")
                      .between(60, 365 * 86400))
            .with(text("notes", "Notes for people.").between(0, 4096));
    return list("checks", std::move(doc), std::move(check)).between(0, 32);
}

std::string refusal_of(const Check& check) {
    if (!check.registered || check.kind != Check::Kind::http) return {};
    if (check.method != "GET" && check.method != "HEAD")
        return fmt::format("checks of instances and nodes may use GET and HEAD only, not {}", check.method);
    if (!check.body.is_null()) return "checks of instances and nodes may not send a body";
    return {};
}

void check_checks(const json::object& spec, const std::string& path, bool registered, std::vector<FieldError>& errors) {
    const auto* given = spec.if_contains("checks");
    if (given == nullptr || !given->is_array()) return;
    std::set<std::string> ids;
    std::size_t at = 0;
    for (const auto& item : given->get_array()) {
        const auto here = fmt::format("{}.checks[{}]", path, at++);
        if (!item.is_object()) continue;
        const auto& object = item.get_object();
        auto check = Check::from(object);
        check.registered = registered;
        const auto needs = [&](const char* field) {
            if (!object.contains(field))
                errors.push_back({here + "." + field, fmt::format("a {} check needs it", name_of(check.kind))});
        };
        const auto only = [&](std::initializer_list<const char*> fields, std::initializer_list<Check::Kind> kinds) {
            if (std::find(kinds.begin(), kinds.end(), check.kind) != kinds.end()) return;
            for (const auto* field : fields)
                if (object.contains(field))
                    errors.push_back({here + "." + field, fmt::format("is not a field of {} checks", name_of(check.kind))});
        };
        using enum Check::Kind;
        if (check.kind == ttl) needs("ttl");
        if (check.kind == command) needs("command");
        only({"ttl"}, {ttl});
        only({"command"}, {command});
        only({"url", "path", "method", "headers", "body", "contains", "expect"}, {http});
        only({"address", "port"}, {tcp, http});
        only({"interval", "timeout", "rise", "fall"}, {tcp, http, command});
        if (object.contains("url"))
            for (const auto* field : {"address", "port", "path"})
                if (object.contains(field)) errors.push_back({here + "." + field, "conflicts with url"});
        if (check.timeout > check.interval)
            errors.push_back({here + ".timeout", fmt::format("must be at most the interval, {}", to_text(check.interval))});
        if (auto refusal = refusal_of(check); !refusal.empty())
            errors.push_back({here + (check.method == "GET" || check.method == "HEAD" ? ".body" : ".method"), std::move(refusal)});
        if (object.contains("path") && !check.path.starts_with('/')) errors.push_back({here + ".path", "must begin with /"});
        if (!check.expect.empty())
            if (const auto codes = health::parse_status_codes(check.expect); !codes.ok())
                errors.push_back({here + ".expect", codes.error().message + "; " + codes.error().remedy});
        if (!check.id.empty() && !ids.insert(check.id).second)
            errors.push_back({here + ".id", fmt::format("\"{}\" occurs twice", check.id)});
    }
}

CheckResult CheckResult::from(const json::object& status) {
    CheckResult out;
    out.status = parse_check_status(text_at(status, "status")).value_or(CheckStatus::critical);
    out.output = text_at(status, "output");
    out.since = from_rfc3339(text_at(status, "since")).value_or(WallTime{});
    out.renewed = from_rfc3339(text_at(status, "renewed")).value_or(WallTime{});
    out.error = text_at(status, "error");
    return out;
}

json::object CheckResult::to_json() const {
    json::object out{{"status", name_of(status)}, {"output", output}};
    if (since != WallTime{}) out["since"] = to_rfc3339(since);
    if (!error.empty()) out["error"] = error;
    if (renewed != WallTime{}) out["renewed"] = to_rfc3339(renewed);
    return out;
}

} // namespace orrery::catalog
