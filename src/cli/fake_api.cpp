#include "cli/fake_api.h"

#include "cli/kinds.h"
#include "cli/recorded_answers.h"
#include "core/text.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <fmt/format.h>

namespace orrery::cli {

namespace {

constexpr std::string_view fake_kinds = R"({"items":[
 {"kind":"Node","plural":"nodes","names":["node","nodes","no"],"doc":"A machine that orrery manages.","verbs":["create","read","update","remove"],
  "columns":[{"title":"NAME","path":"name"},{"title":"ADDRESS","path":"spec.address"},{"title":"LABELS","path":"labels"},{"title":"AGE","path":"age"},{"title":"PORT","path":"spec.ssh.port","wide":true}],
  "fields":[{"path":"spec.address","type":"text","doc":"How to reach it.","required":true},{"path":"spec.ssh","type":"object","doc":"How to log in."},
            {"path":"spec.ssh.port","type":"integer","doc":"The port.","default":22},{"path":"spec.ssh.key","type":"text","doc":"Private key.","reference":"Secret"},
            {"path":"status.state","type":"text","doc":"How it is.","one_of":["up","down"]}],
  "indexed":["address"],"example":"kind: Node\nname: n1\nspec:\n  address: 192.0.2.1\n"},
 {"kind":"Secret","plural":"secrets","names":["secret","secrets"],"doc":"Something sealed.","verbs":["create","read","update","remove"],
  "columns":[{"title":"NAME","path":"name"},{"title":"AGE","path":"age"}],
  "fields":[{"path":"spec.values","type":"map","doc":"The values."},{"path":"spec.values.*","type":"text","doc":"A value.","secret":true}],"indexed":[],"example":""},
 {"kind":"Event","plural":"events","names":["event","events","ev"],"doc":"Something that happened.","verbs":["read"],
  "columns":[{"title":"TIME","path":"spec.at"},{"title":"SUBJECT","path":"spec.subject"},{"title":"ACTION","path":"spec.action"},{"title":"ACTOR","path":"spec.actor"},
             {"title":"REASON","path":"spec.reason"},{"title":"NAME","path":"name","wide":true}],
  "fields":[{"path":"spec.at","type":"time","doc":"When."}],"indexed":["subject","actor","context"],"example":""},
 {"kind":"Job","plural":"jobs","names":["job","jobs"],"doc":"A graph of tasks.","verbs":["create","read","remove"],
  "columns":[{"title":"STATE","path":"status.state"}],"fields":[{"path":"spec.tasks","type":"list","doc":"The tasks.","required":true}],"indexed":[],"example":""},
 {"kind":"User","plural":"users","names":["user","users"],"doc":"Somebody who may log in.","verbs":["create","read","update","remove"],
  "columns":[{"title":"ROLE","path":"spec.role"},{"title":"DISABLED","path":"spec.disabled"}],"fields":[{"path":"spec.password","type":"text","doc":"","secret":true}],"indexed":[],"example":""},
 {"kind":"Token","plural":"tokens","names":["token","tokens"],"doc":"What a program shows.","verbs":["create","read","remove"],
  "columns":[{"title":"USER","path":"spec.user"},{"title":"EXPIRES","path":"status.expires_at"}],"fields":[{"path":"status.expires_at","type":"time","doc":""}],"indexed":["user"],"example":""}
]})";

std::string etag_of(const json::object& object) {
    return fmt::format("\"{}-store1\"", object.at("revision").to_number<std::int64_t>());
}

void find_changes(const json::value& before, const json::value& after, const std::string& path, json::array& out) {
    if (before == after) return;
    if (before.is_object() && after.is_object()) {
        for (const auto& [name, value] : before.get_object()) {
            const auto* other = after.get_object().if_contains(name);
            find_changes(value, other == nullptr ? json::value{} : *other, path + "." + std::string(name), out);
        }
        for (const auto& [name, value] : after.get_object())
            if (!before.get_object().contains(name)) find_changes({}, value, path + "." + std::string(name), out);
        return;
    }
    out.push_back(json::object{{"path", path}, {"before", before}, {"after", after}});
}

} // namespace

