#include "net/byte_stream.h"

#include "net/tls_context.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cerrno>
#include <sys/socket.h>
#include <sys/uio.h>

namespace orrery::net {

namespace {

using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;
constexpr auto stream_token = asio::as_tuple(asio::use_awaitable);

void close_quietly(Tcp::socket& socket) {
    ErrorCode ignored;
    socket.close(ignored);
}

class PlainStream final : public ByteStream {
public:
    explicit PlainStream(Tcp::socket socket) : socket_(std::move(socket)) {
        ErrorCode ignored;
        socket_.non_blocking(true, ignored);
        socket_.set_option(Tcp::no_delay(true), ignored);
        socket_.set_option(asio::socket_base::keep_alive(true), ignored);
    }

    asio::awaitable<Io> read_some(char* data, std::size_t size) override {
        auto [error, bytes] = co_await socket_.async_read_some(asio::buffer(data, size), stream_token);
        co_return Io{error, bytes};
    }

    Io write_now(std::string_view head, std::string_view body) override {
        iovec parts[2] = {{const_cast<char*>(head.data()), head.size()}, {const_cast<char*>(body.data()), body.size()}};
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = 2;
        for (;;) {
            const auto sent = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent >= 0) return {{}, static_cast<std::size_t>(sent)};
            if (errno == EINTR) continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
            return {ErrorCode(errno, boost::system::system_category()), 0};
        }
    }

    asio::awaitable<Io> write_some(std::string_view head, std::string_view body) override {
        for (;;) {
            auto io = write_now(head, body);
            if (io.error || io.bytes > 0) co_return io;
            auto [error] = co_await socket_.async_wait(Tcp::socket::wait_write, stream_token);
            if (error) co_return Io{error, 0};
        }
    }

    asio::awaitable<void> finish() override {
        ErrorCode ignored;
        socket_.shutdown(Tcp::socket::shutdown_send, ignored);
        co_return;
    }

    void cancel() override {
        ErrorCode ignored;
        socket_.cancel(ignored);
    }
    void close() override { close_quietly(socket_); }
    int descriptor() const override { return const_cast<Tcp::socket&>(socket_).native_handle(); }

private:
    Tcp::socket socket_;
};

class TlsStream final : public TlsServerStream {
public:
    using Stream = asio::ssl::stream<Tcp::socket>;

    TlsStream(Tcp::socket socket, std::shared_ptr<TlsContext> tls)
        : tls_(std::move(tls)), stream_(std::move(socket), tls_->context) {
        ErrorCode ignored;
        stream_.lowest_layer().set_option(Tcp::no_delay(true), ignored);
        stream_.lowest_layer().set_option(asio::socket_base::keep_alive(true), ignored);
    }

    asio::awaitable<ErrorCode> handshake() override {
        auto [error] = co_await stream_.async_handshake(Stream::server, stream_token);
        co_return error;
    }

    asio::awaitable<ErrorCode> connect(std::string host) {
        SSL* ssl = stream_.native_handle();
        X509_VERIFY_PARAM* verify = SSL_get0_param(ssl);
        ErrorCode not_an_address;
        asio::ip::make_address(host, not_an_address);
        if (not_an_address) {
            SSL_set_tlsext_host_name(ssl, host.c_str());
            X509_VERIFY_PARAM_set_hostflags(verify, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
            X509_VERIFY_PARAM_set1_host(verify, host.c_str(), host.size());
        } else {
            X509_VERIFY_PARAM_set1_ip_asc(verify, host.c_str());
        }
        auto [error] = co_await stream_.async_handshake(Stream::client, stream_token);
        co_return error;
    }

    long verify_result() { return SSL_get_verify_result(stream_.native_handle()); }

    std::string client_name() const override {
        SSL* ssl = const_cast<Stream&>(stream_).native_handle();
        X509* certificate = SSL_get0_peer_certificate(ssl);
        if (!certificate || SSL_get_verify_result(ssl) != X509_V_OK) return {};
        char name[256] = {};
        const int length = X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof name);
        // A NUL in the name would truncate it to a different name.
        if (length <= 0 || std::string_view(name).size() != static_cast<std::size_t>(length)) return {};
        return name;
    }

