#include "drivers/dns/exchange.h"

#include "core/truncate.h"
#include "net/byte_stream.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <random>
#include <tuple>

namespace orrery::drivers {

namespace {

using namespace std::chrono_literals;
using ErrorCode = boost::system::error_code;

constexpr auto token = asio::as_tuple(asio::use_awaitable);
constexpr auto default_timeout = 5s; // where the context has no deadline
constexpr auto first_resend = 500ms;
constexpr auto max_resend = 2s;
constexpr int max_strangers = 32;

Error no_answer(const DnsServer& server, Code code, std::string_view why) {
    return {code, fmt::format("the name server {}: {}", text_of(server), why)};
}
Error no_answer(const DnsServer& server, const ErrorCode& error) {
    if (error == asio::error::operation_aborted) return no_answer(server, Code::cancelled, "the caller cancelled");
    return no_answer(server, Code::unavailable, net::system_error_text(error));
}

/// Receives until the answer arrives.
Task<std::vector<std::uint8_t>> listen(asio::ip::udp::socket& socket, DnsServer server, const IsAnswer& is_answer, int& strangers) {
    co_await asio::this_coro::throw_if_cancelled(false);
    std::vector<std::uint8_t> buffer(65535);
    for (;;) {
        const auto [error, size] = co_await socket.async_receive(asio::buffer(buffer), token);
        if (error) co_return no_answer(server, error);
        if (is_answer(dns::Bytes(buffer.data(), size))) {
            buffer.resize(size);
            co_return buffer;
        }
        if (++strangers > max_strangers)
            co_return no_answer(server, Code::unavailable, "its messages are not answers to the query");
    }
}

Task<std::vector<std::uint8_t>> over_udp(Context ctx, DnsServer server, std::vector<std::uint8_t> message, IsAnswer is_answer) {
    asio::ip::udp::socket socket(co_await asio::this_coro::executor);
    ErrorCode error;
    // The socket is connected: the kernel drops messages of other senders, and reports a port without a listener.
    if (socket.open(server.protocol(), error); !error) socket.connect(server, error);
    if (error) co_return no_answer(server, error);
    int strangers = 0;
    for (Duration wait = first_resend;; wait = std::min<Duration>(wait * 2, max_resend)) {
        const auto [failed, sent] = co_await socket.async_send(asio::buffer(message), token);
        if (failed) co_return no_answer(server, failed);
        auto answer = co_await within_deadline(ctx.with_timeout(wait), listen(socket, server, is_answer, strangers));
        if (answer.ok() || answer.error().code != Code::timeout) co_return std::move(answer);
        if (real_clock().steady() >= *ctx.deadline()) co_return no_answer(server, Code::timeout, "no answer in time");
    }
}

Task<std::vector<std::uint8_t>> over_tcp(DnsServer server, std::vector<std::uint8_t> message, IsAnswer is_answer) {
    co_await asio::this_coro::throw_if_cancelled(false);
    if (message.size() > 0xFFFF) co_return no_answer(server, Code::too_large, "the message is longer than DNS allows");
    asio::ip::tcp::socket socket(co_await asio::this_coro::executor);
    const auto [refused] = co_await socket.async_connect({server.address(), server.port()}, token);
    if (refused) co_return no_answer(server, refused);
    std::vector<std::uint8_t> framed{static_cast<std::uint8_t>(message.size() >> 8), static_cast<std::uint8_t>(message.size())};
    framed.insert(framed.end(), message.begin(), message.end());
    const auto [failed, sent] = co_await asio::async_write(socket, asio::buffer(framed), token);
    if (failed) co_return no_answer(server, failed);
    for (int strangers = 0; strangers < max_strangers; ++strangers) {
        std::array<std::uint8_t, 2> head{};
        const auto [no_head, head_size] = co_await asio::async_read(socket, asio::buffer(head), token);
        if (no_head) co_return no_answer(server, no_head);
        std::vector<std::uint8_t> answer(static_cast<std::size_t>(head[0] << 8 | head[1]));
        const auto [no_body, body_size] = co_await asio::async_read(socket, asio::buffer(answer), token);
        if (no_body) co_return no_answer(server, no_body);
        if (is_answer(answer)) co_return answer;
    }
    co_return no_answer(server, Code::unavailable, "its messages are not answers to the query");
}

} // namespace

Result<DnsServer> parse_dns_server(std::string_view text) {
    const Error bad{Code::invalid, fmt::format("\"{}\" is not the address of a name server", truncate(text, 100)),
                    "write 192.0.2.53, 192.0.2.53:5353 or [2001:db8::53]:5353"};
    std::string_view host = text, port;
    if (text.starts_with('[')) {
        const auto end = text.find(']');
        if (end == std::string_view::npos) return bad;
        host = text.substr(1, end - 1);
        port = text.substr(end + 1);
        if (!port.empty() && !port.starts_with(':')) return bad;
        if (!port.empty()) port.remove_prefix(1);
        if (port.empty() && end + 1 != text.size()) return bad;
    } else if (const auto colon = text.find(':');
               colon != std::string_view::npos && text.find(':', colon + 1) == std::string_view::npos) {
        host = text.substr(0, colon);
        port = text.substr(colon + 1);
        if (port.empty()) return bad;
    }
    std::uint16_t number = 53;
    if (!port.empty()) {
        const auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), number);
        if (failed != std::errc() || end != port.data() + port.size() || number == 0) return bad;
    }
    ErrorCode error;
    const auto address = asio::ip::make_address(std::string(host), error);
    if (error) return bad;
    return DnsServer(address, number);
}

