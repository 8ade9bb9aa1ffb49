#pragma once

#include <memory>
#include <string>

#include "net/http.h"
#include "net/tls.h"

namespace orrery::net {

struct Request {
    std::string method;
    Target target;
    Headers headers;
    std::string peer;               ///< address of the client, without port
    std::string client_certificate; ///< common name of the certificate it showed and we verified; else empty
    bool tls = false;
    std::string route; ///< what the handler found it to be ("/v1/nodes/{name}"), for `on_done`; empty where it matched nothing
};

struct Response {
    int status = 200;
    Headers headers;
    std::string body;
};

/// How a handler answers: `send` once, or `begin`, any number of `write`s, and `finish`. Every call waits until the socket has taken the
/// bytes (back-pressure) and fails with `cancelled` or `unavailable` when the client has gone.
class ResponseWriter {
public:
    virtual ~ResponseWriter() = default;
    virtual Task<Unit> send(Context ctx, Response response) = 0;
    virtual Task<Unit> begin(Context ctx, int status, Headers headers) = 0;
    virtual Task<Unit> write(Context ctx, std::string_view chunk) = 0;
    virtual Task<Unit> finish(Context ctx) = 0;
    virtual bool begun() const = 0;
    /// Becomes true when the server wants to stop: long streams should say good-bye and finish. Wakes whatever waits through `stopping_context`.
    virtual bool stopping() const = 0;
};

/// Called once a request's head has arrived. `ctx` carries the request id (X-Request-Id in, or made) and the request's deadline. Whatever is left of the body is
/// discarded (or the connection closed if there is much). An Error returned before anything was sent becomes what `Options::on_error` makes of it.
using Handler = std::function<Task<Unit>(Context ctx, Request& request, BodyReader& body, ResponseWriter& out)>;

/// An HTTP/1.1 server on the event loop: keep-alive, pipelining in order, chunked bodies both ways, TLS. Every response carries X-Request-Id.
/// Nothing a client sends can grow it: heads, bodies, connections and times are bounded.
class HttpServer {
public:
    struct Options {
        std::string address = "127.0.0.1";
        std::uint16_t port = 0; ///< 0: any free one, see `port()`
        std::shared_ptr<TlsContext> tls;
        std::size_t max_head = 32 * 1024;
        std::size_t max_body = 4 << 20;
        std::size_t max_connections = 10'000;                   ///< further ones are answered 503 and closed
        Duration head_timeout = std::chrono::seconds(15);       ///< a head must arrive within, also the TLS handshake
        Duration idle_timeout = std::chrono::seconds(120);      ///< between requests
        Duration request_timeout = std::chrono::seconds(60);    ///< deadline in the handler's context, and for the body; streams take `ctx` without it
        Duration write_timeout = std::chrono::seconds(30);      ///< a client that takes no byte for so long is cut off
        std::function<Response(const Context&, const Error&)> on_error; ///< default: text/plain with the error's sentence
        std::function<void(const Context&, const Request&, int status, Duration took)> on_done; ///< for metrics and access logs
    };

    HttpServer(asio::any_io_executor executor, Options options, Handler handler);
    ~HttpServer();
    /// Listens. `unavailable` with the reason (address in use, no permission) where it cannot.
    Result<Unit> start();
    std::uint16_t port() const;
    std::size_t connections() const;
    /// Stops accepting, closes idle connections, lets requests under way finish for up to `grace`, then cuts the rest.
    asio::awaitable<void> stop(Duration grace);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::net
