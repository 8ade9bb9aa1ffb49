#include "net/http_server.h"

#include "core/component.h"
#include "core/log.h"
#include "net/byte_stream.h"
#include "net/http_session.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <netinet/tcp.h>
#include <poll.h>

namespace orrery::net {

using namespace std::chrono_literals;

namespace {

constexpr auto server_token = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t refused_politely = 64; // at once; beyond that a connection too many is just closed
constexpr std::size_t accepted_at_once = 64;

struct Listener {
    explicit Listener(asio::ip::tcp::acceptor acceptor_, std::shared_ptr<TlsContext> tls_)
        : acceptor(std::move(acceptor_)), tls(std::move(tls_)) {}
    asio::ip::tcp::acceptor acceptor;
    std::shared_ptr<TlsContext> tls;
};

} // namespace

struct HttpServer::State : std::enable_shared_from_this<HttpServer::State> {
    State(asio::any_io_executor executor_, Options options, Handler handler)
        : executor(std::move(executor_)), shared(std::make_shared<ServerShared>()), sweep_timer(executor), all_ended(executor) {
        shared->options = std::move(options);
        shared->handler = std::move(handler);
        const auto& times = shared->options;
        const auto shortest = std::min({times.head_timeout, times.idle_timeout, times.request_timeout, times.write_timeout});
        sweep_every = std::clamp<Duration>(shortest / 4, 10ms, 250ms);
    }

    Result<Unit> listen(const Listen& where);
    static asio::awaitable<void> accept(std::shared_ptr<State> self, std::shared_ptr<Listener> listener);
    void add(asio::ip::tcp::socket socket, const asio::ip::tcp::endpoint& peer, const std::shared_ptr<TlsContext>& tls);
    static asio::awaitable<void> sweep(std::shared_ptr<State> self);
    void poll_streams();
    void begin_stop();
    void cut_all();

