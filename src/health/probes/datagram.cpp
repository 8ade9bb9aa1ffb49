#include "health/probes/datagram.h"

#include "health/probes/find_host.h"
#include "net/byte_stream.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <cerrno>
#include <random>

namespace orrery::health {

namespace {

constexpr auto datagram_token = asio::as_tuple(asio::use_awaitable);

Task<Observation> receive(std::shared_ptr<asio::ip::udp::socket> socket, ReplyJudge judge, std::string what) {
    co_await asio::this_coro::throw_if_cancelled(false);
    std::string buffer(65536, '\0');
    for (;;) {
        auto [error, size] = co_await socket->async_receive(asio::buffer(buffer), datagram_token);
        if (error == asio::error::operation_aborted) co_return Error{Code::timeout, "no answer in time"};
        Observation seen;
        if (error) {
            seen.outcome = outcome_of_datagram(error.value());
            seen.text = fmt::format("{}: {}", what, net::system_error_text(error));
            co_return seen;
        }
        if (judge(std::string_view(buffer).substr(0, size), seen)) co_return seen;
    }
}

} // namespace

std::uint64_t random_number() {
    static thread_local std::mt19937_64 random{std::random_device{}()};
    return random();
}

Outcome outcome_of_datagram(int error) {
    switch (error) {
    case ECONNREFUSED: return Outcome::refused;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case EADDRNOTAVAIL:
    case ENETUNREACH:
    case EACCES:
    case EPERM: return Outcome::local_error;
    default: return Outcome::unreachable;
    }
}

asio::awaitable<Observation> exchange_datagrams(Context ctx, std::string host, std::uint16_t port, std::string request,
                                                ReplyJudge judge, std::string what, net::OutboundRulesPtr outbound) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto begin = real_clock().steady();
    const auto deadline = ctx.deadline().value_or(begin + std::chrono::seconds(10));
    auto found = co_await find_host(std::move(host), port, what, std::move(outbound));
    if (!found.endpoint) co_return std::move(found.error);
    auto socket = std::make_shared<asio::ip::udp::socket>(co_await asio::this_coro::executor);
    boost::system::error_code error;
    socket->open(found.endpoint->protocol(), error);
    if (!error) socket->connect(*found.endpoint, error);
    for (int attempt = 1; !error && attempt <= datagram_attempts; ++attempt) {
        socket->send(asio::buffer(request), 0, error);
        if (error) break;
        const auto until = begin + (deadline - begin) / datagram_attempts * attempt;
        auto seen = co_await within_deadline(ctx.with_deadline(until), receive(socket, judge, what));
        if (seen.ok()) {
            seen->first_byte = std::chrono::duration_cast<std::chrono::microseconds>(real_clock().steady() - begin);
            co_return std::move(*seen);
        }
    }
    if (error)
        co_return Observation{.outcome = outcome_of_datagram(error.value()),
                              .text = fmt::format("{}: {}", what, net::system_error_text(error))};
    co_return Observation{.outcome = Outcome::timeout_read, .text = what + ": no answer in time"};
}

} // namespace orrery::health