std::string text_of(const DnsServer& server) {
    auto address = server.address().to_string();
    if (server.port() == 53) return address;
    return server.address().is_v6() ? fmt::format("[{}]:{}", address, server.port()) : fmt::format("{}:{}", address, server.port());
}

std::uint16_t random_dns_id() {
    thread_local std::random_device device;
    return static_cast<std::uint16_t>(device());
}

Task<std::vector<std::uint8_t>> exchange(Context ctx, DnsServer server, DnsTransport transport, std::vector<std::uint8_t> message,
                                         IsAnswer is_answer) {
    if (!ctx.deadline()) ctx = ctx.with_timeout(default_timeout);
    if (transport == DnsTransport::udp) co_return co_await over_udp(ctx, server, std::move(message), std::move(is_answer));
    auto answer = co_await within_deadline(ctx, over_tcp(server, std::move(message), std::move(is_answer)));
    if (!answer.ok() && answer.error().code == Code::timeout) co_return no_answer(server, Code::timeout, "no answer in time");
    co_return std::move(answer);
}

Task<dns::Message> query(Context ctx, DnsServer server, dns::Name name, std::uint16_t type, Recursion recursion) {
    for (const auto transport : {DnsTransport::udp, DnsTransport::tcp}) {
        const auto id = random_dns_id();
        auto bytes = dns::write_query(id, name, type, 1232);
        bytes[2] = recursion == Recursion::wanted ? 1 : 0; // the flag RD
        const IsAnswer is_answer = [id, name, type](dns::Bytes answer) {
            const auto message = dns::read_message(answer);
            if (!message.ok() || message->id != id || !message->response || message->opcode != 0) return false;
            // A server that cannot parse the query may leave the question out.
            if (!message->has_question) return message->rcode != dns::Rcode::noerror && message->rcode != dns::Rcode::nxdomain;
            return message->name == name && message->type == type && message->dns_class == dns::dns_class::in;
        };
        CO_TRY(const auto answer, co_await exchange(ctx, server, transport, std::move(bytes), is_answer));
        CO_TRY(auto message, dns::read_message(answer));
        if (!message.truncated || transport == DnsTransport::tcp) co_return std::move(message);
    }
    co_return no_answer(server, Code::internal, "no transport is left");
}

} // namespace orrery::drivers