FakeApi::FakeApi(std::shared_ptr<net::TlsContext> tls) {
    net::HttpServer::Options options;
    options.tls = tls;
    server_ =
        std::make_unique<net::HttpServer>(loop_.get_executor(), std::move(options),
                                          [this](Context ctx, net::Request& request, net::BodyReader& body,
                                                 net::ResponseWriter& out) { return serve(std::move(ctx), request, body, out); });
    if (!server_->start().ok()) std::abort();
    url_ = fmt::format("{}://127.0.0.1:{}", tls ? "https" : "http", server_->port());
    thread_ = std::thread([this] { loop_.run(); });
}

FakeApi::~FakeApi() {
    asio::co_spawn(loop_, server_->stop(std::chrono::milliseconds(0)), asio::detached);
    thread_.join();
}

void FakeApi::put(std::string_view plural, json::object object) {
    const std::lock_guard lock(mutex_);
    object["revision"] = ++revision_;
    if (!object.contains("created_at")) object["created_at"] = "2026-11-16T11:00:00.000Z";
    object["updated_at"] = "2026-11-16T11:30:00.000Z";
    auto name = std::string(object.at("name").as_string());
    objects_[std::string(plural)][std::move(name)] = std::move(object);
}

json::object FakeApi::stored(std::string_view plural, std::string_view name) {
    const std::lock_guard lock(mutex_);
    return objects_[std::string(plural)][std::string(name)];
}

bool FakeApi::has(std::string_view plural, std::string_view name) {
    const std::lock_guard lock(mutex_);
    return objects_[std::string(plural)].contains(std::string(name));
}

std::vector<FakeApi::Seen> FakeApi::seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
}

std::vector<std::string> FakeApi::lines() {
    std::vector<std::string> out;
    for (const auto& one : seen())
        if (one.target != "/v1/kinds") out.push_back(one.method + " " + one.target);
    return out;
}

net::Response FakeApi::problem(int status, std::string_view code, std::string_view detail, std::string_view remedy,
                               json::array fields) {
    json::object body{{"title", "x"}, {"status", status}, {"code", code}, {"detail", detail}, {"request_id", "r1"}};
    if (!remedy.empty()) body["remedy"] = remedy;
    if (!fields.empty()) body["fields"] = std::move(fields);
    return {status, {{"Content-Type", "application/problem+json"}}, to_json_text(body)};
}

net::Response FakeApi::recorded(std::string_view name, std::string_view path) {
    static const auto all = json::parse(recorded_answers);
    auto answer = all.at(name).at("answer").as_object();
    std::string detail(answer.at("detail").as_string());
    if (const auto at = detail.find("{path}"); at != std::string::npos) detail.replace(at, 6, path);
    answer["detail"] = detail;
    answer["request_id"] = "r1";
    return {static_cast<int>(answer.at("status").as_int64()), {{"Content-Type", "application/problem+json"}}, to_json_text(answer)};
}

net::Response FakeApi::ok(const json::value& body, int status, net::Headers headers) {
    headers.set("Content-Type", "application/json");
    return {status, std::move(headers), to_json_text(body)};
}

Task<Unit> FakeApi::serve(Context ctx, net::Request& request, net::BodyReader& reader, net::ResponseWriter& out) {
    CO_TRY(const auto body, co_await net::read_all(ctx, reader, 1U << 20U));
    std::string target = request.target.path;
    for (const auto& [name, value] : request.target.query)
        target += fmt::format("{}{}={}", target == request.target.path ? '?' : '&', name, value);
    std::optional<std::string> stream;
    std::optional<net::Response> response;
    {
        const std::lock_guard lock(mutex_);
        seen_.push_back({request.method, target, body, request.headers});
        if (intercept) response = intercept(request, body);
        if (!response && (request.target.param("watch") || request.target.path == "/v1/store/migrate")) {
            stream = streams.empty() ? ": nothing more\n\n" : streams.front();
            if (!streams.empty()) streams.pop_front();
        }
        if (!response && !stream) response = answer(request, body);
    }
    if (response) co_return co_await out.send(ctx, std::move(*response));
    const auto endless = ctx.without_deadline();
    CO_TRY(std::ignore, co_await out.begin(endless, 200, {{"Content-Type", "text/event-stream"}}));
    CO_TRY(std::ignore, co_await out.write(endless, *stream));
    if (stream->ends_with(": nothing more\n\n")) {
        CO_TRY(std::ignore, co_await real_clock().sleep(std::chrono::minutes(5)));
    }
    co_return co_await out.finish(endless);
}

