#include "net/http_client.h"

#include "net/http_exchange.h"
#include "net/http_pool.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace orrery::net {

using namespace std::chrono_literals;

struct HttpClient::State {
    std::shared_ptr<HttpPool> pool;
};

namespace {

constexpr auto default_deadline = 30s;
using More = std::function<Task<std::string>()>;

Task<std::unique_ptr<HttpExchange>> begin_exchange(std::shared_ptr<HttpPool> pool, Context ctx, ClientRequest request, More more) {
    CO_TRY(const auto head, request_head(ctx, request, static_cast<bool>(more)));
    const bool chunked = more && !request.headers.has("Content-Length");
    // A body that is made as it is sent cannot be sent again, so it gets a connection that cannot be stale.
    auto use = more ? HttpPool::Use::fresh : HttpPool::Use::idle_first;
    for (;;) {
        CO_TRY(auto lease, co_await pool->acquire(ctx, request.url, use));
        if (!lease) {
            CO_TRY(std::ignore, co_await pool->connect(ctx, request.url, lease));
        }
        const bool reused = lease->reused;
        auto exchange = std::make_unique<HttpExchange>(std::move(lease), request.url.origin());
        auto started = co_await exchange->start(head, request.body, more, chunked, request.method == "HEAD");
        if (started.ok()) co_return std::move(exchange);
        const bool went_stale = reused && exchange->has_no_response() && started.error().code == Code::unavailable;
        if (!went_stale || use == HttpPool::Use::fresh) co_return std::move(started).error();
        use = HttpPool::Use::fresh;
    }
}

bool is_harmless_field(std::string_view name) {
    static constexpr std::string_view harmless[] = {"Accept",        "Accept-Encoding",   "Accept-Language", "Cache-Control",
                                                    "If-None-Match", "If-Modified-Since", "Range",           "User-Agent"};
    const Headers one{{std::string(name), ""}};
    return std::any_of(std::begin(harmless), std::end(harmless), [&one](std::string_view field) { return one.has(field); });
}

/// The request that follows a redirect; nothing where the answer is not one to follow.
Result<std::optional<ClientRequest>> redirected(const ClientRequest& request, int status, const Headers& headers, int hops) {
    const bool is_redirect = status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
    if (!is_redirect || request.follow_redirects == 0 || !headers.has("Location") ||
        (request.method != "GET" && request.method != "HEAD"))
        return std::optional<ClientRequest>();
    if (hops >= request.follow_redirects)
        return Error{Code::unavailable,
                     fmt::format("{} redirects more than {} times", request.url.origin(), request.follow_redirects)};
    auto url = resolve_location(request.url, headers.get("Location"));
    if (!url.ok())
        return std::move(url).error().within(fmt::format("{} redirects to a place that cannot be followed", request.url.origin()));
    if (request.url.scheme == "https" && url->scheme == "http")
        return Error{Code::denied, fmt::format("{} redirects to {}, which is not encrypted", request.url.origin(), url->origin())};
    std::optional<ClientRequest> next(request);
    if (url->origin() != request.url.origin()) {
        next->headers = {};
        for (const auto& [name, value] : request.headers)
            if (is_harmless_field(name)) next->headers.add(name, value);
    }
    next->url = std::move(*url);
    return next;
}

Task<std::unique_ptr<HttpExchange>> follow(std::shared_ptr<HttpPool> pool, Context ctx, ClientRequest request, More more) {
    co_await asio::this_coro::throw_if_cancelled(false);
    for (int hops = 0;; ++hops) {
        CO_TRY(auto exchange, co_await begin_exchange(pool, ctx, request, more));
        CO_TRY(auto next, redirected(request, exchange->status(), exchange->headers(), hops));
        if (!next) co_return std::move(exchange);
        std::ignore = co_await exchange->collect(64 * 1024); // short ones leave the connection usable
        exchange.reset();
        request = std::move(*next);
    }
}

Task<ClientResponse> follow_and_collect(std::shared_ptr<HttpPool> pool, Context ctx, ClientRequest request, More more) {
    const auto limit = request.max_answer;
    CO_TRY(auto exchange, co_await follow(std::move(pool), ctx, std::move(request), std::move(more)));
    CO_TRY(auto body, co_await exchange->collect(limit));
    co_return ClientResponse{exchange->status(), std::move(exchange->headers()), std::move(body)};
}

template <class T> Result<T> naming_peer(Result<T> result, const std::string& origin) {
    if (!result.ok() && result.error().code == Code::timeout && result.error().message == "the deadline passed")
        return Error{Code::timeout, fmt::format("{} did not answer in time", origin), "check that service, or allow more time"};
    return result;
}

Context bounded(const Context& ctx) { return ctx.deadline() ? ctx : ctx.with_timeout(default_deadline); }

} // namespace

HttpClient::HttpClient(asio::any_io_executor executor, Options options) : state_(std::make_shared<State>()) {
    state_->pool = std::make_shared<HttpPool>(std::move(executor), std::move(options));
}

HttpClient::~HttpClient() { state_->pool->stop(); }

Task<ClientResponse> HttpClient::send(Context ctx, ClientRequest request) {
    const auto origin = request.url.origin();
    ctx = bounded(ctx);
    auto answer = co_await within_deadline(ctx, follow_and_collect(state_->pool, ctx, std::move(request), {}));
    co_return naming_peer(std::move(answer), origin);
}

Task<ClientResponse> HttpClient::upload(Context ctx, ClientRequest request, std::function<Task<std::string>()> more) {
    const auto origin = request.url.origin();
    ctx = bounded(ctx);
    request.follow_redirects = 0;
    auto answer = co_await within_deadline(ctx, follow_and_collect(state_->pool, ctx, std::move(request), std::move(more)));
    co_return naming_peer(std::move(answer), origin);
}

Task<std::unique_ptr<ClientStream>> HttpClient::open(Context ctx, ClientRequest request) {
    const auto origin = request.url.origin();
    ctx = bounded(ctx);
    auto exchange = naming_peer(co_await within_deadline(ctx, follow(state_->pool, ctx, std::move(request), {})), origin);
    if (!exchange.ok()) co_return std::move(exchange).error();
    co_return std::unique_ptr<ClientStream>(std::move(*exchange));
}

asio::awaitable<void> HttpClient::stop() {
    state_->pool->stop();
    co_return;
}

} // namespace orrery::net