    asio::awaitable<Io> read_some(char* data, std::size_t size) override {
        auto [error, bytes] = co_await stream_.async_read_some(asio::buffer(data, size), stream_token);
        if (error == asio::ssl::error::stream_truncated) error = asio::error::eof;
        co_return Io{error, bytes};
    }

    Io write_now(std::string_view, std::string_view) override { return {}; }

    asio::awaitable<Io> write_some(std::string_view head, std::string_view body) override {
        // One record for both: OpenSSL takes no lists of buffers.
        constexpr std::size_t record = 16 * 1024;
        std::string_view piece = head.empty() ? body : head;
        if (!head.empty() && !body.empty() && head.size() < record) {
            joined_.assign(head);
            joined_.append(body.substr(0, record - head.size()));
            piece = joined_;
        }
        auto [error, bytes] = co_await stream_.async_write_some(asio::buffer(piece.data(), piece.size()), stream_token);
        co_return Io{error, bytes};
    }

    asio::awaitable<void> finish() override {
        // Mark close_notify as received: send ours without waiting for that of the peer.
        SSL* ssl = stream_.native_handle();
        SSL_set_shutdown(ssl, SSL_get_shutdown(ssl) | SSL_RECEIVED_SHUTDOWN);
        co_await stream_.async_shutdown(stream_token);
        ErrorCode ignored;
        stream_.lowest_layer().shutdown(Tcp::socket::shutdown_send, ignored);
    }

    void cancel() override {
        ErrorCode ignored;
        stream_.lowest_layer().cancel(ignored);
    }
    void close() override { close_quietly(stream_.next_layer()); }
    int descriptor() const override { return const_cast<Stream&>(stream_).lowest_layer().native_handle(); }

private:
    std::shared_ptr<TlsContext> tls_;
    Stream stream_;
    std::string joined_;
};

} // namespace

std::unique_ptr<ByteStream> plain_stream(Tcp::socket socket) { return std::make_unique<PlainStream>(std::move(socket)); }

std::unique_ptr<TlsServerStream> tls_server_stream(Tcp::socket socket, std::shared_ptr<TlsContext> tls) {
    return std::make_unique<TlsStream>(std::move(socket), std::move(tls));
}

