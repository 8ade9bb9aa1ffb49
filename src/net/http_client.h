#pragma once

#include "net/http.h"
#include "net/outbound.h"
#include "net/tls.h"

#include <memory>
#include <string>

namespace orrery::net {

struct Url {
    std::string scheme; ///< "http" or "https"
    std::string host;   ///< name or address, IPv6 without brackets
    std::uint16_t port = 0;
    std::string target; ///< path and query, at least "/"
    std::string text() const;
    /// Without the target: "http://127.0.0.1:8400", "https://[::1]".
    std::string origin() const;
};
/// Errors: `invalid` unless it is an absolute http or https URL without user info.
Result<Url> parse_url(std::string_view text);
/// Resolves the value of a Location header against `base`. Errors as parse_url.
Result<Url> resolve_location(const Url& base, std::string_view location);

struct ClientRequest {
    std::string method = "GET";
    Url url;
    Headers headers;
    std::string body;
    std::size_t max_answer = 16 << 20; ///< of the response body; a larger one is `too_large`
    int follow_redirects = 0;          ///< maximum number, for GET and HEAD only; credentials are not sent to a different host
};

struct ClientResponse {
    int status = 0;
    Headers headers;
    std::string body;
};

/// A response whose body is read incrementally (server-sent events, large downloads). The destructor closes the connection.
class ClientStream {
public:
    virtual ~ClientStream() = default;
    virtual int status() const = 0;
    virtual const Headers& headers() const = 0;
    virtual BodyReader& body() = 0;
};

/// An HTTP/1.1 client on the event loop. Keeps idle connections for re-use; retries once, on a new connection, when a re-used one
/// closes before the first byte of the response. Uses the deadline of the context (30 s without one). Sends the id of the context
/// as X-Request-Id. Resolves names on a thread pool.
class HttpClient {
public:
    struct Options {
        std::shared_ptr<TlsContext> tls; ///< null: the certificates of the system
        std::size_t max_idle_per_host = 16;
        std::size_t max_per_host = 256;          ///< connections; further requests wait
        std::size_t max_waiting_per_host = 4096; ///< further requests are `throttled`
        Duration idle_timeout = std::chrono::seconds(50);
        Duration connect_timeout = std::chrono::seconds(10);
        OutboundRulesPtr outbound; ///< for all connections, also after redirects; null: all addresses are permitted
    };

    HttpClient(asio::any_io_executor executor, Options options);
    ~HttpClient();
    /// Returns the response, whatever its status. Errors: `unavailable`: the connection failed or broke (the message names the
    /// peer); `timeout`; `too_large`; `denied`: the certificate did not verify, or the outbound rules do not permit the address.
    Task<ClientResponse> send(Context ctx, ClientRequest request);
    Task<std::unique_ptr<ClientStream>> open(Context ctx, ClientRequest request);
    /// Like `send`, with a streamed request body: `more` returns the next piece, empty at the end.
    Task<ClientResponse> upload(Context ctx, ClientRequest request, std::function<Task<std::string>()> more);
    asio::awaitable<void> stop();

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::net
