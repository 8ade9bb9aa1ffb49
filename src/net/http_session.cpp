#include "net/http_session.h"

#include "core/log.h"

#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>

namespace orrery::net {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t first_buffer = 4096;
constexpr std::size_t idle_buffer = 16 * 1024;
constexpr std::size_t body_buffer = 64 * 1024;
constexpr unsigned requests_without_yield = 64;
constexpr auto close_at_most = 2000ms;

SteadyTime steady_now() { return std::chrono::steady_clock::now(); }

bool same_letters(std::string_view a, std::string_view lower) {
    return a.size() == lower.size() &&
           std::equal(a.begin(), a.end(), lower.begin(), [](char x, char y) { return (x >= 'A' && x <= 'Z' ? x + 32 : x) == y; });
}

/// The target of a request in absolute form ("http://host/path"), which RFC 9112 3.2.2 has every server accept, as its origin form.
std::string_view origin_form(std::string& target) {
    for (const std::string_view scheme : {"http://", "https://"}) {
        if (!same_letters(std::string_view(target).substr(0, scheme.size()), scheme)) continue;
        const auto path = target.find_first_of("/?", scheme.size());
        target = path == std::string::npos ? "/" : target.substr(path);
        if (target.front() == '?') target.insert(0, "/");
        break;
    }
    return target;
}

bool is_request_id(std::string_view id) {
    return !id.empty() && id.size() <= 64 &&
           id.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == std::string_view::npos;
}

/// Runs of a handler end in a Result, whatever libraries threw on the way.
Error error_of(std::exception_ptr exception) {
    try {
        std::rethrow_exception(std::move(exception));
    } catch (const boost::system::system_error& error) {
        if (error.code() == asio::error::operation_aborted) return Error{Code::cancelled, "the request was cancelled"};
        return Error{Code::internal, fmt::format("the request failed: {}", error.what())};
    } catch (const std::exception& error) {
        return Error{Code::internal, fmt::format("the request failed: {}", error.what())};
    } catch (...) {
        return Error{Code::internal, "the request failed"};
    }
}

} // namespace

HttpSession::HttpSession(std::shared_ptr<ServerShared> shared, std::unique_ptr<ByteStream> stream, std::string peer, bool tls)
    : shared_(std::move(shared)), stream_(std::move(stream)), parser_(MessageParser::Kind::request, shared_->options.max_head) {
    request_.peer = std::move(peer);
    request_.tls = tls;
}

asio::awaitable<void> HttpSession::run() {
    // A cancelled handler must still be able to finish its stream: only the awaited operation fails, not later ones.
    co_await asio::this_coro::throw_if_cancelled(false);
    if (request_.tls) {
        auto& tls = static_cast<TlsServerStream&>(*stream_);
        reading_ = true;
        read_deadline_ = steady_now() + shared_->options.head_timeout;
        const auto error = co_await tls.handshake();
        reading_ = false;
        if (error || closed_) co_return stream_->close();
        request_.client_certificate = tls.client_name();
    }
    while (co_await serve_one()) {
    }
    co_await close_gently();
}

asio::awaitable<void> HttpSession::refuse() {
    co_await asio::this_coro::throw_if_cancelled(false);
    co_await answer_fault(503, Error{Code::unavailable,
                                     fmt::format("the server has all {} connections it allows", shared_->options.max_connections),
                                     "try again in a moment"});
    body_broken_ = true; // its request was never read
    co_await close_gently();
}

asio::awaitable<bool> HttpSession::fill(SteadyTime deadline) {
    if (closed_) co_return false;
    if (taken_ == filled_) taken_ = filled_ = 0;
    if (filled_ == buffer_.size()) {
        const auto most = std::max(shared_->options.max_head, phase_ == Phase::handling ? body_buffer : 0);
        if (taken_ > 0) {
            std::memmove(buffer_.data(), buffer_.data() + taken_, filled_ - taken_);
            filled_ -= taken_;
            taken_ = 0;
        } else if (buffer_.size() < most) {
            buffer_.resize(std::min(most, std::max(first_buffer, buffer_.size() * 4)));
        } else {
            co_return false; // an element of the message that does not fit
        }
    }
    without_yield_ = 0;
    reading_ = true;
    read_timed_out_ = false;
    read_deadline_ = deadline;
    const auto io = co_await stream_->read_some(buffer_.data() + filled_, buffer_.size() - filled_);
    reading_ = false;
    filled_ += io.bytes;
    if (io.error && io.error != asio::error::operation_aborted) closed_ = io.error != asio::error::eof;
    co_return !io.error && !closed_;
}