namespace {

/// A name resolution in progress. Shared with the completion on the resolver thread, because the resolver of the system cannot be
/// interrupted: the waiting coroutine may end earlier.
struct Lookup {
    explicit Lookup(const asio::any_io_executor& executor) : resolver(executor), answered(executor) {}
    Tcp::resolver resolver;
    asio::steady_timer answered;
    bool is_answered = false;
    ErrorCode error;
    std::vector<Tcp::endpoint> endpoints;
};

Error cannot_connect(const Url& url, Code code, std::string_view why, std::string remedy = {}) {
    return Error{code, fmt::format("cannot connect to {}: {}", url.origin(), why), std::move(remedy)};
}

Task<std::vector<Tcp::endpoint>> resolve(Context ctx, Url url) {
    ErrorCode not_an_address;
    const auto address = asio::ip::make_address(url.host, not_an_address);
    if (!not_an_address) co_return std::vector{Tcp::endpoint(address, url.port)};

    auto lookup = std::make_shared<Lookup>(co_await asio::this_coro::executor);
    lookup->answered.expires_at(ctx.deadline().value_or(SteadyTime::max()));
    lookup->resolver.async_resolve(url.host, std::to_string(url.port), Tcp::resolver::numeric_service,
                                   [lookup](ErrorCode error, const Tcp::resolver::results_type& results) {
                                       lookup->is_answered = true;
                                       lookup->error = error;
                                       for (const auto& result : results) lookup->endpoints.push_back(result.endpoint());
                                       lookup->answered.cancel();
                                   });
    auto [error] = co_await lookup->answered.async_wait(stream_token);
    if (!lookup->is_answered) {
        if (error) co_return cannot_connect(url, Code::cancelled, "the caller was cancelled");
        co_return cannot_connect(url, Code::timeout, fmt::format("the name {} was not resolved in time", url.host),
                                 "check the name servers");
    }
    if (lookup->error || lookup->endpoints.empty()) {
        co_return cannot_connect(url, Code::unavailable,
                                 fmt::format("the name {} was not found ({})", url.host, system_error_text(lookup->error)),
                                 "check how the name is spelled and the name servers");
    }
    co_return std::move(lookup->endpoints);
}

Task<Tcp::socket> connect_one(Url url, Tcp::endpoint endpoint) {
    co_await asio::this_coro::throw_if_cancelled(false);
    Tcp::socket socket(co_await asio::this_coro::executor);
    auto [error] = co_await socket.async_connect(endpoint, stream_token);
    if (!error) co_return std::move(socket);
    if (error == asio::error::operation_aborted) co_return cannot_connect(url, Code::cancelled, "the caller was cancelled");
    co_return cannot_connect(url, Code::unavailable, system_error_text(error),
                             error == asio::error::connection_refused ? "check that the service runs and listens there"
                                                                      : "check the address and the way to it");
}

/// Tries the addresses one at a time; each gets a share of the remaining time.
Task<Tcp::socket> connect_any(Context ctx, Url url, OutboundRulesPtr outbound) {
    CO_TRY(auto endpoints, co_await resolve(ctx, url));
    if (auto permitted = keep_permitted(outbound.get(), endpoints); !permitted.ok())
        co_return cannot_connect(url, Code::denied, permitted.error().message, permitted.error().remedy);
    Result<Tcp::socket> outcome;
    for (std::size_t at = 0; at < endpoints.size(); ++at) {
        const auto left = *ctx.deadline() - real_clock().steady();
        if (at > 0 && left <= Duration::zero()) break;
        const auto share = left / static_cast<int>(endpoints.size() - at);
        outcome = co_await within_deadline(ctx.with_timeout(share), connect_one(url, endpoints[at]));
        if (outcome.ok() || outcome.error().code == Code::cancelled) co_return std::move(outcome);
        if (outcome.error().code == Code::timeout)
            outcome = cannot_connect(url, Code::timeout, "no answer in time", "check the address and the way to it");
    }
    co_return std::move(outcome);
}

Task<std::unique_ptr<ByteStream>> shake_hands(Url url, std::shared_ptr<TlsContext> tls, Tcp::socket socket) {
    co_await asio::this_coro::throw_if_cancelled(false);
    auto stream = std::make_unique<TlsStream>(std::move(socket), std::move(tls));
    const auto error = co_await stream->connect(url.host);
    if (!error) co_return std::unique_ptr<ByteStream>(std::move(stream));
    if (error == asio::error::operation_aborted) co_return cannot_connect(url, Code::cancelled, "the caller was cancelled");
    if (const long verdict = stream->verify_result(); verdict != X509_V_OK) {
        co_return cannot_connect(url, Code::denied,
                                 fmt::format("its certificate is not trusted: {}", X509_verify_cert_error_string(verdict)),
                                 verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH
                                     ? "use a name that is in the certificate"
                                     : "give the authority that signed it as ca, or renew it");
    }
    co_return cannot_connect(url, Code::unavailable, fmt::format("no TLS connection: {}", system_error_text(error)),
                             "check that the service speaks TLS on this port");
}

} // namespace

Task<std::unique_ptr<ByteStream>> connect_stream(Context ctx, Url url, std::shared_ptr<TlsContext> tls, Duration connect_timeout,
                                                 OutboundRulesPtr outbound) {
    const auto bounded = ctx.with_timeout(connect_timeout);
    CO_TRY(auto socket, co_await connect_any(bounded, url, std::move(outbound)));
    if (url.scheme != "https") co_return plain_stream(std::move(socket));
    co_return co_await tls_client_stream(bounded, std::move(url), std::move(tls), std::move(socket));
}

Task<std::unique_ptr<ByteStream>> tls_client_stream(Context ctx, Url url, std::shared_ptr<TlsContext> tls, Tcp::socket socket) {
    auto stream = co_await within_deadline(ctx, shake_hands(url, std::move(tls), std::move(socket)));
    if (!stream.ok() && stream.error().code == Code::timeout)
        co_return cannot_connect(url, Code::timeout, "no TLS handshake in time", "check that the service speaks TLS on this port");
    co_return std::move(stream);
}

std::string system_error_text(const ErrorCode& error) {
    if (error == asio::error::eof) return "the connection was closed";
    auto message = error.message();
    // "Connection refused" becomes part of a sentence, "SSL routines" stays.
    if (message.size() > 1 && message[0] >= 'A' && message[0] <= 'Z' && message[1] >= 'a')
        message[0] = static_cast<char>(message[0] + ('a' - 'A'));
    return message;
}

} // namespace orrery::net
