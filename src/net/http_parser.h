#pragma once

#include "net/http.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::net {

/// The start line and the header fields of a message.
struct MessageHead {
    std::string method, target; ///< of a request
    int status = 0;             ///< of a response
    bool http_1_1 = true;
    bool keep_alive = false;
    Headers headers;
};

/// Parses the HTTP/1.1 messages of a connection one after the other. Uses the parser of Beast and rejects ambiguous forms that
/// allow request smuggling. It does not buffer: bytes that it did not consume stay with the caller, which limits their size.
class MessageParser {
public:
    enum class Kind { request, response };
    enum class Step { need_more, some, done, bad };
    /// The cause of `bad`: the status of the error response and a message.
    struct Fault {
        int status = 400;
        std::string message;
    };

    MessageParser(Kind kind, std::size_t max_head);
    ~MessageParser();

    /// Call it before each message. `has_body` is false for the response to a HEAD request.
    void reset(bool has_body = true);
    /// Consumes a complete head from the front of `bytes`: `done`, `need_more` (consumed only empty lines before a request) or
    /// `bad`.
    Step read_head(std::string_view& bytes);
    MessageHead& head() { return head_; }
    /// Consumes a part of the body and appends it to `out`: `some`, `done` at the end of the message, `need_more` or `bad`.
    Step read_body(std::string_view& bytes, std::string& out);
    /// The connection was closed: `done` if that ends the body, else `bad`.
    Step end();
    bool is_done() const;
    /// Bytes of the body that are still expected, if the head has a Content-Length.
    std::optional<std::uint64_t> remaining() const;
    const Fault& fault() const { return fault_; }

private:
    struct Engine;
    template <bool is_request> struct BeastEngine;
    Step bad(int status, std::string message);
    Step check_request_head();

    Kind kind_;
    std::size_t max_head_;
    std::size_t scanned_ = 0; // bytes of the head that were scanned, so that a slow client costs no more than a fast one
    int empty_lines_ = 0;
    MessageHead head_;
    Fault fault_;
    std::unique_ptr<Engine> engine_;
};

} // namespace orrery::net
