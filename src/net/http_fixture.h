#pragma once

#include "core/test_fixture.h"
#include "net/http_client.h"
#include "net/http_server.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// For tests only: servers and sockets that send exactly the bytes that a test specifies.
namespace orrery::net::peers {

using namespace std::chrono_literals;

inline asio::awaitable<void> sleep_for(Duration time) {
    asio::steady_timer timer(co_await asio::this_coro::executor, time);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

/// A socket for raw bytes. Reads time out after five seconds.
class RawSocket {
public:
    explicit RawSocket(asio::ip::tcp::socket socket) : socket_(std::move(socket)) {}
    static asio::awaitable<RawSocket> connect(std::uint16_t port, std::string address = "127.0.0.1") {
        asio::ip::tcp::socket socket(co_await asio::this_coro::executor);
        co_await socket.async_connect({asio::ip::make_address(address), port}, asio::as_tuple(asio::use_awaitable));
        co_return RawSocket(std::move(socket));
    }
    asio::awaitable<bool> write(std::string text) {
        auto [error, bytes] = co_await asio::async_write(socket_, asio::buffer(text), asio::as_tuple(asio::use_awaitable));
        co_return !error;
    }
    /// Reads up to and including `mark`, or to the end.
    asio::awaitable<std::string> read_until(std::string mark) {
        for (;;) {
            if (const auto at = unread_.find(mark); !mark.empty() && at != std::string::npos) {
                auto text = unread_.substr(0, at + mark.size());
                unread_.erase(0, at + mark.size());
                co_return text;
            }
            if (!co_await read_more()) co_return std::exchange(unread_, {});
        }
    }
    asio::awaitable<std::string> read_to_end() { return read_until(""); }
    /// Reads a response with Content-Length: head and body.
    asio::awaitable<std::string> read_answer() {
        auto answer = co_await read_until("\r\n\r\n");
        const auto at = answer.find("Content-Length: ");
        if (at == std::string::npos) co_return answer;
        const auto length = std::stoul(answer.substr(at + 16));
        while (unread_.size() < length && co_await read_more()) {
        }
        answer += unread_.substr(0, length);
        unread_.erase(0, length);
        co_return answer;
    }
    void close() {
        boost::system::error_code ignored;
        socket_.close(ignored);
    }
    void reset() {
        boost::system::error_code ignored;
        socket_.set_option(asio::socket_base::linger(true, 0), ignored);
        socket_.close(ignored);
    }
    void finish() {
        boost::system::error_code ignored;
        socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    }
    bool timed_out() const { return timed_out_; }
    asio::ip::tcp::socket& socket() { return socket_; }

private:
    asio::awaitable<bool> read_more() {
        std::string piece(64 * 1024, '\0');
        asio::steady_timer timer(socket_.get_executor(), 5s);
        timer.async_wait([this](const boost::system::error_code& error) {
            if (error) return;
            timed_out_ = true;
            close();
        });
        auto [error, bytes] = co_await socket_.async_read_some(asio::buffer(piece), asio::as_tuple(asio::use_awaitable));
        timer.cancel();
        unread_.append(piece, 0, bytes);
        co_return !error;
    }
    asio::ip::tcp::socket socket_;
    std::string unread_;
    bool timed_out_ = false;
};

/// A server that runs a script for each connection; `connections` counts them.
class ScriptedServer {
public:
    using Script = std::function<asio::awaitable<void>(RawSocket socket, int connection)>;
    ScriptedServer(asio::io_context& loop, Script script)
        : state_(std::make_shared<State>(
              State{asio::ip::tcp::acceptor(loop, {asio::ip::make_address("127.0.0.1"), 0}), std::move(script)})) {
        asio::co_spawn(loop, accept(state_), asio::detached);
    }
    ~ScriptedServer() {
        boost::system::error_code ignored;
        state_->acceptor.close(ignored);
    }
    std::uint16_t port() const { return state_->acceptor.local_endpoint().port(); }
    int connections() const { return state_->connections; }
    Url url(std::string target = "/") const { return {"http", "127.0.0.1", port(), std::move(target)}; }

private:
    struct State {
        asio::ip::tcp::acceptor acceptor;
        Script script;
        int connections = 0;
    };
    static asio::awaitable<void> accept(std::shared_ptr<State> state) {
        for (;;) {
            auto [error, socket] = co_await state->acceptor.async_accept(asio::as_tuple(asio::use_awaitable));
            if (error) co_return;
            asio::co_spawn(state->acceptor.get_executor(), play(state, RawSocket(std::move(socket)), ++state->connections),
                           asio::detached);
        }
    }
    static asio::awaitable<void> play(std::shared_ptr<State> state, RawSocket socket, int connection) {
        co_await state->script(std::move(socket), connection);
    }
    std::shared_ptr<State> state_;
};

/// A handler that responds with "METHOD path?query body".
inline Task<Unit> echo(Context ctx, Request& request, BodyReader& body, ResponseWriter& out) {
    CO_TRY(auto text, co_await read_all(ctx, body, 64 << 20));
    std::string reply = request.method + " " + request.target.path;
    for (const auto& [name, value] : request.target.query) reply += " " + name + "=" + value;
    if (!text.empty()) reply += " " + text;
    co_return co_await out.send(ctx, Response{200, {{"Content-Type", "text/plain"}}, std::move(reply)});
}

/// A handler with a reference to state of the test, which must outlive the server.
template <class State, class Function> Handler with(State& state, Function function) {
    return [&state, function](Context ctx, Request& request, BodyReader& body, ResponseWriter& out) {
        return function(std::move(ctx), request, body, out, state);
    };
}

/// An HTTP service for tests with a client for it. Derived classes implement `serve`.
class FakeHttpService {
public:
    explicit FakeHttpService(asio::any_io_executor executor)
        : server(executor, {},
                 [this](Context ctx, Request& request, BodyReader& body, ResponseWriter& out) {
                     return serve(std::move(ctx), request, body, out);
                 }),
          client(executor, {}) {
        EXPECT_TRUE(server.start().ok());
    }
    virtual ~FakeHttpService() = default;
    virtual Task<Unit> serve(Context ctx, Request& request, BodyReader& body, ResponseWriter& out) = 0;
    std::string url(std::string_view path = {}) const {
        return "http://127.0.0.1:" + std::to_string(server.port()) + std::string(path);
    }
    asio::awaitable<void> stop() {
        co_await client.stop();
        co_await server.stop(0s);
    }
    HttpServer server;
    HttpClient client;
};

inline Url url_of(const HttpServer& server, std::string target = "/") {
    return {"http", "127.0.0.1", server.port(), std::move(target)};
}

inline std::string get(std::string target, std::string more = {}) {
    return "GET " + std::move(target) + " HTTP/1.1\r\nHost: x\r\n" + std::move(more) + "\r\n";
}

inline std::string body_of(const std::string& answer) {
    const auto at = answer.find("\r\n\r\n");
    return at == std::string::npos ? std::string() : answer.substr(at + 4);
}
inline int status_of_answer(const std::string& answer) { return answer.size() > 12 ? std::atoi(answer.c_str() + 9) : 0; }

} // namespace orrery::net::peers
