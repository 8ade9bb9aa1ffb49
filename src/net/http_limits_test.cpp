// What a client that is slow, rude or gone can do to the server: nothing; and how the server stops.
#include "net/http_fixture.h"
#include "net/http_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace orrery::net {

using namespace std::chrono_literals;
using peers::body_of;
using peers::echo;
using peers::get;
using peers::RawSocket;
using peers::sleep_for;
using peers::status_of_answer;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

Response as_problem(const Context& ctx, const Error& error) {
    return {400,
            {{"Content-Type", "application/problem+json"}},
            fmt::format("{{\"code\":\"{}\",\"detail\":\"{}\"}}", name_of(error.code), error.message)};
}

/// What happened to a stream that waits for events.
struct Watched {
    explicit Watched(asio::io_context& loop) : event(loop.get_executor()) {}
    Notifier event;
    int begun = 0, ended = 0;
    bool ends_cleanly = true;
    std::vector<std::string> endings;
};

/// As an event stream does: begins, then waits for something to say, without a deadline.
Task<Unit> watch(Context ctx, Request&, BodyReader&, ResponseWriter& out, Watched& watched) {
    const auto endless = ctx.without_deadline();
    CO_TRY(std::ignore, co_await out.begin(endless, 200, {{"Content-Type", "text/event-stream"}}));
    ++watched.begun;
    for (;;) {
        auto event = co_await watched.event.wait(endless);
        if (out.stopping() && watched.ends_cleanly) {
            CO_TRY(std::ignore, co_await out.write(endless, "event: goodbye\n\n"));
            ++watched.ended;
            watched.endings.push_back("goodbye");
            co_return co_await out.finish(endless);
        }
        if (!event.ok() && !out.stopping()) {
            ++watched.ended;
            watched.endings.push_back(std::string(name_of(event.error().code)));
            co_return std::move(event);
        }
        auto written = co_await out.write(endless, "event: x\n\n");
        if (!written.ok()) {
            ++watched.ended;
            watched.endings.push_back(std::string(name_of(written.error().code)));
            co_return std::move(written);
        }
    }
}

struct Gate {
    explicit Gate(asio::io_context& loop) : opened(loop.get_executor()) {}
    Notifier opened;
    int inside = 0;
    std::vector<std::string> failures;
};

/// Waits at the gate, then answers.
Task<Unit> wait_at_gate(Context ctx, Request&, BodyReader&, ResponseWriter& out, Gate& gate) {
    ++gate.inside;
    auto opened = co_await gate.opened.wait(ctx.without_deadline()); // a handler that forgets its deadline
    --gate.inside;
    if (!opened.ok()) {
        gate.failures.push_back(std::string(name_of(opened.error().code)));
        co_return std::move(opened);
    }
    co_return co_await out.send(ctx, Response{200, {}, "through"});
}

} // namespace

