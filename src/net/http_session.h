#pragma once

#include "net/byte_stream.h"
#include "net/http_parser.h"
#include "net/http_server.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>

#include <memory>
#include <string>

namespace orrery::net {

/// The state that all connections of a server share.
struct ServerShared {
    HttpServer::Options options;
    Handler handler;
    bool stopping = false;
    std::string date_field; ///< "Date: ...\r\n", updated by the sweep

    void renew_date();
    Response error_response(const Context& ctx, const Error& error) const;
};

/// One client connection of the server: reads requests, calls the handler and writes responses, one after the other. It has no
/// timer; the server calls `sweep` on all sessions periodically.
class HttpSession final : public std::enable_shared_from_this<HttpSession>, private BodyReader, private ResponseWriter {
public:
    HttpSession(std::shared_ptr<ServerShared> shared, std::unique_ptr<ByteStream> stream, std::string peer, bool tls);
    /// Serves the connection, from the handshake or the first byte to its end.
    asio::awaitable<void> run();
    /// Responds with 503 and closes the connection.
    asio::awaitable<void> refuse();

    /// Ends operations whose deadline has passed.
    void sweep(SteadyTime now);
    /// Whether a stream is being sent or prepared, whose client may disconnect without notice.
    bool is_streaming() const { return (begun_ || waiting_) && !finished_ && !closed_; }
    int descriptor() const { return stream_->descriptor(); }
    /// The client closed its end of the connection.
    void client_left();
    /// The server stops: closes an idle connection, wakes a stream, else closes after the response.
    void begin_stop();
    /// Closes the connection at once.
    void cut();

    asio::cancellation_signal cancel; ///< bound to `run` by the owner

private:
    enum class Phase { handshake, idle, head, handling, closing };
    using Step = MessageParser::Step;
    static constexpr std::uint64_t discard_at_most =
        256 * 1024; // of an unread body; beyond that, closing the connection is cheaper

    asio::awaitable<bool> serve_one();
    asio::awaitable<Step> read_head();
    asio::awaitable<bool> answer_fault(int status, Error error);
    asio::awaitable<void> call_handler(Context ctx);
    asio::awaitable<bool> discard_body();
    asio::awaitable<void> close_gently();
    /// Reads more bytes into the buffer. False at the end of the connection, on errors and at the deadline.
    asio::awaitable<bool> fill(SteadyTime deadline);
    Task<Unit> put(std::string_view head, std::string_view body);
    void write_head(int status, const Headers& headers, std::optional<std::size_t> length);
    std::string_view buffered() const { return std::string_view(buffer_).substr(taken_, filled_ - taken_); }
    void consume_to(std::string_view unread) { taken_ = filled_ - unread.size(); }
    Error closed_error() const;
    bool body_may_stay() const;

    // BodyReader
    Task<std::string> read_some(Context ctx) override;
    // ResponseWriter
    Task<Unit> send(Context ctx, Response response) override;
    Task<Unit> begin(Context ctx, int status, Headers headers) override;
    Task<Unit> write(Context ctx, std::string_view chunk) override;
    Task<Unit> finish(Context ctx) override;
    bool begun() const override { return begun_; }
    bool stopping() const override { return shared_->stopping; }
    void will_wait() override { waiting_ = true; }

    std::shared_ptr<ServerShared> shared_;
    std::unique_ptr<ByteStream> stream_;
    MessageParser parser_;
    std::string buffer_; // bytes taken_ .. filled_ are unread
    std::size_t taken_ = 0, filled_ = 0;
    std::string out_head_;

    // The connection
    Phase phase_ = Phase::handshake;
    bool closed_ = false; // no more bytes in either direction
    bool reading_ = false, writing_ = false;
    bool read_timed_out_ = false, write_timed_out_ = false;
    SteadyTime read_deadline_{}, write_deadline_{};
    unsigned without_yield_ = 0; // requests and writes since the coroutine last yielded to the loop
    bool first_request_ = true;

    // The current request
    Request request_;
    std::string request_id_;
    bool is_head_ = false;
    bool keep_alive_ = false;
    bool expects_continue_ = false;
    bool body_broken_ = false;
    std::uint64_t body_read_ = 0;
    bool handler_timed_out_ = false;
    SteadyTime handler_deadline_{};

    // Its response
    bool begun_ = false, finished_ = false, chunked_ = false;
    bool waiting_ = false;                  // the handler called `will_wait`
    std::optional<std::uint64_t> promised_; // bytes of a stream with Content-Length that are not written yet
    int status_ = 0;
};

} // namespace orrery::net
