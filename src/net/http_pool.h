#pragma once

#include "net/byte_stream.h"
#include "net/http_client.h"
#include "net/http_parser.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <list>
#include <memory>
#include <string>
#include <unordered_map>

namespace orrery::net {

/// A client connection and the bytes that were read after the last message.
struct ClientConnection {
    explicit ClientConnection(std::unique_ptr<ByteStream> stream_, std::size_t max_head)
        : stream(std::move(stream_)), parser(MessageParser::Kind::response, max_head) {}
    std::unique_ptr<ByteStream> stream;
    MessageParser parser;
    std::string buffer;
    std::size_t taken = 0, filled = 0; // of buffer
    bool reused = false;
    std::string_view unread() const { return std::string_view(buffer).substr(taken, filled - taken); }
    /// Whether the connection is open and has no unexpected bytes, as it must be between messages.
    bool is_usable() const;
};

/// Connections by origin ("https://host:port"): idle connections for re-use, a limit on connections, and a queue of requests that
/// wait for one.
class HttpPool : public std::enable_shared_from_this<HttpPool> {
public:
    HttpPool(asio::any_io_executor executor, HttpClient::Options options);

    /// A slot for one connection, and the connection once it exists. The destructor releases the slot.
    class Lease {
    public:
        Lease() = default;
        Lease(std::shared_ptr<HttpPool> pool, std::string origin) : pool_(std::move(pool)), origin_(std::move(origin)) {}
        Lease(Lease&& other) noexcept = default;
        Lease& operator=(Lease&& other) noexcept;
        ~Lease() { release(); }
        /// Returns a connection that is at a message boundary to the pool.
        void keep();
        void release();
        void attach(std::unique_ptr<ClientConnection> connection);
        void drop();
        ClientConnection* operator->() const { return connection_.get(); }
        explicit operator bool() const { return connection_ != nullptr; }

    private:
        std::shared_ptr<HttpPool> pool_;
        std::string origin_;
        std::unique_ptr<ClientConnection> connection_;
    };
    enum class Use { idle_first, fresh };

    /// Waits for a slot of the origin. With `idle_first` the lease has an idle connection if one is usable.
    Task<Lease> acquire(Context ctx, Url url, Use use);
    /// Opens a connection for a lease that has none.
    Task<Unit> connect(Context ctx, Url url, Lease& lease);
    void stop();

private:
    struct Idle {
        std::unique_ptr<ClientConnection> connection;
        SteadyTime since;
    };
    struct Waiter {
        explicit Waiter(asio::steady_timer timer_) : timer(std::move(timer_)) {}
        asio::steady_timer timer;
        bool granted = false; // a slot was passed to this waiter
    };
    struct Origin {
        std::list<Idle> idle; // the most recently used at the back
        std::list<std::shared_ptr<Waiter>> waiting;
        std::list<ClientConnection*> busy;
        std::size_t in_use = 0;
    };
    Result<std::shared_ptr<TlsContext>> tls();
    void give_back(const std::string& origin, std::unique_ptr<ClientConnection> connection);
    void release_slot(const std::string& origin);
    void forget_if_empty(const std::string& origin);
    void close_old();

    asio::any_io_executor executor_;
    HttpClient::Options options_;
    std::unordered_map<std::string, Origin> origins_;
    asio::steady_timer reaper_;
    bool reaping_ = false;
    bool stopped_ = false;
};

} // namespace orrery::net