CO_TEST(HttpLimits, RefusesMalformedRequestsInTheFormOfErrors) {
    HttpServer server(loop.get_executor(), {.max_head = 4096, .on_error = as_problem}, echo);
    CO_ASSERT_OK(server.start());
    struct Case {
        const char* what;
        std::string bytes;
        int status;
    };
    std::string many;
    for (int at = 0; at < 300; ++at) many += fmt::format("A{}: b\r\n", at);
    const std::vector<Case> cases = {
        {"not HTTP", "\x16\x03\x01\x02", 400},
        {"only empty lines", "\r\n\r\n\r\n\r\n\r\n\r\n\r\n", 400},
        {"bare line feeds", "GET / HTTP/1.1\nHost: x\n\n", 400},
        {"no version", "GET /\r\n\r\n", 400},
        {"two spaces", "GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"HTTP/2", "GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
        {"HTTP/1.2", "GET / HTTP/1.2\r\nHost: x\r\n\r\n", 505},
        {"method with a colon", "G:T / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"target without a slash", "GET v1 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"asterisk", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"authority", "CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"climbing", "GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"climbing, encoded", "GET /a/%2e%2e/%2e%2e/b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"NUL in the target", "GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"bad escape", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"no host", "GET / HTTP/1.1\r\n\r\n", 400},
        {"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", 400},
        {"space before the colon", "GET / HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc", 400},
        {"field without a colon", "GET / HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n", 400},
        {"folded field", "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400},
        {"folded first field", "GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400},
        {"NUL in a value", std::string("GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n", 35), 400},
        {"lone CR in a value", "GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n", 400},
        {"length and encoding", "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         400},
        {"encoding and length", "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
         400},
        {"two lengths", "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde", 400},
        {"the same length twice", "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nabcde", 400},
        {"a list of lengths", "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\nabcde", 400},
        {"length with a sign", "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nabcde", 400},
        {"hexadecimal length", "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x5\r\n\r\nabcde", 400},
        {"empty length", "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n", 400},
        {"length beyond all", "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
        {"two encodings", "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         400},
        {"unknown encoding", "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
        {"listed encodings", "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
        {"disguised encoding", "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
        {"chunks from HTTP/1.0", "PUT / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        {"bad chunk size", "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
        {"chunk size beyond all", "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400},
        {"chunk longer than it says", "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", 400},
        {"long head", get("/", "A: " + std::string(5000, 'b') + "\r\n"), 431},
        {"long target", get("/" + std::string(5000, 'b')), 431},
        {"endless line", std::string(6000, 'A'), 431},
        {"many fields", get("/", many), 431},
    };
    for (const auto& each : cases) {
        auto client = co_await RawSocket::connect(server.port());
        co_await client.write(each.bytes);
        const auto answer = co_await client.read_answer();
        EXPECT_EQ(status_of_answer(answer), each.status) << each.what << ": " << answer;
        EXPECT_THAT(answer, HasSubstr("Content-Type: application/problem+json")) << each.what;
        EXPECT_THAT(answer, HasSubstr("Connection: close")) << each.what;
        EXPECT_THAT(answer, HasSubstr("X-Request-Id: ")) << each.what;
        const auto got_1 = co_await client.read_to_end();
        EXPECT_EQ(got_1, "") << each.what;
    }
    co_await server.stop(1s);
}

CO_TEST(HttpLimits, AcceptsUnusualButValidRequests) {
    HttpServer server(loop.get_executor(), {}, echo);
    CO_ASSERT_OK(server.start());
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"\r\nGET /after-an-empty-line HTTP/1.1\r\nHost: x\r\n\r\n", "GET /after-an-empty-line"},
        {"GET http://elsewhere:80/absolute?q=1 HTTP/1.1\r\nHost: x\r\n\r\n", "GET /absolute q=1"},
        {"GET HTTPS://elsewhere HTTP/1.1\r\nHost: x\r\n\r\n", "GET /"},
        {"GET http://elsewhere?q=1 HTTP/1.1\r\nHost: x\r\n\r\n", "GET / q=1"},
        {"PURGE /own-method HTTP/1.1\r\nHost:\r\n\r\n", "PURGE /own-method"},
        {"GET /a/./b/../c HTTP/1.1\r\nHost: x\r\n\r\n", "GET /a/c"},
        {"PUT /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: CHUNKED\r\n\r\n1;a=\"b;c\"\r\nx\r\n000\r\n\r\n", "PUT /c x"},
    };
    for (const auto& [bytes, said] : cases) {
        auto client = co_await RawSocket::connect(server.port());
        co_await client.write(bytes);
        const auto got_2 = co_await client.read_answer();
        EXPECT_EQ(body_of(got_2), said);
        client.close();
    }
    co_await server.stop(1s);
}

CO_TEST(HttpLimits, CountsMalformedRequests) {
    std::vector<std::string> done;
    HttpServer::Options options;
    options.on_done = [&done](const Context&, const Request& request, int status, Duration) {
        done.push_back(fmt::format("{} {} {}", request.method, request.target.path, status));
    };
    HttpServer server(loop.get_executor(), options, echo);
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    co_await client.write(get("/good") + "nonsense\r\n\r\n");
    co_await client.read_to_end();
    EXPECT_THAT(done, ::testing::ElementsAre("GET /good 200", "  400"));
    co_await server.stop(1s);
}

CO_TEST(HttpLimits, ASlowHeadIsATimeout) {
    HttpServer server(loop.get_executor(), {.head_timeout = 150ms, .on_error = as_problem}, echo);
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    const auto started = std::chrono::steady_clock::now();
    const auto text = get("/", "A: " + std::string(500, 'b') + "\r\n");
    std::size_t sent = 0;
    // Each byte is in time for the one before it, the head is not.
    while (sent < text.size() && server.connections() + (sent == 0) > 0 && std::chrono::steady_clock::now() - started < 400ms) {
        co_await client.write(text.substr(sent++, 1));
        co_await sleep_for(10ms);
    }
    EXPECT_LT(sent, text.size());
    const auto got_3 = co_await client.read_to_end();
    EXPECT_EQ(status_of_answer(got_3), 408);
    auto silent = co_await RawSocket::connect(server.port());
    const auto got_4 = co_await silent.read_to_end();
    EXPECT_EQ(got_4, "");
    EXPECT_FALSE(silent.timed_out());
    EXPECT_LT(std::chrono::steady_clock::now() - started, 4s);
    co_await server.stop(1s);
}

CO_TEST(HttpLimits, AnIdleConnectionIsClosedWithoutAnAnswer) {
    HttpServer server(loop.get_executor(), {.idle_timeout = 80ms}, echo);
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    co_await client.write(get("/"));
    const auto got_5 = co_await client.read_answer();
    EXPECT_EQ(body_of(got_5), "GET /");
    const auto got_6 = co_await client.read_to_end();
    EXPECT_EQ(got_6, "");
    EXPECT_FALSE(client.timed_out());
    co_await server.stop(1s);
}

CO_TEST(HttpLimits, ASlowBodyIsATimeout) {
    HttpServer server(loop.get_executor(), {.request_timeout = 150ms}, echo);
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    co_await client.write("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
    const auto started = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - started < 300ms) {
        co_await client.write("x");
        co_await sleep_for(10ms);
    }
    const auto got_7 = co_await client.read_to_end();
    EXPECT_EQ(status_of_answer(got_7), 504);
    // A client that disconnects in the middle does not affect others.
    auto leaver = co_await RawSocket::connect(server.port());
    co_await leaver.write("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc");
    leaver.reset();
    co_await server.stop(1s);
}

CO_TEST(HttpLimits, AClientThatDoesNotReadIsDisconnected) {
    std::string ending;
    HttpServer server(
        loop.get_executor(), {.write_timeout = 100ms},
        peers::with(ending, [](Context ctx, Request&, BodyReader&, ResponseWriter& out, std::string& ending_) -> Task<Unit> {
            ctx = ctx.without_deadline();
            CO_TRY(std::ignore, co_await out.begin(ctx, 200, {}));
            const std::string piece(100'000, 'x');
            for (;;) {
                auto written = co_await out.write(ctx, piece);
                if (written.ok()) continue;
                ending_ = written.error().text();
                co_return std::move(written);
            }
        }));
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    co_await client.write(get("/"));
    for (int tries = 0; tries < 500 && ending.empty(); ++tries) co_await sleep_for(10ms);
    EXPECT_EQ(ending, "timeout: the client 127.0.0.1 took no byte for 100ms");
    for (int tries = 0; tries < 500 && server.connections() > 0; ++tries) co_await sleep_for(10ms);
    EXPECT_EQ(server.connections(), 0u);
    co_await server.stop(1s);
}

CO_TEST(HttpLimits, AConnectionOverTheLimitGets503) {
    HttpServer server(loop.get_executor(), {.max_connections = 2, .on_error = as_problem}, echo);
    CO_ASSERT_OK(server.start());
    auto first = co_await RawSocket::connect(server.port());
    auto second = co_await RawSocket::connect(server.port());
    co_await first.write(get("/1"));
    const auto got_8 = co_await first.read_answer();
    EXPECT_EQ(status_of_answer(got_8), 200);
    co_await second.write(get("/2"));
    const auto got_9 = co_await second.read_answer();
    EXPECT_EQ(status_of_answer(got_9), 200);
    for (int at = 0; at < 3; ++at) {
        auto extra = co_await RawSocket::connect(server.port());
        co_await extra.write(get("/3"));
        const auto refused = co_await extra.read_to_end();
        EXPECT_EQ(status_of_answer(refused), 503);
        EXPECT_THAT(refused, HasSubstr("all 2 connections"));
    }
    std::vector<RawSocket> crowd;
    for (int at = 0; at < 200; ++at) crowd.push_back(co_await RawSocket::connect(server.port()));
    co_await sleep_for(50ms);
    EXPECT_LE(server.connections(), 2u + 64u);
    crowd.clear();
    first.close();
    bool served = false;
    for (int tries = 0; tries < 200 && !served; ++tries) {
        auto late = co_await RawSocket::connect(server.port());
        co_await late.write(get("/late", "Connection: close\r\n"));
        served = status_of_answer(co_await late.read_to_end()) == 200;
        if (!served) co_await sleep_for(10ms);
    }
    EXPECT_TRUE(served);
    second.close();
    co_await server.stop(1s);
}

CO_TEST(HttpLimits, AStreamEndsWhenItsClientDisconnects) {
    Watched watched(loop);
    HttpServer server(loop.get_executor(), {}, peers::with(watched, watch));
    CO_ASSERT_OK(server.start());
    for (const bool rudely : {false, true}) {
        auto client = co_await RawSocket::connect(server.port());
        co_await client.write(get("/"));
        const auto got_10 = co_await client.read_until("\r\n\r\n");
        EXPECT_THAT(got_10, HasSubstr("text/event-stream"));
        watched.event.notify_all();
        const auto got_11 = co_await client.read_until("x\n\n");
        EXPECT_THAT(got_11, HasSubstr("event: x"));
        if (rudely)
            client.reset();
        else
            client.close();
        for (int tries = 0; tries < 300 && server.connections() > 0; ++tries) co_await sleep_for(10ms);
    }
    EXPECT_THAT(watched.endings, ::testing::ElementsAre("cancelled", "cancelled"));
    EXPECT_EQ(server.connections(), 0u);
    co_await server.stop(1s);
}

CO_TEST(HttpLimits, AStreamMayOutlastTheRequestTimeout) {
    Watched watched(loop);
    HttpServer server(loop.get_executor(), {.request_timeout = 50ms}, peers::with(watched, watch));
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    co_await client.write(get("/"));
    co_await client.read_until("\r\n\r\n");
    co_await sleep_for(200ms);
    EXPECT_EQ(watched.ended, 0);
    watched.event.notify_all();
    const auto got_12 = co_await client.read_until("x\n\n");
    EXPECT_THAT(got_12, EndsWith("event: x\n\n"));
    client.close();
    co_await server.stop(1s);
}

CO_TEST(HttpLimits, AHandlerThatIgnoresItsDeadlineIsEnded) {
    Gate gate(loop);
    HttpServer server(loop.get_executor(), {.request_timeout = 60ms}, peers::with(gate, wait_at_gate));
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    co_await client.write(get("/"));
    const auto late = co_await client.read_answer();
    EXPECT_EQ(status_of_answer(late), 504);
    EXPECT_THAT(late, HasSubstr("longer than 60ms"));
    // The connection is as good as before.
    co_await client.write(get("/"));
    while (gate.inside == 0) co_await sleep_for(1ms);
    gate.opened.notify_all();
    const auto got_13 = co_await client.read_answer();
    EXPECT_EQ(body_of(got_13), "through");
    client.close();
    co_await server.stop(1s);
}

CO_TEST(HttpLimits, StoppingFinishesRequestsInProgress) {
    Gate gate(loop);
    HttpServer server(loop.get_executor(), {}, peers::with(gate, wait_at_gate));
    CO_ASSERT_OK(server.start());
    const auto port = server.port();
    auto idle = co_await RawSocket::connect(port);
    auto busy = co_await RawSocket::connect(port);
    co_await busy.write(get("/1") + get("/2"));
    while (gate.inside == 0) co_await sleep_for(1ms);
    bool stopped = false;
    asio::co_spawn(loop, server.stop(10s), [&stopped](std::exception_ptr) { stopped = true; });
    const auto got_14 = co_await idle.read_to_end();
    EXPECT_EQ(got_14, "");
    auto late = co_await RawSocket::connect(port);
    const auto got_15 = co_await late.write(get("/")) && !(co_await late.read_to_end()).empty();
    EXPECT_FALSE(got_15);
    EXPECT_FALSE(stopped);
    gate.opened.notify_all();
    const auto answer = co_await busy.read_to_end();
    EXPECT_EQ(body_of(answer), "through");
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
    for (int tries = 0; tries < 100 && !stopped; ++tries) co_await sleep_for(10ms);
    EXPECT_TRUE(stopped);
    EXPECT_TRUE(gate.failures.empty());
}

CO_TEST(HttpLimits, StoppingEndsStreamsCleanly) {
    Watched watched(loop);
    HttpServer server(loop.get_executor(), {}, peers::with(watched, watch));
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    co_await client.write(get("/"));
    co_await client.read_until("\r\n\r\n");
    const auto started = std::chrono::steady_clock::now();
    co_await server.stop(10s);
    EXPECT_LT(std::chrono::steady_clock::now() - started, 3s);
    const auto got_16 = co_await client.read_to_end();
    EXPECT_EQ(got_16, "10\r\nevent: goodbye\n\n\r\n0\r\n\r\n");
    EXPECT_THAT(watched.endings, ::testing::ElementsAre("goodbye"));
}

CO_TEST(HttpLimits, StoppingClosesConnectionsThatDoNotFinishInTime) {
    Gate gate(loop);
    Watched watched(loop);
    watched.ends_cleanly = false;
    HttpServer gated(loop.get_executor(), {}, peers::with(gate, wait_at_gate));
    HttpServer watching(loop.get_executor(), {}, peers::with(watched, watch));
    CO_ASSERT_OK(gated.start());
    CO_ASSERT_OK(watching.start());
    auto first = co_await RawSocket::connect(gated.port());
    auto second = co_await RawSocket::connect(watching.port());
    co_await first.write(get("/"));
    co_await second.write(get("/"));
    while (gate.inside == 0 || watched.begun == 0) co_await sleep_for(1ms);
    const auto started = std::chrono::steady_clock::now();
    co_await gated.stop(100ms);
    co_await watching.stop(100ms);
    EXPECT_GE(std::chrono::steady_clock::now() - started, 200ms);
    EXPECT_LT(std::chrono::steady_clock::now() - started, 5s);
    EXPECT_THAT(gate.failures, ::testing::ElementsAre("cancelled"));
    EXPECT_THAT(watched.endings, ::testing::ElementsAre("unavailable"));
    EXPECT_EQ(gated.connections() + watching.connections(), 0u);
}

CO_TEST(HttpLimits, DestroyingTheServerClosesItsConnections) {
    Gate gate(loop);
    auto server = std::make_unique<HttpServer>(loop.get_executor(), HttpServer::Options{}, peers::with(gate, wait_at_gate));
    CO_ASSERT_OK(server->start());
    auto client = co_await RawSocket::connect(server->port());
    co_await client.write(get("/"));
    while (gate.inside == 0) co_await sleep_for(1ms);
    server.reset();
    const auto got_17 = co_await client.read_to_end();
    EXPECT_EQ(got_17, "");
    EXPECT_FALSE(client.timed_out());
}

} // namespace orrery::net