asio::awaitable<HttpSession::Step> HttpSession::read_head() {
    parser_.reset();
    phase_ = Phase::idle;
    // Thousands of idle connections must not each keep what one large body needed.
    if (taken_ == filled_ && buffer_.size() > idle_buffer) {
        taken_ = filled_ = 0;
        buffer_ = {};
    }
    if (out_head_.capacity() > idle_buffer) out_head_ = {};
    SteadyTime deadline{};
    for (;;) {
        auto rest = buffered();
        const auto step = parser_.read_head(rest);
        consume_to(rest);
        if (step != Step::need_more) co_return step;
        if (!rest.empty() && phase_ == Phase::idle) {
            phase_ = Phase::head;
            deadline = steady_now() + shared_->options.head_timeout;
        } else if (deadline == SteadyTime{}) {
            deadline = steady_now() + (first_request_ ? shared_->options.head_timeout : shared_->options.idle_timeout);
        }
        if (phase_ == Phase::idle && shared_->stopping) co_return Step::need_more;
        if (!co_await fill(deadline)) co_return Step::need_more;
    }
}

asio::awaitable<bool> HttpSession::serve_one() {
    if (++without_yield_ > requests_without_yield) {
        without_yield_ = 0;
        co_await asio::post(asio::use_awaitable);
    }
    const auto step = co_await read_head();
    first_request_ = false;
    begun_ = finished_ = waiting_ = chunked_ = body_broken_ = handler_timed_out_ = expects_continue_ = is_head_ = keep_alive_ =
        false;
    body_read_ = 0;
    status_ = 0;
    promised_.reset();
    request_.method.clear();
    request_.headers = {};
    request_.target = {};
    request_.route.clear();
    request_.actor.clear();
    if (step == Step::need_more) {
        if (phase_ == Phase::head && read_timed_out_)
            co_return co_await answer_fault(408, Error{Code::timeout, "the head of the request did not arrive in time"});
        co_return false;
    }
    if (step == Step::bad) {
        const auto& fault = parser_.fault();
        co_return co_await answer_fault(fault.status, Error{fault.status == 431 ? Code::too_large : Code::invalid, fault.message});
    }

    auto& head = parser_.head();
    request_.method = std::move(head.method);
    request_.headers = std::move(head.headers);
    is_head_ = request_.method == "HEAD";
    const auto sent_id = request_.headers.get("X-Request-Id");
    auto ctx = Context::make("anonymous", is_request_id(sent_id) ? std::string(sent_id) : std::string());
    request_id_ = ctx.id();
    auto target = parse_target(origin_form(head.target));
    if (!target.ok()) co_return co_await answer_fault(400, std::move(target).error());
    request_.target = std::move(*target);
    if (const auto expect = request_.headers.get("Expect"); !expect.empty()) {
        if (!same_letters(expect, "100-continue"))
            co_return co_await answer_fault(417, Error{Code::unsupported, "the only expectation understood is 100-continue"});
        expects_continue_ = head.http_1_1 && !parser_.is_done();
    }
    keep_alive_ = head.keep_alive;

    phase_ = Phase::handling;
    const auto started = steady_now();
    handler_deadline_ = started + shared_->options.request_timeout;
    ctx = ctx.with_deadline(handler_deadline_);
    co_await call_handler(ctx);
    if (shared_->options.on_done) shared_->options.on_done(ctx, request_, begun_ ? status_ : 0, steady_now() - started);
    if (!finished_ || !keep_alive_ || closed_) co_return false;
    co_return parser_.is_done() || co_await discard_body();
}

asio::awaitable<void> HttpSession::call_handler(Context ctx) {
    Result<Unit> outcome;
    try {
        outcome = co_await shared_->handler(ctx, request_, *this, *this);
    } catch (...) {
        outcome = error_of(std::current_exception());
    }
    if (closed_) co_return;
    if (outcome.ok() && !begun_) outcome = Error{Code::internal, "nothing answers this request"};
    if (outcome.ok()) {
        if (!finished_) std::ignore = co_await finish(ctx);
        co_return;
    }
    auto error = std::move(outcome).error();
    if (handler_timed_out_ && !begun_)
        error = Error{Code::timeout, fmt::format("the request took longer than {}", to_text(shared_->options.request_timeout))};
    if (error.code == Code::internal) log::error(ctx, "{} {}: {}", request_.method, request_.target.path, error.text());
    if (!begun_) std::ignore = co_await send(ctx, shared_->error_response(ctx, error));
}

asio::awaitable<bool> HttpSession::answer_fault(int status, Error error) {
    const auto ctx = Context::make("anonymous", std::exchange(request_id_, {}));
    request_id_ = ctx.id();
    keep_alive_ = false;
    body_broken_ = true;
    auto response = shared_->error_response(ctx, error);
    response.status = status;
    std::ignore = co_await send(ctx, std::move(response));
    request_id_.clear();
    if (shared_->options.on_done) shared_->options.on_done(ctx, request_, status, Duration::zero());
    co_return false;
}

