#pragma once

#include "net/http_client.h"
#include "net/tls.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace orrery::net {

/// The bytes of one connection, plain or under TLS. Belongs to one event loop; one read and one write at a time. Destroying it
/// closes it.
class Wire {
public:
    struct Io {
        boost::system::error_code error; ///< asio::error::eof at the end, however the peer ended
        std::size_t bytes = 0;
    };
    virtual ~Wire() = default;
    virtual asio::awaitable<Io> read_some(char* data, std::size_t size) = 0;
    /// Some of `head` and then `body`, at once and without waiting: 0 where the socket is full or must be waited for.
    virtual Io write_now(std::string_view head, std::string_view body) = 0;
    /// Waits until some of `head` and then `body` is taken.
    virtual asio::awaitable<Io> write_some(std::string_view head, std::string_view body) = 0;
    /// Says that we send no more.
    virtual asio::awaitable<void> finish() = 0;
    /// Ends what is under way with operation_aborted.
    virtual void cancel() = 0;
    /// Ends what is under way and all that comes.
    virtual void close() = 0;
    /// The socket, to be polled; -1 where there is none.
    virtual int descriptor() const = 0;
};

/// On a connected socket. `accept_tls` and `connect_tls` shake hands first.
std::unique_ptr<Wire> plain_wire(asio::ip::tcp::socket socket);

/// A server's side of TLS. The handshake is made by the first call of `handshake`.
class TlsServerWire : public Wire {
public:
    virtual asio::awaitable<boost::system::error_code> handshake() = 0;
    /// Common name of the client's verified certificate; else empty.
    virtual std::string client_name() const = 0;
};
std::unique_ptr<TlsServerWire> tls_server_wire(asio::ip::tcp::socket socket, std::shared_ptr<TlsContext> tls);

/// Resolves, connects and, for https, shakes hands and verifies; bounded by the context's deadline. `unavailable`, `timeout` and
/// `denied` name the peer.
Task<std::unique_ptr<Wire>> connect_wire(Context ctx, Url url, std::shared_ptr<TlsContext> tls, Duration connect_timeout);

/// The client's side of TLS on a connected socket: shakes hands and verifies, within the context's deadline. Errors as above.
Task<std::unique_ptr<Wire>> tls_client_wire(Context ctx, Url url, std::shared_ptr<TlsContext> tls, asio::ip::tcp::socket socket);

/// "connection refused": what the system says, as part of a sentence.
std::string in_words(const boost::system::error_code& error);

} // namespace orrery::net
