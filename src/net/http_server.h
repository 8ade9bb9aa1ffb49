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
    std::string client_certificate; ///< common name of the certificate it showed and we verified; else empty
    bool tls = false;
    std::string route; ///< what the handler found it to be ("/v1/nodes/{name}"), for `on_done`; empty where it matched nothing
    std::string actor; ///< whom the handler found to be asking, for `on_done`
};

struct Response {
    int status = 200;
    Headers headers;
    std::string body;
};

/// How a handler answers: `send` once, or `begin`, any number of `write`s, and `finish`. Every call waits until the socket has
/// taken the bytes (back-pressure) and fails with `cancelled` or `unavailable` when the client has gone, with `timeout` when it was
/// cut off because it took nothing. Once a stream has begun, a client that goes away cancels whatever the handler awaits. `begin`
/// sends chunks, or exactly as much as a Content-Length among its headers says.
class ResponseWriter {
public:
    virtual ~ResponseWriter() = default;
    virtual Task<Unit> send(Context ctx, Response response) = 0;
    virtual Task<Unit> begin(Context ctx, int status, Headers headers) = 0;
    virtual Task<Unit> write(Context ctx, std::string_view chunk) = 0;
    virtual Task<Unit> finish(Context ctx) = 0;
    virtual bool begun() const = 0;
    /// Becomes true when the server wants to stop: streams should say good-bye and finish. What a stream awaits at that moment,
    /// other than this writer, is cancelled once, so that it comes to look here. When the time of grace is over it is cancelled
    /// again and the connection cut.
    virtual bool stopping() const = 0;
    /// Before a long wait for something to answer with: from now on this is looked after like a stream that has begun. What the
    /// handler awaits is cancelled when the client leaves or the server wants to stop.
    virtual void will_wait() = 0;
};

/// Called once a request's head has arrived. `ctx` carries the request id (X-Request-Id in, or made) and the request's deadline.
/// Whatever is left of the body is discarded (or the connection closed if there is much). An Error returned before anything was
/// sent becomes what `Options::on_error` makes of it; afterwards it closes the connection, so that the client sees that the answer
/// is not whole.
using Handler = std::function<Task<Unit>(Context ctx, Request& request, BodyReader& body, ResponseWriter& out)>;

/// An HTTP/1.1 server on the event loop: keep-alive, pipelining in order, chunked bodies both ways, TLS. Every response carries
/// X-Request-Id. Nothing a client sends can grow it: heads, bodies, connections and times are bounded.
class HttpServer {
public:
    struct Listen {
        std::string address; ///< "127.0.0.1", "::1", "0.0.0.0"
        std::uint16_t port = 0;
        std::shared_ptr<TlsContext> tls; ///< null: plain
    };
    struct Options {
        std::string address = "127.0.0.1";
        std::uint16_t port = 0; ///< 0: any free one, see `port()`
        std::shared_ptr<TlsContext> tls;
        std::vector<Listen> also; ///< further addresses to listen on
        std::size_t max_head = 32 * 1024;
        std::size_t max_body = 4 << 20;
        std::size_t max_connections = 10'000;              ///< further ones are answered 503 and closed
        Duration head_timeout = std::chrono::seconds(15);  ///< a head must arrive within, also the TLS handshake
        Duration idle_timeout = std::chrono::seconds(120); ///< between requests
        Duration request_timeout =
            std::chrono::seconds(60); ///< deadline in the handler's context, and for the body; streams take `ctx` without it
        Duration write_timeout = std::chrono::seconds(30); ///< a client that takes no byte for so long is cut off
        /// Default: text/plain with the error's sentence. For what is wrong with the HTTP itself the server sets the status (400,
        /// 408, 431, ...).
        std::function<Response(const Context&, const Error&)> on_error;
        /// For metrics and access logs. Status 0: the client left before the answer; no method: the request could not be read.
        std::function<void(const Context&, const Request&, int status, Duration took)> on_done;
    };

    HttpServer(asio::any_io_executor executor, Options options, Handler handler);
    ~HttpServer();
    /// Listens. `unavailable` with the reason (address in use, no permission) where it cannot.
    Result<Unit> start();
    std::uint16_t port() const;
    /// Of all addresses, in the order `address`, `also`.
    std::vector<std::uint16_t> ports() const;
    std::size_t connections() const;
    /// Stops accepting, closes idle connections, lets requests under way finish for up to `grace`, then cuts the rest.
    asio::awaitable<void> stop(Duration grace);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::net