net::Response FakeApi::answer(const net::Request& request, const std::string& body) {
    const auto& path = request.target.path;
    if (path == "/v1/login") {
        const auto given = json::parse(body);
        if (text_of(given, "password") != "one-time" && text_of(given, "password") != "right")
            return recorded("login with a wrong password", path);
        if (text_of(given, "password") == "one-time" && text_of(given, "new_password").empty())
            return recorded("login with a one-time password", path);
        return ok(json::object{
            {"token", "orr_abc"}, {"user", text_of(given, "user")}, {"role", "admin"}, {"expires_at", "2026-11-17T00:00:00.000Z"}});
    }
    if (path == "/readyz") return {200, {{"Content-Type", "text/plain"}}, "ready\n"};
    const auto bearer = request.headers.get("Authorization");
    if (bearer.empty()) return recorded("no token", path);
    if (bearer != "Bearer orr_abc") return recorded("a token that is not valid", path);
    if (path == "/v1/kinds") return ok(json::parse(fake_kinds));
    if (path == "/v1/logout") return {204, {}, {}};
    if (path == "/v1/whoami") return ok(json::object{{"user", "admin"}, {"role", "admin"}, {"via", "token"}});
    if (path == "/v1/store") return ok(json::object{{"engine", "sqlite"}, {"identity", "store1"}, {"revision", 12}, {"keys", 4}});
    if (path == "/v1/store/backup")
        return {200, {{"Content-Type", "application/octet-stream"}, {"X-Revision", "12"}}, "SQLite backup"};
    if (path.ends_with("/password")) return {204, {}, {}};
    std::string_view rest = path;
    if (!rest.starts_with("/v1/")) return recorded("a path that does not exist", path);
    rest.remove_prefix(4);
    const auto slash = rest.find('/');
    return answer_kind(request, std::string(rest.substr(0, slash)),
                       slash == std::string_view::npos ? std::string{} : std::string(rest.substr(slash + 1)), body);
}

net::Response FakeApi::list(const net::Request& request, const std::string& plural) {
    json::array items;
    const auto limit = std::stoul(request.target.param("limit").value_or("500"));
    const auto after = request.target.param("continue").value_or("");
    const auto labels = request.target.param("labels").value_or("");
    json::object out{{"kind", "List"}, {"revision", revision_}};
    const auto matches = [&](const json::object& object) {
        if (const auto equals = labels.find('=');
            equals != std::string::npos && text_of(object, "labels." + labels.substr(0, equals)) != labels.substr(equals + 1))
            return false;
        for (const auto* field : {"subject", "actor", "context", "address"})
            if (const auto wanted = request.target.param(field);
                wanted && text_of(object, fmt::format("spec.{}", field)) != *wanted)
                return false;
        return true;
    };
    std::vector<const json::object*> found;
    for (const auto& [name, object] : objects_[plural])
        if (matches(object)) found.push_back(&object);
    if (request.target.param("order") == "newest") std::reverse(found.begin(), found.end());
    bool begun = after.empty();
    for (const auto* object : found) {
        if (begun && items.size() == limit) {
            out["continue"] = items.back().at("name");
            break;
        }
        if (begun) items.push_back(*object);
        if (object->at("name").as_string() == after) begun = true;
    }
    out["items"] = std::move(items);
    return ok(out);
}

