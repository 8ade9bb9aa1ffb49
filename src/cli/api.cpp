#include "cli/api.h"

#include "core/json_fields.h"
#include "core/text.h"
#include "core/url_text.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

namespace orrery::cli {

namespace {

constexpr std::size_t max_event_bytes = 32U << 20U;
constexpr std::size_t max_answer_bytes = 256U << 20U;
/// The server sends a heartbeat every 15 s; after three missed heartbeats the connection counts as dead.
constexpr auto stream_timeout = std::chrono::seconds(45);

/// Responses may be larger than any document that a person writes, so the limits of core/text.h do not apply.
std::optional<json::value> answer_json(std::string_view text) {
    boost::system::error_code error;
    json::parse_options options;
    options.max_depth = 128;
    auto value = json::parse(text, error, {}, options);
    if (error) return std::nullopt;
    return value;
}

template <class T> asio::awaitable<void> keep_result(Task<T> work, std::shared_ptr<Result<T>> result) {
    *result = co_await std::move(work);
}

Task<net::ClientResponse> send_and_stay(net::HttpClient& client, Context ctx, net::ClientRequest request) {
    co_return co_await client.send(std::move(ctx), std::move(request));
}
Task<std::unique_ptr<net::ClientStream>> open_and_stay(net::HttpClient& client, Context ctx, net::ClientRequest request) {
    co_return co_await client.open(std::move(ctx), std::move(request));
}

} // namespace

Result<std::vector<ServerEvent>> EventParser::feed(std::string_view piece) {
    buffer_ += piece;
    std::vector<ServerEvent> out;
    std::size_t begin = 0;
    for (auto end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n', begin)) {
        auto text = std::string_view(buffer_).substr(begin, end - begin);
        if (text.ends_with('\r')) text.remove_suffix(1);
        line(text, out);
        begin = end + 1;
    }
    buffer_.erase(0, begin);
    if (buffer_.size() > max_event_bytes || pending_.data.size() > max_event_bytes)
        return Error{Code::too_large, "an event of the stream is larger than 32 MiB"};
    return out;
}

void EventParser::line(std::string_view line, std::vector<ServerEvent>& out) {
    if (line.empty()) {
        if (!pending_.id.empty()) last_id_ = pending_.id;
        if (has_data_) {
            pending_.data.pop_back(); // the newline after the last line
            pending_.id = last_id_;
            out.push_back(std::move(pending_));
        }
        pending_ = {};
        has_data_ = false;
        return;
    }
    const auto colon = std::min(line.find(':'), line.size());
    const auto name = line.substr(0, colon);
    auto value = line.substr(std::min(colon + 1, line.size()));
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (name == "id")
        pending_.id = value;
    else if (name == "event")
        pending_.event = value;
    else if (name == "data") {
        pending_.data.append(value).push_back('\n');
        has_data_ = true;
    }
}

/// The event loop, the client on it, and the handling of interrupts.
struct Api::State {
    asio::io_context loop{1};
    std::unique_ptr<net::HttpClient> client;
    asio::signal_set signals{loop};
    std::optional<asio::cancellation_signal> cancel;
    bool interrupted = false;

    void watch_signals() {
        signals.add(SIGINT);
        signals.add(SIGTERM);
        wait_for_signal();
    }
    void wait_for_signal() {
        signals.async_wait([this](const boost::system::error_code& error, int) {
            if (error) return;
            if (interrupted) std::_Exit(130); // second interrupt: end at once, even if a call hangs
            interrupted = true;
            if (cancel) cancel->emit(asio::cancellation_type::terminal);
            wait_for_signal();
        });
    }

