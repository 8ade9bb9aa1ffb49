#include "net/http_exchange.h"

#include <boost/asio/error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <sys/socket.h>
#include <tuple>

namespace orrery::net {

namespace {

constexpr std::size_t read_at_once = 16 * 1024;
constexpr std::size_t max_unread = 64 * 1024;
constexpr int max_interim_answers = 8;

bool is_http_token(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               (c != 0 && std::strchr("!#$%&'*+-.^_`|~", c));
    });
}

bool is_field_value(std::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return static_cast<unsigned char>(c) >= ' ' ? c != 0x7f : c == '\t'; });
}

} // namespace

Result<std::string> request_head(const Context& ctx, const ClientRequest& request, bool streams_body) {
    if (!is_http_token(request.method)) return Error{Code::invalid, "the request's method is not a word"};
    const auto& target = request.url.target;
    if (!target.starts_with('/') || std::any_of(target.begin(), target.end(), [](char c) { return c <= ' ' || c > '~'; }))
        return Error{Code::invalid, fmt::format("the target of a request to {} has characters that must be percent-encoded",
                                                request.url.origin())};
    if (!is_field_value(request.url.host) || request.url.host.empty()) return Error{Code::invalid, "the request's URL has no host"};

    const auto origin = request.url.origin();
    std::string head;
    head.reserve(512);
    head.append(request.method).append(" ").append(target).append(" HTTP/1.1\r\n");
    if (!request.headers.has("Host")) head.append("Host: ").append(origin, request.url.scheme.size() + 3).append("\r\n");
    if (!request.headers.has("User-Agent")) head.append("User-Agent: orrery\r\n");
    if (!request.headers.has("X-Request-Id")) head.append("X-Request-Id: ").append(ctx.id()).append("\r\n");
    for (const auto& [name, value] : request.headers) {
        if (!is_http_token(name) || !is_field_value(value))
            return Error{Code::invalid, fmt::format("the header field \"{}\" cannot be sent", is_field_value(name) ? name : "?"),
                         "remove line ends and control characters"};
        head.append(name).append(": ").append(value).append("\r\n");
    }
    if (streams_body) {
        if (!request.headers.has("Content-Length")) head.append("Transfer-Encoding: chunked\r\n");
    } else if (request.headers.has("Content-Length") || request.headers.has("Transfer-Encoding")) {
        return Error{Code::invalid, "Content-Length and Transfer-Encoding are the client's to set"};
    } else if (!request.body.empty() || request.method == "POST" || request.method == "PUT" || request.method == "PATCH") {
        head.append(fmt::format("Content-Length: {}\r\n", request.body.size()));
    }
    head.append("\r\n");
    return head;
}

Error HttpExchange::broken(const boost::system::error_code& error) const {
    if (error == asio::error::operation_aborted || error == asio::error::bad_descriptor)
        return Error{Code::cancelled, fmt::format("the request to {} was cancelled", origin_)};
    if (!received_ && (error == asio::error::eof || error == asio::error::connection_reset || error == asio::error::broken_pipe))
        return Error{Code::unavailable, fmt::format("{} closed the connection before it answered", origin_),
                     "check the log of that service"};
    // TLS 1.3: the server reports a rejected or missing client certificate only now.
    const auto message = system_error_text(error);
    if (message.find("certificate") != std::string::npos)
        return Error{Code::denied, fmt::format("{} refused our certificate: {}", origin_, message),
                     "give a client certificate that it accepts"};
    return Error{Code::unavailable, fmt::format("the connection to {} broke: {}", origin_, message)};
}

Task<Unit> HttpExchange::put(std::string_view head, std::string_view body) {
    auto io = lease_->stream->write_now(head, body);
    for (;;) {
        if (io.error) co_return broken(io.error);
        const auto of_head = std::min(io.bytes, head.size());
        head.remove_prefix(of_head);
        body.remove_prefix(io.bytes - of_head);
        if (head.empty() && body.empty()) co_return Unit{};
        io = co_await lease_->stream->write_some(head, body);
    }
}

