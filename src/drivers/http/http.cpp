#include "drivers/http/http.h"

#include "core/json_fields.h"
#include "core/text.h"
#include "core/url_text.h"
#include "jobs/secrets.h"
#include "resource/object.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/system/error_code.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace orrery::drivers {

using jobs::Attempt;
using jobs::ErrorClass;
using jobs::Outcome;

namespace {

resource::Field http_fields() {
    using namespace resource;
    return object("http", "A call.")
        .with(text("url", "The URL: http:// or https://.").required().format(Format::one_line).between(8, 8192))
        .with(text("method", "GET, HEAD, POST, PUT, PATCH or DELETE. Default: GET, or POST with json or body.")
                  .one_of({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}))
        .with(map("headers", "Header fields.", text("value", "A value.").format(Format::one_line)))
        .with(any("json", "The body as JSON."))
        .with(text("body", "The body as text, in place of json.").format(Format::data))
        .with(list("expect", "Statuses that mean success. Default: 200 to 299.", integer("status", "A status.").between(100, 599))
                  .between(1, 100))
        .with(map("values", "Values for later tasks, by name: JSON pointers into the answer, such as /server/id.",
                  text("pointer", "A JSON pointer.")))
        .with(duration("timeout", "Time limit of the call. Default: 30s.").between(1, 3600));
}

std::string method_of(const json::object& body) {
    auto method = text_at(body, "method");
    if (method.empty()) method = body.contains("json") || body.contains("body") ? "POST" : "GET";
    return method;
}

/// The end of scheme and authority in an unbound URL. References before it are replaced by their values as they are
/// (`http://${service.web.first}/`, `${with.base}/x`).
std::size_t end_of_authority(std::string_view url) {
    const auto scheme = url.find("://");
    std::size_t at = scheme == url.npos || url.find("${") < scheme ? 0 : scheme + 3;
    while (at < url.size() && url[at] != '/' && url[at] != '?' && url[at] != '#') {
        const auto closing = url.compare(at, 2, "${") == 0 ? url.find('}', at) : url.npos;
        at = closing == url.npos ? at + 1 : closing + 1;
    }
    return at;
}

/// Key in the body of an attempt: path and query of the URL, as a list of texts and, for each reference, a list with its value.
constexpr std::string_view url_parts = "orrery_url_parts";

json::array parts_of_url(std::string_view url) {
    json::array out;
    std::size_t from = 0;
    for (auto at = url.find("${"); at != url.npos; at = url.find("${", at + 2)) {
        if (at > 0 && url[at - 1] == '$') continue; // "$${" is a dollar sign and a brace
        const auto closing = url.find('}', at);
        if (closing == url.npos) break;
        out.emplace_back(url.substr(from, at - from));
        out.push_back(json::array{url.substr(at, closing + 1 - at)});
        from = closing + 1;
    }
    out.emplace_back(url.substr(from));
    return out;
}

std::string text_of_part(const json::value& value) {
    if (const auto* text = value.if_string()) return std::string(std::string_view(*text));
    const auto* list = value.if_array();
    if (list == nullptr) return to_json_text(value);
    std::string out;
    for (const auto& item : *list) out += (out.empty() ? "" : ",") + text_of_part(item);
    return out;
}

/// A bound body with its URL joined. A value in the path or query is one segment or parameter, whatever it holds.
Result<json::value> with_joined_url(json::value body, bool encoded) {
    const auto* parts = body.is_object() ? body.get_object().if_contains(url_parts) : nullptr;
    if (parts == nullptr || !parts->is_array()) return body;
    std::string tail;
    for (const auto& part : parts->get_array())
        tail += part.is_string() ? std::string(std::string_view(part.get_string()))
                : encoded        ? net::percent_encode(text_of_part(part))
                                 : text_of_part(part);
    const auto path = tail.substr(0, tail.find_first_of("?#")) + "/";
    for (const auto* dots : {"/./", "/../"})
        if (encoded && path.find(dots) != path.npos)
            return Error{Code::invalid, fmt::format("a value makes the path of the url {}, which leads out of the path", path),
                         "check the value in an earlier task"};
    auto& object = body.get_object();
    object.erase(url_parts);
    object["url"] = text_at(object, "url") + tail;
    return body;
}

class HttpExecutor final : public jobs::Executor {
public:
    HttpExecutor(asio::any_io_executor loop, net::HttpClient& client) : loop_(std::move(loop)), client_(client) {}

