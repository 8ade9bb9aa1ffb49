#include "catalog/check.h"

#include "catalog/json_read.h"
#include "health/look_spec.h"

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

/// Of a spec that has passed its table already.
Duration duration_at(const json::object& object, std::string_view key, Duration otherwise) {
    const auto text = text_at(object, key);
    if (text.empty()) return otherwise;
    return parse_duration(text).value_or(otherwise);
}

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
    check.port = static_cast<std::uint16_t>(number_at(spec, "port", 0));
    check.url = text_at(spec, "url");
    if (const auto path = text_at(spec, "path"); !path.empty()) check.path = path;
    if (const auto method = text_at(spec, "method"); !method.empty()) check.method = method;
    check.body = text_at(spec, "body");
    check.contains = text_at(spec, "contains");
    check.expect = text_at(spec, "expect");
    check.headers = texts_by_name(spec, "headers");
    check.command = texts_at(spec, "command");
    check.ttl = duration_at(spec, "ttl", Duration{});
    check.interval = duration_at(spec, "interval", check.interval);
    check.timeout = duration_at(spec, "timeout", std::min<Duration>(std::chrono::seconds(5), check.interval));
    check.rise = static_cast<int>(number_at(spec, "rise", check.rise));
    check.fall = static_cast<int>(number_at(spec, "fall", check.fall));
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
    put("body", body);
    put("contains", contains);
    put("expect", expect);
    if (!headers.empty()) {
        json::object all;
        for (const auto& [key, value] : headers) all[key] = value;
        out["headers"] = std::move(all);
    }
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
        object("check", "One way to tell.")
            .with(text("id", "Tells it from the others. Left out: service:<instance id>, numbered where there are several.")
                      .format(Format::one_line)
                      .between(1, 256))
            .with(text("name", "For people.").format(Format::one_line).between(1, 256))
            .with(text("kind",
                       "tcp: a connection is taken. http: an answer with the right code and body. command: exit 0 passes, 1 "
                       "warns, run on the node over SSH. ttl: somebody says so again within the ttl. external: whoever "
                       "registered it writes its state.")
                      .required()
                      .one_of({"tcp", "http", "command", "ttl", "external"}))
            .with(text("address", "tcp, http: where to connect. Left out: the instance's address.").format(Format::host))
            .with(integer("port", "tcp, http: the port. Left out: the instance's.").between(1, 65535))
            .with(text("url", "http: the whole URL, instead of address, port and path; https:// is verified.").format(Format::url))
            .with(text("path", "http: path and query.").between(1, 2048).format(Format::one_line))
            .with(text("method", "http: the method.").one_of({"GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE"}))
            .with(
                map("headers", "http: header fields to send.", text("value", "A value.").format(Format::one_line).between(0, 4096))
                    .between(0, 32))
            .with(text("body", "http: what to send.").between(0, 65536))
            .with(text("contains", "http: what the first 64 KiB of the answer must contain.").between(1, 1024))
            .with(text("expect", "http: the codes that pass, as in 200-299,301. Left out: 2xx passes, 429 warns.")
                      .format(Format::one_line)
                      .between(3, 256))
            .with(list("command", "command: the program and its arguments; no shell.", text("argument", "A word.").between(0, 4096))
                      .between(1, 64))
            .with(duration("ttl", "ttl: how long a word is good for.").between(1, 10 * 365 * 86400))
            .with(duration("interval", "How often it is run. Default 10s.").between(1, 86400))
            .with(duration("timeout", "How long the whole of one run may take; at most the interval. Default 5s."))
            .with(integer("rise", "Good results in a row before what was critical passes.").between(1, 100))
            .with(integer("fall", "Bad results before what passed is critical.").between(1, 100))
            .with(text("initial", "What holds before the first result.").one_of({"passing", "warning", "critical"}))
            .with(duration("remove_after", "The instance is removed once this check was critical for so long.")
                      .between(60, 365 * 86400))
            .with(text("notes", "For people.").between(0, 4096));
    return list("checks", std::move(doc), std::move(check)).between(0, 32);
}

void check_checks(const json::object& spec, const std::string& path, std::vector<FieldError>& errors) {
    const auto* given = spec.if_contains("checks");
    if (given == nullptr || !given->is_array()) return;
    std::set<std::string> ids;
    std::size_t at = 0;
    for (const auto& item : given->get_array()) {
        const auto here = fmt::format("{}.checks[{}]", path, at++);
        if (!item.is_object()) continue;
        const auto& object = item.get_object();
        const auto check = Check::from(object);
        const auto needs = [&](const char* field) {
            if (!object.contains(field))
                errors.push_back({here + "." + field, fmt::format("a {} check needs it", name_of(check.kind))});
        };
        const auto only = [&](std::initializer_list<const char*> fields, std::initializer_list<Check::Kind> kinds) {
            if (std::find(kinds.begin(), kinds.end(), check.kind) != kinds.end()) return;
            for (const auto* field : fields)
                if (object.contains(field))
                    errors.push_back({here + "." + field, fmt::format("means nothing to a {} check", name_of(check.kind))});
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
                if (object.contains(field)) errors.push_back({here + "." + field, "is part of url already"});
        if (check.timeout > check.interval)
            errors.push_back({here + ".timeout", fmt::format("must be at most the interval, {}", to_text(check.interval))});
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
    return out;
}

json::object CheckResult::to_json() const {
    json::object out{{"status", name_of(status)}, {"output", output}, {"since", to_rfc3339(since)}};
    if (renewed != WallTime{}) out["renewed"] = to_rfc3339(renewed);
    return out;
}

} // namespace orrery::catalog