asio::awaitable<bool> HttpSession::discard_body() {
    const auto deadline = steady_now() + shared_->options.head_timeout;
    std::string unwanted;
    std::uint64_t seen = 0;
    for (;;) {
        unwanted.clear();
        auto rest = buffered();
        const auto step = parser_.read_body(rest, unwanted);
        consume_to(rest);
        if (parser_.is_done()) co_return true;
        seen += unwanted.size();
        if (step == Step::bad || seen > discard_at_most) co_return false;
        if (step == Step::need_more && !co_await fill(deadline)) co_return false;
    }
}

/// Closing a socket with unread bytes sends a reset, which can discard the response. Therefore shut down writing first and read the
/// remaining bytes.
asio::awaitable<void> HttpSession::close_gently() {
    if (!closed_) {
        const bool more_may_come = body_broken_ || (phase_ != Phase::idle && !parser_.is_done()) || taken_ < filled_;
        phase_ = Phase::closing;
        const auto deadline = steady_now() + (shared_->stopping ? close_at_most / 20 : close_at_most);
        reading_ = true;
        read_deadline_ = deadline;
        co_await stream_->finish();
        reading_ = false;
        if (more_may_come) {
            std::uint64_t seen = 0;
            do {
                seen += filled_ - taken_;
                taken_ = filled_ = 0;
            } while (seen < 16 * discard_at_most && steady_now() < deadline && co_await fill(deadline));
        }
    }
    closed_ = true;
    stream_->close();
}

void HttpSession::sweep(SteadyTime now) {
    if (closed_) return;
    if (reading_ && now >= read_deadline_ && !read_timed_out_) {
        read_timed_out_ = true;
        stream_->cancel();
    } else if (writing_ && now >= write_deadline_) {
        write_timed_out_ = true;
        cut();
    } else if (phase_ == Phase::handling && !begun_ && now >= handler_deadline_ && !handler_timed_out_) {
        handler_timed_out_ = true;
        cancel.emit(asio::cancellation_type::terminal);
    }
}

void HttpSession::client_left() { cut(); }

void HttpSession::begin_stop() {
    if (closed_) return;
    if (reading_ && (phase_ == Phase::idle || phase_ == Phase::handshake || phase_ == Phase::closing))
        stream_->cancel();
    else if (is_streaming() && !reading_ && !writing_)
        cancel.emit(asio::cancellation_type::terminal);
}

void HttpSession::cut() {
    closed_ = true;
    stream_->close();
    cancel.emit(asio::cancellation_type::terminal);
}

Error HttpSession::closed_error() const {
    if (write_timed_out_)
        return Error{Code::timeout,
                     fmt::format("the client {} took no byte for {}", request_.peer, to_text(shared_->options.write_timeout))};
    return Error{Code::unavailable, fmt::format("the client {} closed the connection", request_.peer)};
}

Task<std::string> HttpSession::read_some(Context ctx) {
    const auto limit = shared_->options.max_body;
    const auto too_large = [limit] { return Error{Code::too_large, fmt::format("the body is longer than {} bytes", limit)}; };
    if (const auto left = parser_.remaining(); left && *left > limit - body_read_) co_return too_large();
    std::string piece;
    for (;;) {
        if (parser_.is_done()) co_return piece;
        if (body_broken_) co_return Error{Code::invalid, "the body cannot be read"};
        auto rest = buffered();
        const auto step = parser_.read_body(rest, piece);
        consume_to(rest);
        body_read_ += piece.size();
        if (body_read_ > limit) {
            body_broken_ = true;
            co_return too_large();
        }
        if (step == Step::some) {
            expects_continue_ = false;
            co_return piece;
        }
        if (step == Step::bad) {
            body_broken_ = true;
            co_return Error{Code::invalid, parser_.fault().message};
        }
        if (step == Step::done) continue;
        if (std::exchange(expects_continue_, false) && !begun_) {
            CO_TRY(std::ignore, co_await put("HTTP/1.1 100 Continue\r\n\r\n", {}));
        }
        const auto deadline = std::min(ctx.deadline().value_or(SteadyTime::max()), steady_now() + shared_->options.request_timeout);
        if (co_await fill(deadline)) continue;
        body_broken_ = true;
        if (read_timed_out_) co_return Error{Code::timeout, "the body of the request did not arrive in time"};
        co_return Error{Code::unavailable, fmt::format("the client {} left before it had sent the whole body", request_.peer)};
    }
}

} // namespace orrery::net