    asio::any_io_executor executor;
    std::shared_ptr<ServerShared> shared;
    std::vector<std::shared_ptr<Listener>> listeners;
    std::list<std::shared_ptr<HttpSession>> sessions;
    std::size_t refusals = 0; // of them
    Duration sweep_every{};
    bool sweeping = false;
    asio::steady_timer sweep_timer, all_ended;
    std::vector<pollfd> poll_set; // kept for its memory
};

Result<Unit> HttpServer::State::listen(const Listen& where) {
    const auto cannot = [&where](const boost::system::error_code& error) {
        std::string remedy;
        if (error == asio::error::address_in_use)
            remedy = "stop what listens there, or choose another port";
        else if (error == asio::error::access_denied)
            remedy = "ports below 1024 need a privilege; choose another port";
        return Error{Code::unavailable,
                     fmt::format("cannot listen on {} port {}: {}", where.address, where.port, system_error_text(error)), remedy};
    };
    boost::system::error_code error;
    const auto address = asio::ip::make_address(where.address, error);
    if (error)
        return Error{Code::invalid, fmt::format("cannot listen on \"{}\": it is not an IP address", where.address),
                     "write it like 127.0.0.1 or ::1"};
    const asio::ip::tcp::endpoint endpoint(address, where.port);
    asio::ip::tcp::acceptor acceptor(executor);
    acceptor.open(endpoint.protocol(), error);
    if (error) return cannot(error);
    acceptor.set_option(asio::socket_base::reuse_address(true), error);
    // "::" must not take 0.0.0.0's port: both may be polled for.
    if (address.is_v6()) acceptor.set_option(asio::ip::v6_only(true), error);
    acceptor.bind(endpoint, error);
    if (error) return cannot(error);
    acceptor.listen(4096, error);
    if (!error) acceptor.non_blocking(true, error);
    if (error) return cannot(error);
    listeners.push_back(std::make_shared<Listener>(std::move(acceptor), where.tls));
    return Unit{};
}

asio::awaitable<void> HttpServer::State::accept(std::shared_ptr<State> self, std::shared_ptr<Listener> listener) {
    asio::ip::tcp::endpoint peer;
    while (listener->acceptor.is_open()) {
        auto [error, socket] = co_await listener->acceptor.async_accept(self->executor, peer, server_token);
        if (!listener->acceptor.is_open() || self->shared->stopping) break;
        if (!error) {
            try {
                self->add(std::move(socket), peer, listener->tls);
                // All that wait come in together: one at each turn of a busy loop would keep the last of a thousand out for
                // seconds.
                for (std::size_t more = 0; more < accepted_at_once; ++more) {
                    boost::system::error_code none_waits;
                    asio::ip::tcp::socket next(self->executor);
                    listener->acceptor.accept(next, peer, none_waits);
                    if (none_waits) break;
                    self->add(std::move(next), peer, listener->tls);
                }
            } catch (const std::exception& failure) { // out of memory: this connection's end, not the server's
                log::warn(Context::background(), "cannot serve a connection: {}", failure.what());
            }
        } else if (error == asio::error::no_descriptors || error.value() == ENFILE || error == asio::error::no_memory ||
                   error == asio::error::no_buffer_space) {
            log::warn(Context::background(), "cannot accept a connection: {}; trying again in a moment", system_error_text(error));
            asio::steady_timer pause(self->executor, 100ms);
            co_await pause.async_wait(server_token);
        } else if (error == asio::error::operation_aborted) {
            break;
        }
    }
}

void HttpServer::State::add(asio::ip::tcp::socket socket, const asio::ip::tcp::endpoint& peer,
                            const std::shared_ptr<TlsContext>& tls) {
    const bool refused = sessions.size() - refusals >= shared->options.max_connections;
    // Under TLS a refusal would cost a handshake.
    if (refused && (tls || refusals >= refused_politely)) return;
    // TCP_USER_TIMEOUT also ends streams to a host that disappeared.
    const auto timeout_ms =
        static_cast<unsigned>(std::chrono::duration_cast<std::chrono::milliseconds>(shared->options.write_timeout).count());
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
    auto stream = tls ? std::unique_ptr<ByteStream>(tls_server_stream(std::move(socket), tls)) : plain_stream(std::move(socket));
    auto session = std::make_shared<HttpSession>(shared, std::move(stream), peer.address().to_string(), tls != nullptr);
    if (sessions.empty()) shared->renew_date();
    const auto place = sessions.insert(sessions.end(), session);
    refusals += refused;
    auto ended = [self = shared_from_this(), session, place, refused](std::exception_ptr exception) {
        if (exception) {
            try {
                std::rethrow_exception(exception);
            } catch (const std::exception& error) {
                log::error(Context::background(), "a connection ended with an exception: {}", error.what());
            }
        }
        self->refusals -= refused;
        self->sessions.erase(place);
        if (self->sessions.empty()) self->all_ended.cancel();
    };
    asio::co_spawn(executor, refused ? session->refuse() : session->run(),
                   asio::bind_cancellation_slot(session->cancel.slot(), std::move(ended)));
    if (!sweeping) {
        sweeping = true;
        asio::co_spawn(executor, sweep(shared_from_this()), fail_component_of(executor));
    }
}

asio::awaitable<void> HttpServer::State::sweep(std::shared_ptr<State> self) {
    while (!self->sessions.empty()) {
        self->sweep_timer.expires_after(self->sweep_every);
        co_await self->sweep_timer.async_wait(server_token);
        self->shared->renew_date();
        const auto now = std::chrono::steady_clock::now();
        for (auto at = self->sessions.begin(); at != self->sessions.end();) {
            const auto session = *at++; // it may end here
            session->sweep(now);
        }
        self->poll_streams();
    }
    self->sweeping = false;
}

/// A waiting stream writes nothing and so does not notice that its client disconnected. One poll checks all of them.
void HttpServer::State::poll_streams() {
    poll_set.clear();
    std::vector<HttpSession*> polled;
    for (const auto& session : sessions) {
        if (!session->is_streaming() || session->descriptor() < 0) continue;
        poll_set.push_back({session->descriptor(), POLLRDHUP, 0});
        polled.push_back(session.get());
    }
    if (poll_set.empty() || ::poll(poll_set.data(), poll_set.size(), 0) <= 0) return;
    for (std::size_t at = 0; at < polled.size(); ++at)
        if (poll_set[at].revents & (POLLRDHUP | POLLHUP | POLLERR)) polled[at]->client_left();
}

void HttpServer::State::begin_stop() {
    shared->stopping = true;
    boost::system::error_code ignored;
    for (const auto& listener : listeners) listener->acceptor.close(ignored);
    for (auto at = sessions.begin(); at != sessions.end();) (*at++)->begin_stop();
}

void HttpServer::State::cut_all() {
    for (auto at = sessions.begin(); at != sessions.end();) (*at++)->cut();
}

HttpServer::HttpServer(asio::any_io_executor executor, Options options, Handler handler)
    : state_(std::make_shared<State>(std::move(executor), std::move(options), std::move(handler))) {}

HttpServer::~HttpServer() {
    state_->begin_stop();
    state_->cut_all();
}

Result<Unit> HttpServer::start() {
    const auto& options = state_->shared->options;
    std::vector<Listen> wanted{{options.address, options.port, options.tls}};
    wanted.insert(wanted.end(), options.also.begin(), options.also.end());
    for (const auto& where : wanted) {
        if (auto listening = state_->listen(where); !listening.ok()) {
            state_->listeners.clear();
            return listening;
        }
    }
    for (const auto& listener : state_->listeners)
        asio::co_spawn(state_->executor, State::accept(state_, listener), fail_component_of(state_->executor));
    return Unit{};
}

std::uint16_t HttpServer::port() const {
    const auto all = ports();
    return all.empty() ? 0 : all.front();
}

std::vector<std::uint16_t> HttpServer::ports() const {
    std::vector<std::uint16_t> all;
    boost::system::error_code ignored;
    for (const auto& listener : state_->listeners) all.push_back(listener->acceptor.local_endpoint(ignored).port());
    return all;
}

std::size_t HttpServer::connections() const { return state_->sessions.size(); }

asio::awaitable<void> HttpServer::stop(Duration grace) {
    auto state = state_;
    // A cancelled caller does not interrupt `stop`, because the objects that handlers use are destroyed afterwards.
    co_await asio::this_coro::reset_cancellation_state();
    state->begin_stop();
    const auto deadline = std::chrono::steady_clock::now() + grace;
    while (!state->sessions.empty() && std::chrono::steady_clock::now() < deadline) {
        state->all_ended.expires_at(deadline);
        co_await state->all_ended.async_wait(server_token);
    }
    state->cut_all();
    while (!state->sessions.empty()) {
        state->all_ended.expires_at(SteadyTime::max());
        co_await state->all_ended.async_wait(server_token);
    }
    state->sweep_timer.cancel();
}

} // namespace orrery::net
