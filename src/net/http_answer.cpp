// The answering side of HttpSession: heads, bodies and chunks on their way to the client.
#include "net/http_session.h"

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <charconv>
#include <ctime>
#include <tuple>

namespace orrery::net {

namespace {

constexpr unsigned writes_without_yield = 64;
constexpr std::size_t copied_chunk = 64 * 1024; // up to here a copy costs less than a second write

bool is_field(std::string_view name, std::string_view lower) {
    if (name.size() != lower.size()) return false;
    for (std::size_t at = 0; at < name.size(); ++at)
        if ((name[at] >= 'A' && name[at] <= 'Z' ? name[at] + 32 : name[at]) != lower[at]) return false;
    return true;
}

/// Nothing a handler passes on may begin a field or a message of its own.
void append_field(std::string& out, std::string_view name, std::string_view value) {
    for (const char c : name)
        if (c <= ' ' || c == ':' || c >= 0x7f) return;
    out.append(name).append(": ");
    const auto start = out.size();
    out.append(value);
    for (auto at = start; at < out.size(); ++at)
        if (static_cast<unsigned char>(out[at]) < ' ' || out[at] == 0x7f) out[at] = ' ';
    out.append("\r\n");
}

bool has_no_body(int status) { return status == 204 || status == 304; }

} // namespace

void ServerShared::renew_date() {
    // Not strftime: day and month names must not follow the locale.
    static constexpr const char* days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    date_field = fmt::format("Date: {}, {:02} {} {} {:02}:{:02}:{:02} GMT\r\n", days[parts.tm_wday], parts.tm_mday,
                             months[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

Response ServerShared::error_response(const Context& ctx, const Error& error) const {
    if (options.on_error) return options.on_error(ctx, error);
    auto text = error.message + "\n";
    if (!error.remedy.empty()) text += "fix: " + error.remedy + "\n";
    return Response{http_status(error.code), {{"Content-Type", "text/plain; charset=utf-8"}}, std::move(text)};
}

bool HttpSession::body_may_stay() const {
    if (parser_.is_done()) return true;
    if (expects_continue_ || body_broken_) return false;
    const auto left = parser_.remaining();
    return !left || *left <= discard_at_most;
}

void HttpSession::write_head(int status, const Headers& headers, std::optional<std::size_t> length) {
    begun_ = true;
    status_ = status;
    chunked_ = false;
    promised_.reset();
    out_head_.clear();
    out_head_.append("HTTP/1.1 ").append(fmt::format_int(status).c_str()).append(" ").append(reason_phrase(status)).append("\r\n");
    out_head_.append(shared_->date_field).append("X-Request-Id: ").append(request_id_).append("\r\n");
    for (const auto& [name, value] : headers) {
        if (is_field(name, "connection")) {
            if (is_field(value, "close")) keep_alive_ = false;
            continue;
        }
        if (is_field(name, "content-length")) {
            std::uint64_t bytes = 0;
            if (!length && std::from_chars(value.data(), value.data() + value.size(), bytes).ec == std::errc{}) promised_ = bytes;
            continue;
        }
        if (is_field(name, "transfer-encoding") || is_field(name, "x-request-id") || is_field(name, "date")) continue;
        append_field(out_head_, name, value);
    }
    const bool http_1_1 = parser_.head().http_1_1;
    if (!has_no_body(status)) {
        if (length || promised_) {
            out_head_.append("Content-Length: ").append(fmt::format_int(length ? *length : *promised_).c_str()).append("\r\n");
        } else if (http_1_1) {
            chunked_ = true;
            out_head_.append("Transfer-Encoding: chunked\r\n");
        } else {
            keep_alive_ = false; // the end of the connection is the end of the body
        }
    }
    keep_alive_ = keep_alive_ && !shared_->stopping && body_may_stay();
    if (!keep_alive_)
        out_head_.append("Connection: close\r\n");
    else if (!http_1_1)
        out_head_.append("Connection: keep-alive\r\n");
    out_head_.append("\r\n");
}

Task<Unit> HttpSession::put(std::string_view head, std::string_view body) {
    if (closed_) co_return closed_error();
    auto io = stream_->write_now(head, body);
    for (;;) {
        if (io.error || closed_) {
            closed_ = true;
            stream_->close();
            co_return closed_error();
        }
        const auto of_head = std::min(io.bytes, head.size());
        head.remove_prefix(of_head);
        body.remove_prefix(io.bytes - of_head);
        if (head.empty() && body.empty()) break;
        without_yield_ = 0;
        writing_ = true;
        write_deadline_ = std::chrono::steady_clock::now() + shared_->options.write_timeout;
        io = co_await stream_->write_some(head, body);
        writing_ = false;
    }
    if (++without_yield_ > writes_without_yield) {
        without_yield_ = 0;
        co_await asio::post(asio::use_awaitable);
    }
    co_return Unit{};
}

Task<Unit> HttpSession::send(Context ctx, Response response) {
    if (begun_) co_return Error{Code::internal, "the request was answered already"};
    write_head(response.status, response.headers, response.body.size());
    finished_ = true;
    const bool bare = is_head_ || has_no_body(response.status);
    co_return co_await put(out_head_, bare ? std::string_view() : std::string_view(response.body));
}

Task<Unit> HttpSession::begin(Context ctx, int status, Headers headers) {
    if (begun_) co_return Error{Code::internal, "the request was answered already"};
    write_head(status, headers, {});
    co_return co_await put(out_head_, {});
}

Task<Unit> HttpSession::write(Context ctx, std::string_view chunk) {
    if (!begun_ || finished_) co_return Error{Code::internal, "there is no answer under way to write to"};
    if (closed_) co_return closed_error();
    if (is_head_ || has_no_body(status_) || chunk.empty()) co_return Unit{};
    if (promised_) {
        if (chunk.size() > *promised_) co_return Error{Code::internal, "more was written than Content-Length promised"};
        *promised_ -= chunk.size();
        co_return co_await put({}, chunk);
    }
    if (!chunked_) co_return co_await put({}, chunk);
    out_head_.assign(fmt::format("{:x}\r\n", chunk.size()));
    if (chunk.size() <= copied_chunk) {
        out_head_.append(chunk).append("\r\n");
        co_return co_await put(out_head_, {});
    }
    CO_TRY(std::ignore, co_await put(out_head_, chunk));
    co_return co_await put("\r\n", {});
}

Task<Unit> HttpSession::finish(Context ctx) {
    if (!begun_) co_return Error{Code::internal, "there is no answer under way to finish"};
    if (finished_) co_return Unit{};
    if (closed_) co_return closed_error();
    const bool bare = is_head_ || has_no_body(status_);
    if (promised_ && *promised_ > 0 && !bare) co_return Error{Code::internal, "less was written than Content-Length promised"};
    finished_ = true;
    if (chunked_ && !bare) co_return co_await put("0\r\n\r\n", {});
    co_return Unit{};
}

} // namespace orrery::net
