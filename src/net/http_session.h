#pragma once

#include "net/http_parser.h"
#include "net/http_server.h"
#include "net/wire.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>

#include <memory>
#include <string>

namespace orrery::net {

/// What all connections of a server share.
struct ServerShared {
    HttpServer::Options options;
    Handler handler;
    bool stopping = false;
    std::string date_field; ///< "Date: ...\r\n", renewed by the sweep

    void renew_date();
    Response error_response(const Context& ctx, const Error& error) const;
};

/// One client's connection to the server: reads requests, calls the handler, writes answers, one after the other. Keeps no timer of
/// its own: the server sweeps over all connections and tells each what time it is.
class HttpSession final : public std::enable_shared_from_this<HttpSession>, private BodyReader, private ResponseWriter {
public:
    HttpSession(std::shared_ptr<ServerShared> shared, std::unique_ptr<Wire> wire, std::string peer, bool tls);
    /// From the first byte (or the handshake) to the end of the connection.
    asio::awaitable<void> run();
    /// Answers 503 and closes.
    asio::awaitable<void> refuse();

    /// Ends what has lasted too long.
    void sweep(SteadyTime now);
    /// Whether a stream is being sent, or waited for, whose client may leave without a sound.
    bool is_streaming() const { return (begun_ || waiting_) && !finished_ && !gone_; }
    int descriptor() const { return wire_->descriptor(); }
    /// The client closed its end.
    void client_left();
    /// The server wants to stop: ends if idle, wakes a stream, else closes after the answer.
    void begin_stop();
    /// Now, whatever is under way.
    void cut();

    asio::cancellation_signal cancel; ///< bound to `run` by the owner

private:
    enum class Phase { handshake, idle, head, handling, closing };
    using Step = MessageParser::Step;
    static constexpr std::uint64_t discard_at_most = 256 * 1024; // of an unread body; beyond that a new connection is cheaper

    asio::awaitable<bool> serve_one();
    asio::awaitable<Step> read_head();
    asio::awaitable<bool> answer_fault(int status, Error error);
    asio::awaitable<void> call_handler(Context ctx);
    asio::awaitable<bool> discard_body();
    asio::awaitable<void> close_gently();
    /// More bytes into the buffer, until the deadline. False at the end of the connection, on errors and timeouts.
    asio::awaitable<bool> fill(SteadyTime deadline);
    Task<Unit> put(std::string_view head, std::string_view body);
    void write_head(int status, const Headers& headers, std::optional<std::size_t> length);
    std::string_view buffered() const { return std::string_view(buffer_).substr(taken_, filled_ - taken_); }
    void take_until(std::string_view rest) { taken_ = filled_ - rest.size(); }
    Error gone_error() const;
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
    std::unique_ptr<Wire> wire_;
    MessageParser parser_;
    std::string buffer_; // bytes taken_ .. filled_ are unread
    std::size_t taken_ = 0, filled_ = 0;
    std::string out_head_;

    // The connection
    Phase phase_ = Phase::handshake;
    bool gone_ = false; // no more bytes either way
    bool reading_ = false, writing_ = false;
    bool read_timed_out_ = false, write_timed_out_ = false;
    SteadyTime read_deadline_{}, write_deadline_{};
    unsigned without_rest_ = 0; // requests and writes since the loop last had a turn
    bool first_request_ = true;

    // The request under way
    Request request_;
    std::string request_id_;
    bool is_head_ = false;
    bool keep_alive_ = false;
    bool expects_continue_ = false;
    bool body_broken_ = false;
    std::uint64_t body_read_ = 0;
    bool handler_timed_out_ = false;
    SteadyTime handler_deadline_{};

    // Its answer
    bool begun_ = false, finished_ = false, chunked_ = false;
    bool waiting_ = false;                  // the handler said that it will be quiet for long
    std::optional<std::uint64_t> promised_; // bytes of a stream with Content-Length still to be written
    int status_ = 0;
};

} // namespace orrery::net
