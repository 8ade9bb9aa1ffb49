#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::health {

/// Reads one HTTP/1 answer as it comes, as much of it as a look needs. Strict, because a look must not take for health what a
/// client would choke on; bounded in everything, because it reads what anybody may send. Interim answers (1xx) are passed over.
/// Where a head arrives whole, nothing is copied but what is kept of the body.
class HttpAnswer {
public:
    struct Wish {
        bool to_head = false;        ///< the answer to HEAD has no body
        std::size_t keep = 2048;     ///< so much of the body is kept
        std::size_t read = 64 << 10; ///< a longer body is not waited for
    };
    enum class State : std::uint8_t { head, body, done, broken };

    void begin(Wish wish);
    /// Takes what came. After `done` or `broken` nothing more is taken.
    State take(std::string_view bytes);
    /// The peer has closed: an answer without a length ends with it, another one is broken.
    State end();

    State state() const { return state_; }
    bool began() const { return began_; }  ///< at least a byte has come
    int status() const { return status_; } ///< 0 until the head is read
    std::string_view reason() const { return reason_; }
    std::string_view body() const { return body_; }
    std::string_view location() const { return location_; }
    bool has_length() const { return framing_ == Framing::length; }
    /// The connection can carry another request: the answer was read to its end and nobody said to close.
    bool is_reusable() const { return state_ == State::done && keep_alive_ && whole_; }
    /// What is wrong with it, where it is broken.
    std::string_view problem() const { return problem_; }

    static constexpr std::size_t longest_head = 32 << 10;

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
    State take_head(std::string_view& bytes);
    bool read_head(std::string_view head);
    bool read_field(std::string_view line);
    State take_body(std::string_view bytes);
    State take_chunks(std::string_view bytes);
    void keep(std::string_view piece);
    State done(bool whole);

    Wish wish_;
    State state_ = State::head;
    Framing framing_ = Framing::none;
    Chunk chunk_ = Chunk::size;
    bool began_ = false, keep_alive_ = false, whole_ = false, has_length_ = false, has_encoding_ = false;
    std::uint8_t interim_ = 0, digits_ = 0;
    int status_ = 0;
    std::uint64_t left_ = 0, seen_ = 0; ///< of the body or chunk; of the body in all
    std::size_t trailer_ = 0;
    std::string head_, reason_, body_, location_; ///< head_: what came of a head that is not whole
    std::string_view problem_;
};

} // namespace orrery::health
