#pragma once

#include "net/http_pool.h"

#include <functional>
#include <memory>
#include <string>

namespace orrery::net {

/// The bytes of a request head. Errors: `invalid` for a method, target or field that HTTP does not allow.
Result<std::string> request_head(const Context& ctx, const ClientRequest& request, bool streams_body);

/// One request and its response on one connection.
class HttpExchange final : public ClientStream, private BodyReader {
public:
    HttpExchange(HttpPool::Lease lease, std::string origin) : lease_(std::move(lease)), origin_(std::move(origin)) {}

    /// Sends the request and reads the head of the response. `more`, if set, produces the request body.
    Task<Unit> start(std::string head, std::string body, std::function<Task<std::string>()> more, bool chunked, bool is_head);
    /// Whether no byte of the response has arrived yet.
    bool has_no_response() const { return !received_; }
    /// Reads the rest of the body.
    Task<std::string> collect(std::size_t limit);

    int status() const override { return status_; }
    const Headers& headers() const override { return headers_; }
    Headers& headers() { return headers_; }
    BodyReader& body() override { return *this; }

private:
    Task<Unit> put(std::string_view head, std::string_view body);
    Task<Unit> put_pieces(std::function<Task<std::string>()> more, bool chunked);
    Task<Unit> read_head(bool is_head);
    /// Reads more bytes into the buffer of the connection; false at the end of the connection.
    Task<bool> fill();
    Task<std::string> next_piece();
    Task<std::string> read_some(Context ctx) override;
    Error broken(const boost::system::error_code& error) const;
    bool has_answer_waiting() const;

    HttpPool::Lease lease_;
    std::string origin_;
    int status_ = 0;
    Headers headers_;
    bool received_ = false;
    bool whole_request_sent_ = false;
    bool keep_alive_ = false;
    bool done_ = false;
};

} // namespace orrery::net
