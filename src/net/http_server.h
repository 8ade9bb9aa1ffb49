#pragma once

#include "net/http.h"
#include "net/tls.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace orrery::net {

struct Request {
    std::string method;
    Target target;
    Headers headers;
    std::string peer;               ///< address of the client, without port
    std::string client_certificate; ///< common name of the verified client certificate; else empty
    bool tls = false;
    std::string route; ///< set by the handler for `on_done` ("/v1/nodes/{name}"); empty when no route matched
    std::string actor; ///< the authenticated principal, set by the handler for `on_done`
};

struct Response {
    int status = 200;
    Headers headers;
    std::string body;
};

/// Writes the response: `send` once, or `begin`, any number of `write`s, and `finish`. Each call waits until the socket has
/// accepted the bytes (back-pressure). Errors: `cancelled` or `unavailable` when the client has closed the connection, `timeout`
/// when the client did not read. After `begin`, a client that disconnects cancels the operation that the handler awaits. `begin`
/// uses chunked encoding unless its headers have a Content-Length, which then must be exact.
class ResponseWriter {
public:
    virtual ~ResponseWriter() = default;
    virtual Task<Unit> send(Context ctx, Response response) = 0;
    virtual Task<Unit> begin(Context ctx, int status, Headers headers) = 0;
    virtual Task<Unit> write(Context ctx, std::string_view chunk) = 0;
    virtual Task<Unit> finish(Context ctx) = 0;
    virtual bool begun() const = 0;
    /// True while the server stops: streams should finish. When the stop begins, the operation that a stream awaits is cancelled
    /// once (unless it is a call of this writer), so that the handler can check this flag. After the grace period it is cancelled
    /// again and the connection is closed.
    virtual bool stopping() const = 0;
    /// Call it before a long wait for the data of the response. From then on the request counts as a stream: the operation that the
    /// handler awaits is cancelled when the client disconnects or the server stops.
    virtual void will_wait() = 0;
};

/// Called when the head of a request has arrived. `ctx` has the request id (from X-Request-Id, or new) and the deadline. An unread
/// body is discarded, or the connection is closed if much is left. An Error that is returned before the response has begun is sent
/// as `Options::on_error` formats it; a later Error closes the connection, so that the client detects the incomplete response.
using Handler = std::function<Task<Unit>(Context ctx, Request& request, BodyReader& body, ResponseWriter& out)>;

/// An HTTP/1.1 server on the event loop: keep-alive, ordered pipelining, chunked bodies in both directions, TLS. Each response has
/// X-Request-Id. Heads, bodies, connections and times are bounded, so that clients cannot exhaust memory.
class HttpServer {
public:
    struct Listen {
        std::string address; ///< "127.0.0.1", "::1", "0.0.0.0"
        std::uint16_t port = 0;
        std::shared_ptr<TlsContext> tls; ///< null: plain
    };
    struct Options {
        std::string address = "127.0.0.1";
        std::uint16_t port = 0; ///< 0: any free port, see `port()`
        std::shared_ptr<TlsContext> tls;
        std::vector<Listen> also; ///< further addresses to listen on
        std::size_t max_head = 32 * 1024;
        std::size_t max_body = 4 << 20;
        std::size_t max_connections = 10'000;              ///< further connections get 503 and are closed
        Duration head_timeout = std::chrono::seconds(15);  ///< for the head, and for the TLS handshake
        Duration idle_timeout = std::chrono::seconds(120); ///< between requests
        /// The deadline of the handler's context and of the body. Streams use `ctx.without_deadline()`.
        Duration request_timeout = std::chrono::seconds(60);
        Duration write_timeout = std::chrono::seconds(30); ///< a client that reads no byte for this time is disconnected
        /// Formats errors. Default: text/plain with the message. For HTTP errors the server sets the status (400, 408, 431 ...).
        std::function<Response(const Context&, const Error&)> on_error;
        /// For metrics and access logs. Status 0: the client disconnected before the response. No method: the request was not
        /// parsed.
        std::function<void(const Context&, const Request&, int status, Duration took)> on_done;
    };

    HttpServer(asio::any_io_executor executor, Options options, Handler handler);
    ~HttpServer();
    /// Starts to listen. Errors: `unavailable` with the cause (address in use, no permission).
    Result<Unit> start();
    std::uint16_t port() const;
    /// The ports of all listeners, in the order `address`, `also`.
    std::vector<std::uint16_t> ports() const;
    std::size_t connections() const;
    /// Stops accepting, closes idle connections, waits up to `grace` for running requests, then closes their connections.
    asio::awaitable<void> stop(Duration grace);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::net
