#include "health/engine/http_answer.h"

#include <gtest/gtest.h>

#include <vector>

namespace orrery::health {

namespace {

struct Read {
    HttpAnswer::State state;
    int status;
    std::string body;
    bool reusable;
    std::string problem;
};

Read read_in_pieces(std::string_view bytes, std::size_t piece, bool closes = false, HttpAnswer::Options options = {}) {
    HttpAnswer answer;
    answer.begin(options);
    for (std::size_t at = 0; at < bytes.size(); at += piece) answer.feed(bytes.substr(at, piece));
    if (closes) answer.end();
    return {answer.state(), answer.status(), std::string(answer.body()), answer.is_reusable(), std::string(answer.problem())};
}

using State = HttpAnswer::State;

} // namespace

TEST(HttpAnswer, ParsesAnswersOfServers) {
    struct Case {
        std::string_view bytes;
        State state;
        int status;
        std::string_view body;
        bool reusable;
        bool closes = false;
    };
    const std::vector<Case> cases{
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", State::done, 200, "hello", true},
        {"HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", State::done, 200, "", true},
        {"HTTP/1.1 200 \r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello", State::done, 200, "hello", false},
        {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", State::done, 200, "hello", false},
        {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: Keep-Alive\r\n\r\nhello", State::done, 200, "hello", true},
        {"HTTP/1.1 204 No Content\r\n\r\n", State::done, 204, "", true},
        {"HTTP/1.1 200 OK\r\n\r\nuntil the end", State::done, 200, "until the end", false, true},
        {"HTTP/1.1 200 OK\r\n\r\nuntil the end", State::body, 200, "until the end", false},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: "
         "2\r\n\r\nno",
         State::done, 503, "no", true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n", State::done, 200,
         "hello world", true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nDigest: x\r\nOther: y\r\n\r\n", State::done, 200, "a",
         true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nbytes", State::done, 200, "bytes", false, true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n1\r\na\r\n0\r\n\r\n", State::done, 200, "a",
         false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", State::done, 200, "ok", true},
    };
    for (const auto& one : cases)
        for (const std::size_t piece : {1UL, 2UL, 3UL, 7UL, 10'000UL}) {
            const auto read = read_in_pieces(one.bytes, piece, one.closes);
            EXPECT_EQ(read.state, one.state) << one.bytes << " in pieces of " << piece << ": " << read.problem;
            EXPECT_EQ(read.status, one.status) << one.bytes;
            EXPECT_EQ(read.body, one.body) << one.bytes;
            EXPECT_EQ(read.reusable, one.reusable) << one.bytes << " in pieces of " << piece;
        }
}

TEST(HttpAnswer, RefusesMalformedAnswers) {
    const std::vector<std::pair<std::string, std::string>> cases{
        {"SSH-2.0-OpenSSH_9.2\r\n", "no HTTP answer"},
        {"HTTP/2 200\r\n\r\n", "no HTTP answer"},
        {"HTTP/1.1 20\r\n\r\n", "no HTTP status line"},
        {"HTTP/1.1 2000 OK\r\n\r\n", "no HTTP status line"},
        {"HTTP/1.1 099 OK\r\n\r\n", "no HTTP status line"},
        {"HTTP/1.1 200 OK\r\nno field\r\n\r\n", "a line in the HTTP head that is no field"},
        {"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n", "a line in the HTTP head that is no field"},
        {"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "a line in the HTTP head that is no field"},
        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "an invalid Content-Length"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "an invalid Content-Length"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "an invalid Content-Length"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz", "a chunk without a size"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", "a chunk longer than it says"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1111111111111111\r\n", "a chunk size over 15 digits"},
        {"HTTP/1.1 200 OK\r\nX: " + std::string(40'000, 'x') + "\r\n\r\n", "an HTTP head over 32 KiB"},
    };
    for (const auto& [bytes, problem] : cases)
        for (const std::size_t piece : {1UL, 5UL, 100'000UL}) {
            const auto read = read_in_pieces(bytes, piece);
            EXPECT_EQ(read.state, State::broken) << bytes.substr(0, 80);
            EXPECT_EQ(read.problem, problem) << bytes.substr(0, 80);
        }
    std::string many = "HTTP/1.1 200 OK\r\n";
    for (int i = 0; i < 300; ++i) many += "A: b\r\n";
    EXPECT_EQ(read_in_pieces(many + "\r\n", 4096).problem, "an HTTP head of more than 256 fields");
    std::string interim;
    for (int i = 0; i < 20; ++i) interim += "HTTP/1.1 100 Continue\r\n\r\n";
    EXPECT_EQ(read_in_pieces(interim, 4096).problem, "more than 8 interim answers");
}

TEST(HttpAnswer, DistinguishesATruncatedFromACompleteAnswer) {
    EXPECT_EQ(read_in_pieces("", 1, true).problem, "the connection was closed without an answer");
    const std::string_view whole = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    for (std::size_t cut = 1; cut < whole.size(); ++cut)
        EXPECT_EQ(read_in_pieces(whole.substr(0, cut), 9, true).state, State::broken) << cut;
    EXPECT_EQ(read_in_pieces(whole, 9, true).state, State::done);
    const std::string_view chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for (std::size_t cut = 1; cut < chunks.size(); ++cut)
        EXPECT_EQ(read_in_pieces(chunks.substr(0, cut), 9, true).state, State::broken) << cut;
}

TEST(HttpAnswer, BuffersAndReadsOnlyWhatIsNeeded) {
    const auto long_body = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + std::string(100'000, 'x');
    const auto read = read_in_pieces(long_body, 1000, false, {.keep = 10, .read = 5000});
    EXPECT_EQ(read.state, State::done);
    EXPECT_EQ(read.body, std::string(10, 'x'));
    EXPECT_FALSE(read.reusable);
    EXPECT_EQ(read_in_pieces("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", 100, false, {.to_head = true}).state,
              State::done);
    // Unrequested bytes after a response make the connection unusable.
    EXPECT_FALSE(read_in_pieces("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP", 100).reusable);
}

} // namespace orrery::health
