#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::health {

/// Incremental parser of one HTTP/1 response, as far as a probe needs it. Strict, because a probe must not accept a response that
/// clients reject; bounded in everything, because the input is foreign. Interim responses (1xx) are skipped. If the head arrives in
/// one piece, only the kept part of the body is copied.
class HttpAnswer {
public:
    struct Options {
        bool to_head = false;        ///< the response to HEAD has no body
        std::size_t keep = 2048;     ///< bytes of the body to keep
        std::size_t read = 64 << 10; ///< stop after this many bytes of the body
    };
    enum class State : std::uint8_t { head, body, done, broken };

    void begin(Options options);
    /// Parses the next bytes. Ignored after `done` or `broken`.
    State feed(std::string_view bytes);
    /// The peer closed the connection: a response without a length is complete, any other is broken.
    State end();

    State state() const { return state_; }
    bool began() const { return began_; }  ///< at least one byte was received
    int status() const { return status_; } ///< 0 until the head is parsed
    std::string_view reason() const { return reason_; }
    std::string_view body() const { return body_; }
    std::string_view location() const { return location_; }
    bool has_length() const { return framing_ == Framing::length; }
    /// The connection can carry another request: the response was read completely and is not the last one.
    bool is_reusable() const { return state_ == State::done && keep_alive_ && whole_; }
    /// Why the response is broken.
    std::string_view problem() const { return problem_; }

    static constexpr std::size_t max_head = 32 << 10;

private:
    enum class Framing : std::uint8_t { none, length, chunks, close };
    enum class Chunk : std::uint8_t {
        size,
        extension,
        size_end,
        data,
        data_cr,
        data_lf,
        trailer_start,
        trailer,
        trailer_lf,
        last_lf
    };

    State broken(std::string_view why);
    State feed_head(std::string_view& bytes);
    bool read_head(std::string_view head);
    bool read_field(std::string_view line);
    State feed_body(std::string_view bytes);
    State feed_chunks(std::string_view bytes);
    State feed_chunk_size(char c);
    State feed_trailer(char c);
    void keep(std::string_view piece);
    State done(bool whole);

    Options options_;
    State state_ = State::head;
    Framing framing_ = Framing::none;
    Chunk chunk_ = Chunk::size;
    bool began_ = false, keep_alive_ = false, whole_ = false, has_length_ = false, has_encoding_ = false;
    std::uint8_t interim_ = 0, digits_ = 0;
    int status_ = 0;
    std::uint64_t left_ = 0, seen_ = 0; ///< of the body or chunk; of the whole body
    std::size_t trailer_ = 0;
    std::string head_, reason_, body_, location_; ///< head_: the received part of an incomplete head
    std::string_view problem_;
};

} // namespace orrery::health