    template <class T> Result<T> await(Task<T> work) {
        const Error stopped{Code::cancelled, "interrupted"};
        loop.restart();
        loop.poll(); // delivers an interrupt that arrived between two calls
        if (interrupted) return stopped;
        auto result = std::make_shared<Result<T>>();
        std::exception_ptr failure;
        bool done = false;
        cancel.emplace();
        asio::co_spawn(loop, keep_result(std::move(work), result),
                       asio::bind_cancellation_slot(cancel->slot(), [&](std::exception_ptr exception) {
                           failure = std::move(exception);
                           done = true;
                       }));
        loop.restart();
        while (!done && loop.run_one() > 0) {
        }
        cancel.reset();
        if (interrupted) return stopped;
        if (failure) {
            try {
                std::rethrow_exception(failure);
            } catch (const std::exception& exception) {
                return Error{Code::internal, fmt::format("the request failed: {}", exception.what())};
            }
        }
        return std::move(*result);
    }
};

Api::Api(Options options) : options_(std::move(options)), state_(std::make_unique<State>()) {}

Api::~Api() {
    boost::system::error_code ignored;
    state_->signals.cancel(ignored);
    bool done = false;
    asio::co_spawn(state_->loop, state_->client->stop(), [&](const std::exception_ptr&) { done = true; });
    state_->loop.restart();
    while (!done && state_->loop.run_one() > 0) {
    }
}

Result<std::unique_ptr<Api>> Api::make(Options options) {
    while (options.server.ends_with('/')) options.server.pop_back();
    auto url = net::parse_url(options.server);
    if (!url.ok())
        return Error{Code::invalid,
                     fmt::format("\"{}\" is not the URL of a server: {}", mask_userinfo(options.server), url.error().message),
                     "give a URL such as https://orrery.example.org:8421"};
    net::HttpClient::Options client;
    if (url->scheme == "https") {
        TRY(client.tls, net::tls_client({.ca = options.ca, .certificate = {}, .key = {}}));
    }
    std::unique_ptr<Api> api(new Api(std::move(options)));
    api->state_->client = std::make_unique<net::HttpClient>(api->state_->loop.get_executor(), std::move(client));
    api->state_->watch_signals();
    return api;
}

bool Api::interrupted() const { return state_->interrupted; }

Result<net::ClientRequest> Api::request(std::string method, std::string target, const std::optional<json::value>& body,
                                        net::Headers headers) const {
    net::ClientRequest request;
    request.method = std::move(method);
    TRY(request.url, net::parse_url(options_.server + target));
    request.headers = std::move(headers);
    if (!request.headers.has("Accept")) request.headers.set("Accept", "application/json");
    if (!options_.token.empty()) request.headers.set("Authorization", "Bearer " + options_.token);
    if (body) {
        request.body = to_json_text(*body);
        if (!request.headers.has("Content-Type")) request.headers.set("Content-Type", "application/json");
    }
    request.max_answer = max_answer_bytes;
    return request;
}

namespace {

/// "--dry-run" for the query parameter "?dry_run": users gave an option, not a parameter. Other paths are unchanged.
std::string option_of(std::string path) {
    if (!path.starts_with('?')) return path;
    std::replace(path.begin(), path.end(), '_', '-');
    return "--" + path.substr(1);
}

} // namespace

Error Api::problem(int status, const net::Headers& headers, std::string_view body) {
    Error error{Code::internal, {}};
    const auto parsed = answer_json(body);
    if (parsed && parsed->is_object()) {
        last_problem_ = parsed->get_object();
        error =
            Error{code_named(text_at(last_problem_, "code")), text_at(last_problem_, "detail"), text_at(last_problem_, "remedy")};
        if (const auto* fields = last_problem_.if_contains("fields"); fields != nullptr && fields->is_array())
            for (const auto& field : fields->get_array()) {
                if (!field.is_object()) continue;
                error.fields.push_back({option_of(text_at(field.get_object(), "path")), text_at(field.get_object(), "message")});
            }
    }
    if (error.message.empty()) { // not a problem document: a proxy, or not an orrery server
        error.message = fmt::format("{} answered {} {}", options_.server, status, net::reason_phrase(status));
        error.code = status == 401   ? Code::unauthenticated
                     : status == 403 ? Code::denied
                     : status == 404 ? Code::not_found
                     : status >= 502 ? Code::unavailable
                                     : Code::internal;
        if (error.remedy.empty() && error.code == Code::not_found)
            error.remedy = "check that this is the address of an orrery server";
    }
    if (error.code == Code::unauthenticated && options_.token.empty() && !options_.anonymous)
        error = Error{Code::unauthenticated, fmt::format("you are not logged in to {}", options_.server), "orrery login"};
    if (error.code == Code::internal && error.remedy.empty() && headers.has("X-Request-Id"))
        error.remedy = fmt::format("see the log of the server: orrery logs --context {}", headers.get("X-Request-Id"));
    return error;
}

namespace {

/// Adds the server and a remedy to an error of the connection.
Error connection_error(Error error, const Api::Options& options, Duration timeout) {
    if (error.code == Code::timeout) {
        error.message = fmt::format("{} did not answer within {}", options.server, to_text(timeout));
        error.remedy = "try again, or increase --timeout";
    }
    if (error.code == Code::unavailable)
        error.remedy = options.server.starts_with("http://") && error.message.find("closed the connection") != std::string::npos
                           ? fmt::format("if the server uses TLS, use https://{}", options.server.substr(7))
                           : "check that the server runs and that --server or ORRERY_SERVER is its address";
    if (error.code == Code::denied) error.remedy = "give the CA certificate of the server with --ca FILE";
    return error;
}

} // namespace

Result<Answer> Api::call(std::string method, std::string target, std::optional<json::value> body, net::Headers headers) {
    last_status_ = 0;
    last_problem_ = {};
    TRY(auto wanted, request(std::move(method), std::move(target), body, std::move(headers)));
    auto response =
        state_->await(send_and_stay(*state_->client, Context::make("cli").with_timeout(options_.timeout), std::move(wanted)));
    if (!response.ok()) return connection_error(std::move(response).error(), options_, options_.timeout);
    last_status_ = response->status;
    if (response->status < 200 || response->status > 299) return problem(response->status, response->headers, response->body);
    Answer answer{response->status, std::move(response->headers), nullptr};
    if (!response->body.empty()) {
        auto parsed = answer_json(response->body);
        if (!parsed)
            return Error{Code::internal, fmt::format("the response of {} is not JSON", options_.server),
                         "check that this is the address of an orrery server"};
        answer.body = std::move(*parsed);
    }
    return answer;
}

class Api::OpenStream final : public Api::Stream {
public:
    OpenStream(Api& api, std::unique_ptr<net::ClientStream> stream) : api_(api), stream_(std::move(stream)) {}