net::Response FakeApi::write(const std::string& plural, const std::string& name, json::object wanted, bool dry_run) {
    auto& of_kind = objects_[plural];
    const auto key = text_of(wanted, "spec.ssh.key");
    if (!key.empty() && !objects_["secrets"].contains(key))
        return problem(
            400, "invalid", fmt::format("{} is not right", name), {},
            {json::object{{"path", "spec.ssh.key"}, {"message", fmt::format("names Secret {}, which does not exist", key)}}});
    const auto before = of_kind.find(name);
    json::array changes;
    json::object object{{"kind", text_of(wanted, "kind")},
                        {"name", name},
                        {"labels", json::object{}},
                        {"spec", json::object{}},
                        {"status", json::object{}}};
    for (const auto* part : {"labels", "spec"})
        if (wanted.contains(part)) object[part] = wanted[part];
    std::string outcome = "created";
    if (before != of_kind.end()) {
        for (const auto* part : {"labels", "spec"}) find_changes(before->second[part], object[part], part, changes);
        outcome = changes.empty() ? "unchanged" : "updated";
    }
    if (!dry_run && outcome != "unchanged") {
        object["revision"] = ++revision_;
        object["created_at"] = object["updated_at"] = "2026-11-16T12:00:00.000Z";
        of_kind[name] = object;
    }
    json::object answer{{"outcome", outcome}, {"dry_run", dry_run}, {"object", object}, {"changes", std::move(changes)}};
    if (plural == "tokens" && !dry_run) answer["once"] = json::object{{"token", "orr_fresh"}};
    return ok(answer, outcome == "created" ? 201 : 200);
}

net::Response FakeApi::answer_kind(const net::Request& request, const std::string& plural, const std::string& name,
                                   const std::string& body) {
    auto& of_kind = objects_[plural];
    const bool dry_run = request.target.param("dry_run") == "true";
    const auto found = of_kind.find(name);
    const auto missing = [&] { return problem(404, "not_found", fmt::format("there is no {} {}", plural, name)); };
    if (request.method == "GET" && name.empty()) return list(request, plural);
    if (request.method == "GET")
        return found == of_kind.end() ? missing() : ok(found->second, 200, {{"ETag", etag_of(found->second)}});
    if (request.method == "DELETE") {
        if (found == of_kind.end()) return missing();
        for (const auto& [node, object] : objects_["nodes"])
            if (plural == "secrets" && text_of(object, "spec.ssh.key") == name)
                return problem(409, "conflict", fmt::format("Secret {} is referred to by Node/{} (spec.ssh.key)", name, node),
                               "change or remove those first",
                               {json::object{{"path", "Node/" + node}, {"message", "spec.ssh.key"}}});
        auto object = found->second;
        if (!dry_run) of_kind.erase(found);
        return ok(
            json::object{{"outcome", "removed"}, {"dry_run", dry_run}, {"object", std::move(object)}, {"changes", json::array{}}});
    }
    auto given = json::parse(body).as_object();
    if (request.method == "PATCH") {
        if (found == of_kind.end()) return missing();
        auto merged = found->second;
        for (const auto& [field, value] : given["spec"].as_object()) merged["spec"].as_object()[field] = value;
        return write(plural, name, std::move(merged), dry_run);
    }
    const auto target = name.empty() ? text_of(given, "name") : name;
    if (request.method == "POST" && of_kind.contains(target))
        return problem(409, "conflict", fmt::format("{} {} exists already", text_of(given, "kind"), target),
                       "choose another name, or replace it");
    if (request.headers.get("If-None-Match") == "*" && found != of_kind.end()) return problem(409, "conflict", "it exists already");
    if (const auto match = request.headers.get("If-Match");
        !match.empty() && (found == of_kind.end() || match != etag_of(found->second)))
        return problem(412, "conflict", "it was changed by another client", "read it again",
                       {json::object{{"path", "If-Match"}, {"message", "is stale"}}});
    return write(plural, target, std::move(given), dry_run);
}

} // namespace orrery::cli
