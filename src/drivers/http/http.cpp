#include "drivers/http/http.h"

#include "core/text.h"
#include "jobs/secrets.h"
#include "resource/object.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/system/error_code.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace orrery::drivers {

namespace json = boost::json;
using jobs::Attempt;
using jobs::ErrorClass;
using jobs::Outcome;

namespace {

resource::Field http_fields() {
    using namespace resource;
    return object("http", "A call.")
        .with(text("url", "Where: http:// or https://.").required().format(Format::one_line).between(8, 8192))
        .with(text("method", "GET, HEAD, POST, PUT, PATCH or DELETE. Left out: GET, or POST where there is something to send.")
                  .one_of({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}))
        .with(map("headers", "Header fields.", text("value", "A value.").format(Format::one_line)))
        .with(any("json", "What to send, as JSON."))
        .with(text("body", "Or as it is."))
        .with(list("expect", "Statuses that mean success; left out: 200 to 299.", integer("status", "One.").between(100, 599))
                  .between(1, 100))
        .with(map("values", "Values for later tasks: from a name to a JSON pointer into the answer, as in /server/id.",
                  text("pointer", "A JSON pointer.")))
        .with(duration("timeout", "How long the answer may take; left out: 30s.").between(1, 3600));
}

std::string http_text(const json::object& body, std::string_view key) {
    const auto* value = body.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}

std::string method_of(const json::object& body) {
    auto method = http_text(body, "method");
    if (method.empty()) method = body.contains("json") || body.contains("body") ? "POST" : "GET";
    return method;
}

class HttpExecutor final : public jobs::Executor {
public:
    HttpExecutor(asio::any_io_executor loop, net::HttpClient& client) : loop_(std::move(loop)), client_(client) {}

    std::string_view name() const override { return "http"; }
    Place place() const override { return Place::server; }

    Result<Unit> check(const json::value& body) const override {
        static const resource::Field declared = http_fields();
        std::vector<FieldError> errors;
        if (!body.is_object()) {
            errors.push_back({"", "must be an object with a url"});
        } else {
            auto copy = body.get_object();
            resource::check_fields(declared, copy, "", errors);
            const auto url = http_text(copy, "url");
            if (!url.empty() && url.find("${") == std::string::npos)
                if (auto parsed = net::parse_url(url); !parsed.ok()) errors.push_back({"url", parsed.error().message});
            if (copy.contains("json") && copy.contains("body")) errors.push_back({"body", "cannot stand beside json"});
            if (const auto* values = copy.if_contains("values"); values != nullptr && values->is_object())
                for (const auto& [key, pointer] : values->get_object())
                    if (pointer.is_string() && !pointer.get_string().starts_with("/") && !pointer.get_string().empty())
                        errors.push_back(
                            {fmt::format("values.{}", std::string_view(key)), "must be a JSON pointer, as in /server/id"});
        }
        if (errors.empty()) return Unit{};
        Error error{Code::invalid,
                    errors.size() == 1 ? fmt::format("the http task is wrong: {} {}", errors.front().path, errors.front().message)
                                       : fmt::format("the http task has {} errors", errors.size()),
                    "docs/executors.md shows what may stand there"};
        error.fields = std::move(errors);
        return error;
    }

    Task<Outcome> start(Context ctx, Attempt attempt, jobs::Output& output) override {
        using namespace asio::experimental::awaitable_operators;
        const auto bound = jobs::json_with_secrets(attempt.body, attempt.secrets);
        CO_TRY(std::ignore, check(bound));
        CO_TRY(auto request, request_of(ctx, attempt, bound.get_object()));
        const auto timeout = http_text(bound.get_object(), "timeout");
        const auto within = timeout.empty() ? Duration(std::chrono::seconds(30)) : *parse_duration(timeout);
        const auto method = request.method;
        auto ended = std::make_shared<Notifier>(loop_);
        running_[attempt.id] = ended;
        auto answered = co_await (client_.send(ctx.with_timeout(within), std::move(request)) || ended->wait(Context::background()));
        running_.erase(attempt.id);
        if (answered.index() == 1) {
            if (!std::get<1>(answered).ok()) co_return std::get<1>(answered).error(); // the server stops
            co_return Outcome::failure(ErrorClass::cancelled, "it was ended before an answer came");
        }
        auto& sent = std::get<0>(answered);
        if (!sent.ok()) co_return failed_call(sent.error());
        co_return judge(*sent, bound.get_object(), method, jobs::Masker(attempt.secrets), output);
    }

    Task<jobs::Reattached> reattach(Context ctx, Attempt attempt, jobs::Offsets kept, jobs::Output& output) override {
        const auto method = attempt.body.is_object() ? method_of(attempt.body.get_object()) : "";
        if (method == "GET" || method == "HEAD")
            co_return jobs::Reattached{jobs::Reattached::What::never_began, {}, {}}; // again is as good as once
        co_return jobs::Reattached{
            jobs::Reattached::What::unknown, {}, "the server ended during the call: whether it was heard is not known"};
    }

    Task<Unit> cancel(Context ctx, Attempt attempt) override {
        if (const auto found = running_.find(attempt.id); found != running_.end()) found->second->notify_all();
        co_return Unit{};
    }
    Task<Unit> clean_up(Context ctx, Attempt attempt) override { co_return Unit{}; }

    Task<jobs::Preview> plan(Context ctx, Attempt attempt) override {
        CO_TRY(std::ignore, check(attempt.body));
        const auto& body = attempt.body.get_object();
        jobs::Preview preview;
        const auto method = method_of(body);
        preview.change = method == "GET" || method == "HEAD" ? Outcome::Change::unchanged : Outcome::Change::unknown;
        preview.words = fmt::format("would call {} {}", method, http_text(body, "url")); // secrets still stand as their names
        co_return preview;
    }

private:
    static Result<net::ClientRequest> request_of(const Context& ctx, const Attempt& attempt, const json::object& body) {
        net::ClientRequest request;
        TRY(request.url, net::parse_url(http_text(body, "url")));
        request.method = method_of(body);
        request.max_answer = 1 << 20;
        if (const auto* headers = body.if_contains("headers"))
            for (const auto& [name, value] : headers->get_object())
                request.headers.set(std::string_view(name), std::string(std::string_view(value.get_string())));
        if (const auto* document = body.if_contains("json")) {
            request.body = to_json_text(*document);
            if (!request.headers.has("Content-Type")) request.headers.set("Content-Type", "application/json");
        } else {
            request.body = http_text(body, "body");
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
                         const jobs::Masker& masker, jobs::Output& output) {
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
                                    fmt::format("it answered {} {}", answer.status, net::reason_phrase(answer.status)),
                                    answer.status);
        auto outcome =
            Outcome::success(method == "GET" || method == "HEAD" ? Outcome::Change::unchanged : Outcome::Change::unknown);
        const auto* wanted = body.if_contains("values");
        if (wanted == nullptr || wanted->get_object().empty()) return outcome;
        const auto document = parse_json(answer.body);
        if (!document.ok())
            return Outcome::failure(ErrorClass::failed,
                                    fmt::format("the answer is no JSON to take values from: {}", document.error().message),
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
                return Outcome::failure(ErrorClass::failed, "the values taken from the answer are more than 60,000 bytes",
                                        answer.status);
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