    Result<std::optional<ServerEvent>> next() override {
        while (ready_.empty()) {
            auto piece = api_.state_->await(stream_->body().read_some(Context::make("cli").with_timeout(stream_timeout)));
            if (!piece.ok()) return connection_error(std::move(piece).error(), api_.options_, stream_timeout);
            if (piece->empty()) return std::optional<ServerEvent>{};
            TRY(auto events, parser_.feed(*piece));
            for (auto& event : events) ready_.push_back(std::move(event));
        }
        auto event = std::move(ready_.front());
        ready_.pop_front();
        return std::optional<ServerEvent>{std::move(event)};
    }
    const std::string& last_id() const override { return parser_.last_id(); }

private:
    Api& api_;
    std::unique_ptr<net::ClientStream> stream_;
    EventParser parser_;
    std::deque<ServerEvent> ready_;
};

Result<std::unique_ptr<Api::Stream>> Api::stream(std::string method, std::string target, std::optional<json::value> body,
                                                 net::Headers headers) {
    last_status_ = 0;
    last_problem_ = {};
    headers.set("Accept", "text/event-stream");
    TRY(auto wanted, request(std::move(method), std::move(target), body, std::move(headers)));
    const auto ctx = Context::make("cli").with_timeout(options_.timeout);
    auto opened = state_->await(open_and_stay(*state_->client, ctx, std::move(wanted)));
    if (!opened.ok()) return connection_error(std::move(opened).error(), options_, options_.timeout);
    last_status_ = (*opened)->status();
    if (last_status_ == 200) return std::unique_ptr<Stream>(new OpenStream(*this, std::move(*opened)));
    auto text = state_->await(net::read_all(ctx, (*opened)->body(), 1U << 20U));
    return problem(last_status_, (*opened)->headers(), text.ok() ? *text : std::string{});
}

Result<net::Headers> Api::download(std::string method, std::string target, std::function<Result<Unit>(std::string_view)> on_piece) {
    last_status_ = 0;
    last_problem_ = {};
    TRY(auto wanted, request(std::move(method), std::move(target), {}, {{"Accept", "application/octet-stream"}}));
    wanted.max_answer = std::size_t{1} << 50U;
    // The server may need long to prepare the response: the time to the first byte has a limit of its own.
    const auto first_byte_timeout = std::max<Duration>(options_.timeout, std::chrono::minutes(10));
    auto opened =
        state_->await(open_and_stay(*state_->client, Context::make("cli").with_timeout(first_byte_timeout), std::move(wanted)));
    if (!opened.ok()) return connection_error(std::move(opened).error(), options_, first_byte_timeout);
    auto& stream = **opened;
    last_status_ = stream.status();
    if (last_status_ != 200) {
        auto text = state_->await(net::read_all(Context::make("cli").with_timeout(options_.timeout), stream.body(), 1U << 20U));
        return problem(last_status_, stream.headers(), text.ok() ? *text : std::string{});
    }
    for (;;) {
        auto piece = state_->await(stream.body().read_some(Context::make("cli").with_timeout(std::chrono::seconds(60))));
        if (!piece.ok()) return connection_error(std::move(piece).error(), options_, std::chrono::seconds(60));
        if (piece->empty()) return stream.headers();
        TRY(std::ignore, on_piece(*piece));
    }
}

namespace {
Task<Unit> sleep_and_stay(Duration time) { co_return co_await real_clock().sleep(time); }
} // namespace

Result<Unit> Api::pause(Duration time) { return state_->await(sleep_and_stay(time)); }

} // namespace orrery::cli
