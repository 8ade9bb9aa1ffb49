#pragma once

#include "net/http.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::net {

/// The first line and the fields of a message.
struct MessageHead {
    std::string method, target; ///< of a request
    int status = 0;             ///< of a response
    bool http_1_1 = true;
    bool keep_alive = false;
    Headers headers;
};

/// Takes one HTTP/1.1 message after the other out of the bytes of a connection (Beast's parser, with the doubtful forms refused
/// that let two parsers disagree about where a message ends). Holds no bytes itself: what it did not take stays with the caller,
/// who bounds how much that can be.
class MessageParser {
public:
    enum class Kind { request, response };
    enum class Step { need_more, some, done, bad };
    /// Why a step was bad: the status a server answers with and a sentence.
    struct Fault {
        int status = 400;
        std::string words;
    };

    MessageParser(Kind kind, std::size_t max_head);
    ~MessageParser();

    /// Before each message. `has_body` is false for the answer to a HEAD request.
    void reset(bool has_body = true);
    /// Takes a whole head from the front of `bytes`: `done`, `need_more` (nothing taken but empty lines before a request) or `bad`.
    Step read_head(std::string_view& bytes);
    MessageHead& head() { return head_; }
    /// Takes some of the body and appends it to `out`: `some`, `done` at the message's end, `need_more` or `bad`.
    Step read_body(std::string_view& bytes, std::string& out);
    /// The connection ended: `done` where that ends the body, else `bad`.
    Step end();
    bool is_done() const;
    /// Bytes of the body still to come, where the head said how many.
    std::optional<std::uint64_t> remaining() const;
    const Fault& fault() const { return fault_; }

private:
    struct Engine;
    template <bool is_request> struct BeastEngine;
    Step bad(int status, std::string words);
    Step check_request_head();

    Kind kind_;
    std::size_t max_head_;
    std::size_t scanned_ = 0; // of the head, so that a trickling peer costs no more than a fast one
    int empty_lines_ = 0;
    MessageHead head_;
    Fault fault_;
    std::unique_ptr<Engine> engine_;
};

} // namespace orrery::net