    std::string_view name() const override { return "http"; }
    TargetType target_type() const override { return TargetType::server; }

    std::optional<std::vector<std::string>> published(const json::value& body) const override {
        std::vector<std::string> out;
        const auto* values = body.is_object() ? body.get_object().if_contains("values") : nullptr;
        if (values != nullptr && values->is_object())
            for (const auto& [name, pointer] : values->get_object()) out.emplace_back(std::string_view(name));
        return out;
    }
    Result<Unit> check(const json::value& body) const override {
        static const resource::Field declared = http_fields();
        std::vector<FieldError> errors;
        if (!body.is_object()) {
            errors.push_back({"", "must be an object with a url"});
        } else {
            auto copy = body.get_object();
            resource::check_fields(declared, copy, "", errors);
            const auto url = text_at(copy, "url");
            if (!url.empty() && url.find("${") == std::string::npos)
                if (auto parsed = net::parse_url(url); !parsed.ok()) errors.push_back({"url", parsed.error().message});
            if (url.find("${") != std::string::npos && has_userinfo(url))
                errors.push_back({"url", "must not hold a user or a password: send them in a header, from a Secret"});
            if (copy.contains("json") && copy.contains("body")) errors.push_back({"body", "cannot be used together with json"});
            if (const auto* values = copy.if_contains("values"); values != nullptr && values->is_object())
                for (const auto& [key, pointer] : values->get_object())
                    if (pointer.is_string() && !pointer.get_string().starts_with("/") && !pointer.get_string().empty())
                        errors.push_back(
                            {fmt::format("values.{}", std::string_view(key)), "must be a JSON pointer, as in /server/id"});
        }
        if (errors.empty()) return Unit{};
        Error error{Code::invalid,
                    errors.size() == 1
                        ? fmt::format("the http task is not valid: {} {}", errors.front().path, errors.front().message)
                        : fmt::format("the http task has {} errors", errors.size()),
                    "docs/executors.md lists the fields"};
        error.fields = std::move(errors);
        return error;
    }

    Result<jobs::SeparatedBody> separate_values(const json::value& body) const override {
        jobs::SeparatedBody out{body, {}, {}};
        if (!body.is_object()) return out;
        const auto url = text_at(body.get_object(), "url");
        const auto end = end_of_authority(url);
        if (url.find("${", end) == url.npos) return out;
        out.body.get_object()["url"] = url.substr(0, end);
        out.body.get_object()[url_parts] = parts_of_url(std::string_view(url).substr(end));
        return out;
    }

    Task<Outcome> start(Context ctx, const Attempt& attempt, jobs::Output& output) override {
        using namespace asio::experimental::awaitable_operators;
        CO_TRY(const auto joined, with_joined_url(attempt.body, true));
        CO_TRY(std::ignore, check(joined));
        const auto& body = joined.get_object();
        CO_TRY(auto request, request_of(ctx, attempt, body));
        const auto timeout = text_at(body, "timeout");
        const auto within = timeout.empty() ? Duration(std::chrono::seconds(30)) : *parse_duration(timeout);
        const auto method = request.method;
        auto ended = std::make_shared<Notifier>(loop_);
        running_[attempt.id] = ended;
        auto answered = co_await (client_.send(ctx.with_timeout(within), std::move(request)) || ended->wait(Context::background()));
        running_.erase(attempt.id);
        if (answered.index() == 1) {
            if (!std::get<1>(answered).ok()) co_return std::get<1>(answered).error(); // the server stops
            co_return Outcome::failure(ErrorClass::cancelled, "cancelled before the answer arrived");
        }
        auto& sent = std::get<0>(answered);
        if (!sent.ok()) co_return failed_call(sent.error());
        co_return judge(*sent, body, method, Masker(attempt.secrets), output);
    }

    Task<jobs::Reattached> reattach(Context ctx, const Attempt& attempt, jobs::Offsets kept, jobs::Output& output) override {
        const auto method = attempt.body.is_object() ? method_of(attempt.body.get_object()) : "";
        if (method == "GET" || method == "HEAD")
            co_return jobs::Reattached{jobs::Reattached::State::not_started, {}, {}}; // repeating the call is safe
        co_return jobs::Reattached{
            jobs::Reattached::State::unknown, {}, "the server stopped during the call; whether the peer handled it is unknown"};
    }

    Task<Unit> cancel(Context ctx, const Attempt& attempt) override {
        if (const auto found = running_.find(attempt.id); found != running_.end()) found->second->notify_all();
        co_return Unit{};
    }
    Task<Unit> clean_up(Context ctx, const Attempt& attempt) override { co_return Unit{}; }

