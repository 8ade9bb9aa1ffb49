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

/// A connection, plain or TLS. Belongs to one event loop; at most one read and one write at a time. The destructor closes it.
class ByteStream {
public:
    struct Io {
        boost::system::error_code error; ///< asio::error::eof at the end, also without a TLS close_notify
        std::size_t bytes = 0;
    };
    virtual ~ByteStream() = default;
    virtual asio::awaitable<Io> read_some(char* data, std::size_t size) = 0;
    /// Writes a part of `head` and then `body` without waiting; 0 bytes when the socket is not ready.
    virtual Io write_now(std::string_view head, std::string_view body) = 0;
    /// Waits until a part of `head` and then `body` is written.
    virtual asio::awaitable<Io> write_some(std::string_view head, std::string_view body) = 0;
    /// Sends the end of the stream.
    virtual asio::awaitable<void> finish() = 0;
    /// Ends pending operations with operation_aborted.
    virtual void cancel() = 0;
    /// Ends pending and later operations.
    virtual void close() = 0;
    /// The socket, for poll; -1 if there is no socket.
    virtual int descriptor() const = 0;
};

/// A plain stream on a connected socket.
std::unique_ptr<ByteStream> plain_stream(asio::ip::tcp::socket socket);

/// The server side of TLS. Call `handshake` first.
class TlsServerStream : public ByteStream {
public:
    virtual asio::awaitable<boost::system::error_code> handshake() = 0;
    /// Common name of the verified client certificate; else empty.
    virtual std::string client_name() const = 0;
};
std::unique_ptr<TlsServerStream> tls_server_stream(asio::ip::tcp::socket socket, std::shared_ptr<TlsContext> tls);

/// Resolves, connects and, for https, performs the handshake and verifies the certificate, until the deadline of the context.
/// Errors: `unavailable`, `timeout`, `denied`, all with the peer. Connects only to addresses that `outbound` permits (null: all).
Task<std::unique_ptr<ByteStream>> connect_stream(Context ctx, Url url, std::shared_ptr<TlsContext> tls, Duration connect_timeout,
                                                 OutboundRulesPtr outbound = nullptr);

/// The client side of TLS on a connected socket: performs the handshake and verifies the certificate. Errors as above.
Task<std::unique_ptr<ByteStream>> tls_client_stream(Context ctx, Url url, std::shared_ptr<TlsContext> tls,
                                                    asio::ip::tcp::socket socket);

/// The text of a system error as part of a sentence: "connection refused".
std::string system_error_text(const boost::system::error_code& error);

} // namespace orrery::net