/// A peer that answers before it has all of the body (too large, not allowed) wants no more of it. Under TLS bytes can wait that
/// are no answer.
bool HttpExchange::has_answer_waiting() const {
    if (origin_.starts_with("https")) return false;
    char byte = 0;
    return ::recv(lease_->stream->descriptor(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

Task<Unit> HttpExchange::put_pieces(std::function<Task<std::string>()> more, bool chunked) {
    for (;;) {
        CO_TRY(auto piece, co_await more());
        if (piece.empty()) break;
        if (has_answer_waiting()) co_return Unit{};
        Result<Unit> sent;
        if (chunked) {
            const auto size = fmt::format("{:x}\r\n", piece.size());
            piece += "\r\n";
            sent = co_await put(size, piece);
        } else {
            sent = co_await put(piece, {});
        }
        if (!sent.ok()) {
            if (sent.error().code == Code::cancelled) co_return std::move(sent);
            co_return Unit{}; // the response may have the cause
        }
    }
    if (chunked) {
        CO_TRY(std::ignore, co_await put("0\r\n\r\n", {}));
    }
    whole_request_sent_ = true;
    co_return Unit{};
}

Task<Unit> HttpExchange::start(std::string head, std::string body, std::function<Task<std::string>()> more, bool chunked,
                               bool is_head) {
    auto sent = co_await put(head, body);
    whole_request_sent_ = sent.ok() && !more;
    if (sent.ok() && more) {
        CO_TRY(std::ignore, co_await put_pieces(std::move(more), chunked));
    }
    if (!sent.ok() && sent.error().code == Code::cancelled) co_return std::move(sent);
    // After a failed write there may still be a response, which is more useful than "broken pipe".
    auto answered = co_await read_head(is_head);
    if (!answered.ok() && !received_ && !sent.ok()) co_return std::move(sent);
    co_return std::move(answered);
}

Task<bool> HttpExchange::fill() {
    auto& connection = *lease_.operator->();
    if (connection.taken == connection.filled) {
        connection.taken = connection.filled = 0;
    } else if (connection.filled == connection.buffer.size() && connection.taken > 0) {
        std::memmove(connection.buffer.data(), connection.buffer.data() + connection.taken, connection.filled - connection.taken);
        connection.filled -= connection.taken;
        connection.taken = 0;
    }
    if (connection.filled == connection.buffer.size()) {
        if (connection.buffer.size() >= max_unread)
            co_return Error{Code::unavailable, fmt::format("{} answered with something that is not HTTP", origin_)};
        connection.buffer.resize(connection.buffer.size() + read_at_once);
    }
    const auto io = co_await connection.stream->read_some(connection.buffer.data() + connection.filled,
                                                          connection.buffer.size() - connection.filled);
    connection.filled += io.bytes;
    if (io.bytes > 0) received_ = true;
    if (io.error == asio::error::eof) co_return false;
    if (io.error) co_return broken(io.error);
    co_return true;
}

Task<Unit> HttpExchange::read_head(bool is_head) {
    auto& connection = *lease_.operator->();
    for (int answers = 0; answers <= max_interim_answers; ++answers) {
        connection.parser.reset(!is_head);
        for (;;) {
            auto rest = connection.unread();
            const auto step = connection.parser.read_head(rest);
            connection.taken = connection.filled - rest.size();
            if (step == MessageParser::Step::done) break;
            if (step == MessageParser::Step::bad) {
                const auto& fault = connection.parser.fault();
                if (fault.status == 431)
                    co_return Error{Code::too_large, fmt::format("the answer of {}: {}", origin_, fault.message)};
                co_return Error{Code::unavailable,
                                fmt::format("{} answered with something that is not HTTP: {}", origin_, fault.message),
                                "check that the address and port are that service's"};
            }
            CO_TRY(const bool more, co_await fill());
            if (!more) co_return broken(asio::error::eof);
        }
        auto& head = connection.parser.head();
        if (head.status == 101) break;
        if (head.status < 200) continue;
        status_ = head.status;
        headers_ = std::move(head.headers);
        keep_alive_ = head.keep_alive;
        done_ = connection.parser.is_done();
        if (done_ && keep_alive_ && whole_request_sent_ && connection.taken == connection.filled) lease_.keep();
        co_return Unit{};
    }
    co_return Error{Code::unavailable, fmt::format("{} answered with nothing but interim answers", origin_)};
}

Task<std::string> HttpExchange::next_piece() {
    std::string piece;
    while (!done_) {
        auto& connection = *lease_.operator->();
        auto rest = connection.unread();
        const auto step = connection.parser.read_body(rest, piece);
        connection.taken = connection.filled - rest.size();
        if (step == MessageParser::Step::bad)
            co_return Error{Code::unavailable,
                            fmt::format("the answer of {} cannot be read: {}", origin_, connection.parser.fault().message)};
        done_ = connection.parser.is_done();
        if (step == MessageParser::Step::need_more) {
            CO_TRY(const bool more, co_await fill());
            if (!more) {
                if (connection.parser.end() == MessageParser::Step::bad)
                    co_return Error{Code::unavailable,
                                    fmt::format("{} closed the connection in the middle of its answer", origin_)};
                done_ = true;
                keep_alive_ = false;
            }
        }
        if (done_ && keep_alive_ && whole_request_sent_ && connection.taken == connection.filled) lease_.keep();
        if (!piece.empty()) break;
    }
    if (done_) lease_.release();
    co_return piece;
}

Task<std::string> HttpExchange::read_some(Context ctx) {
    auto piece = co_await within_deadline(ctx, next_piece());
    if (!piece.ok() && piece.error().code == Code::timeout)
        co_return Error{Code::timeout, fmt::format("nothing came from {} in time", origin_)};
    co_return std::move(piece);
}

Task<std::string> HttpExchange::collect(std::size_t limit) {
    const auto too_large = [this, limit] {
        return Error{Code::too_large, fmt::format("the answer of {} is longer than {} bytes", origin_, limit)};
    };
    if (!done_) {
        const auto left = lease_->parser.remaining();
        if (left && *left > limit) co_return too_large();
    }
    std::string all;
    for (;;) {
        CO_TRY(auto piece, co_await next_piece());
        if (piece.empty()) co_return all;
        if (piece.size() > limit - all.size()) co_return too_large();
        if (all.empty())
            all = std::move(piece);
        else
            all += piece;
    }
}

} // namespace orrery::net