    Task<jobs::Preview> plan(Context ctx, const Attempt& attempt) override {
        CO_TRY(const auto joined, with_joined_url(attempt.body, false));
        CO_TRY(std::ignore, check(joined));
        const auto& body = joined.get_object();
        jobs::Preview preview;
        const auto method = method_of(body);
        preview.change = method == "GET" || method == "HEAD" ? Outcome::Change::unchanged : Outcome::Change::unknown;
        preview.message = fmt::format("would call {} {}", method, text_at(body, "url")); // secrets are still references here
        co_return preview;
    }

private:
    static Result<net::ClientRequest> request_of(const Context& ctx, const Attempt& attempt, const json::object& body) {
        net::ClientRequest request;
        TRY(request.url, net::parse_url(text_at(body, "url")));
        request.method = method_of(body);
        request.max_answer = 1 << 20;
        if (const auto* headers = body.if_contains("headers"))
            for (const auto& [name, value] : headers->get_object())
                request.headers.set(std::string_view(name), std::string(std::string_view(value.get_string())));
        if (const auto* document = body.if_contains("json")) {
            request.body = to_json_text(*document);
            if (!request.headers.has("Content-Type")) request.headers.set("Content-Type", "application/json");
        } else {
            request.body = text_at(body, "body");
        }
        if (request.method != "GET" && request.method != "HEAD") request.headers.set("Idempotency-Key", attempt.id);
        return request;
    }

    static Outcome failed_call(const Error& error) {
        const auto kind = error.code == Code::timeout                                        ? ErrorClass::timeout
                          : error.code == Code::unavailable || error.code == Code::throttled ? ErrorClass::connect
                                                                                             : ErrorClass::refused;
        return Outcome::failure(kind, error.remedy.empty() ? error.message : fmt::format("{} ({})", error.message, error.remedy));
    }

    static Outcome judge(const net::ClientResponse& answer, const json::object& body, const std::string& method,
                         const Masker& masker, jobs::Output& output) {
        auto shown = fmt::format("HTTP {} {}\n{}", answer.status, net::reason_phrase(answer.status),
                                 masker.mask_cut(answer.body.substr(0, 64 * 1024)));
        if (!shown.ends_with('\n')) shown += '\n';
        output.write(jobs::Stream::out, 0, shown);
        bool good = answer.status >= 200 && answer.status < 300;
        if (const auto* expected = body.if_contains("expect")) {
            const auto& list = expected->get_array();
            good = std::any_of(list.begin(), list.end(), [&answer](const json::value& status) {
                return status.is_int64() && status.get_int64() == answer.status;
            });
        }
        if (!good)
            return Outcome::failure(ErrorClass::failed,
                                    fmt::format("the peer answered {} {}", answer.status, net::reason_phrase(answer.status)),
                                    answer.status);
        auto outcome =
            Outcome::success(method == "GET" || method == "HEAD" ? Outcome::Change::unchanged : Outcome::Change::unknown);
        const auto* wanted = body.if_contains("values");
        if (wanted == nullptr || wanted->get_object().empty()) return outcome;
        const auto document = parse_json(answer.body);
        if (!document.ok())
            return Outcome::failure(ErrorClass::failed,
                                    fmt::format("the answer is not JSON, so it has no values: {}", document.error().message),
                                    answer.status);
        std::size_t size = 0;
        for (const auto& [name, pointer] : wanted->get_object()) {
            boost::system::error_code error;
            const std::string_view path = pointer.get_string();
            const auto* found = document->find_pointer(path, error);
            if (found == nullptr || error)
                return Outcome::failure(ErrorClass::failed,
                                        fmt::format("the answer has nothing at {} for the value {}", path, std::string_view(name)),
                                        answer.status);
            size += to_json_text(*found).size();
            if (size > 60'000)
                return Outcome::failure(ErrorClass::failed, "the values of the answer have more than 60,000 bytes", answer.status);
            outcome.values[name] = *found;
        }
        return outcome;
    }

    asio::any_io_executor loop_;
    net::HttpClient& client_;
    std::map<std::string, std::shared_ptr<Notifier>> running_;
};

} // namespace

std::unique_ptr<jobs::Executor> http_executor(asio::any_io_executor loop, net::HttpClient& client) {
    return std::make_unique<HttpExecutor>(std::move(loop), client);
}

} // namespace orrery::drivers
