#pragma once

#include "net/http.h"
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
/// `invalid` for anything but an absolute http or https URL without user info.
Result<Url> parse_url(std::string_view text);
/// Where a Location leads to from `base`, in any of the forms it may have. `invalid` as above.
Result<Url> resolve_location(const Url& base, std::string_view location);

struct ClientRequest {
    std::string method = "GET";
    Url url;
    Headers headers;
    std::string body;
    std::size_t max_answer = 16 << 20; ///< a longer body is `too_large`
    int follow_redirects = 0;          ///< how many, for GET and HEAD only; credentials are not sent to another host
};

struct ClientResponse {
    int status = 0;
    Headers headers;
    std::string body;
};

/// A response whose body is read as it comes (server-sent events, large downloads). Destroying it closes its connection.
class ClientStream {
public:
    virtual ~ClientStream() = default;
    virtual int status() const = 0;
    virtual const Headers& headers() const = 0;
    virtual BodyReader& body() = 0;
};

/// An HTTP/1.1 client on the event loop. Keeps idle connections per host for re-use; retries once, on a fresh connection, when a
/// re-used one closes before a byte of the answer. Deadlines come from the context (30 s without one). Sends the context's id as
/// X-Request-Id. Resolves names on the pool.
class HttpClient {
public:
    struct Options {
        std::shared_ptr<TlsContext> tls; ///< null: the system's certificates
        std::size_t max_idle_per_host = 16;
        std::size_t max_per_host = 256;          ///< connections; further requests wait for a place
        std::size_t max_waiting_per_host = 4096; ///< and further ones are `throttled`
        Duration idle_timeout = std::chrono::seconds(50);
        Duration connect_timeout = std::chrono::seconds(10);
    };

    HttpClient(asio::any_io_executor executor, Options options);
    ~HttpClient();
    /// The answer, whatever its status. `unavailable`: no connection, or it broke, in words that name the peer; `timeout`;
    /// `too_large`; `denied`: its certificate did not verify.
    Task<ClientResponse> send(Context ctx, ClientRequest request);
    Task<std::unique_ptr<ClientStream>> open(Context ctx, ClientRequest request);
    /// Like `send`, with a body produced as it is sent: `more` gives the next piece, empty at the end.
    Task<ClientResponse> upload(Context ctx, ClientRequest request, std::function<Task<std::string>()> more);
    asio::awaitable<void> stop();

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::net
