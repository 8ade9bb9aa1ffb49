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
using peers::status_of_answer;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

namespace {

/// Error answers in a form of their own, as the API has.
Response in_test_form(const Context& ctx, const Error& error) {
    return {error.code == Code::too_large ? 413 : 400,
            {{"Content-Type", "application/problem+json"}},
            "{\"detail\":\"" + error.message + "\"}"};
}

Task<Unit> reads_nothing(Context ctx, Request& request, BodyReader&, ResponseWriter& out) {
    co_return co_await out.send(ctx, Response{200, {}, "unread " + request.target.path});
}

Task<Unit> streams(Context ctx, Request& request, BodyReader&, ResponseWriter& out) {
    CO_TRY(std::ignore, co_await out.begin(ctx, 200, {{"Content-Type", "text/event-stream"}}));
    for (const char* piece : {"one", "", "two"}) {
        CO_TRY(std::ignore, co_await out.write(ctx, piece));
    }
    if (request.target.path == "/fails") co_return Error{Code::unavailable, "the store went away"};
    co_return co_await out.finish(ctx);
}

} // namespace

CO_TEST(HttpServer, AnswersOneRequestAfterTheOtherOnOneConnection) {
    HttpServer server(loop.get_executor(), {}, echo);
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    for (int round = 0; round < 3; ++round) {
        co_await client.write(get(fmt::format("/n/{}?a=b%20c&d", round)));
        const auto answer = co_await client.read_answer();
        EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
        EXPECT_THAT(answer, HasSubstr("\r\nDate: "));
        EXPECT_EQ(body_of(answer), fmt::format("GET /n/{} a=b c d=", round));
    }
    EXPECT_EQ(server.connections(), 1u);
    client.close();
    co_await server.stop(1s);
    EXPECT_EQ(server.connections(), 0u);
}

CO_TEST(HttpServer, AnswersTenThousandPipelinedRequestsInOrder) {
    HttpServer server(loop.get_executor(), {}, echo);
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    std::string all;
    constexpr int requests = 10'000;
    for (int at = 0; at < requests; ++at) {
        if (at % 3 == 0)
            all += fmt::format("POST /{} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", at);
        else if (at % 3 == 1)
            all += fmt::format("POST /{} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", at);
        else
            all += get(fmt::format("/{}", at));
    }
    bool sent = false;
    asio::co_spawn(loop, client.write(std::move(all)), [&sent](std::exception_ptr, bool good) { sent = good; });
    int right = 0;
    for (int at = 0; at < requests; ++at) {
        const auto answer = co_await client.read_answer();
        right += body_of(answer) == (at % 3 == 2 ? fmt::format("GET /{}", at) : fmt::format("POST /{} hi", at));
    }
    EXPECT_EQ(right, requests);
    EXPECT_TRUE(sent);
    client.close();
    co_await server.stop(1s);
}

CO_TEST(HttpServer, AnHttp10ConnectionIsClosedUnlessTheClientAsksForKeepAlive) {
    HttpServer server(loop.get_executor(), {}, streams);
    CO_ASSERT_OK(server.start());
    auto old = co_await RawSocket::connect(server.port());
    co_await old.write("GET / HTTP/1.0\r\n\r\n");
    const auto streamed = co_await old.read_to_end();
    EXPECT_THAT(streamed, HasSubstr("Connection: close\r\n"));
    EXPECT_THAT(streamed, Not(HasSubstr("chunked")));
    EXPECT_EQ(body_of(streamed), "onetwo");
    HttpServer plain(loop.get_executor(), {}, echo);
    CO_ASSERT_OK(plain.start());
    auto keeping = co_await RawSocket::connect(plain.port());
    co_await keeping.write("GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    const auto got_1 = co_await keeping.read_answer();
    EXPECT_THAT(got_1, HasSubstr("Connection: keep-alive\r\n"));
    co_await keeping.write("GET /2 HTTP/1.0\r\n\r\n");
    const auto got_2 = co_await keeping.read_to_end();
    EXPECT_THAT(got_2, EndsWith("GET /2"));
    auto asks = co_await RawSocket::connect(plain.port());
    co_await asks.write(get("/", "Connection: close\r\n"));
    const auto got_3 = co_await asks.read_to_end();
    EXPECT_THAT(got_3, HasSubstr("Connection: close\r\n"));
    EXPECT_FALSE(asks.timed_out());
    co_await plain.stop(1s);
    co_await server.stop(1s);
}

CO_TEST(HttpServer, AnswersHeadWithoutABody) {
    HttpServer server(loop.get_executor(), {}, echo);
    HttpServer streaming(loop.get_executor(), {}, streams);
    CO_ASSERT_OK(server.start());
    CO_ASSERT_OK(streaming.start());
    for (auto* each : {&server, &streaming}) {
        auto client = co_await RawSocket::connect(each->port());
        co_await client.write("HEAD /x HTTP/1.1\r\nHost: x\r\n\r\nHEAD /y HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        const auto both = co_await client.read_to_end();
        EXPECT_THAT(both, HasSubstr(each == &server ? "Content-Length: 7\r\n" : "Transfer-Encoding: chunked\r\n"));
        EXPECT_THAT(body_of(both), StartsWith("HTTP/1.1 200 OK\r\n"));
        EXPECT_EQ(body_of(body_of(both)), "");
        co_await each->stop(1s);
    }
}

CO_TEST(HttpServer, StreamsAnswersInChunks) {
    HttpServer server(loop.get_executor(), {}, streams);
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    co_await client.write(get("/"));
    const auto head = co_await client.read_until("\r\n\r\n");
    EXPECT_THAT(head, HasSubstr("Transfer-Encoding: chunked\r\n"));
    EXPECT_THAT(head, HasSubstr("X-Request-Id: "));
    const auto got_4 = co_await client.read_until("0\r\n\r\n");
    EXPECT_EQ(got_4, "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
    // A failure in the middle must not look like the end.
    co_await client.write(get("/fails"));
    const auto cut = co_await client.read_to_end();
    EXPECT_THAT(cut, EndsWith("3\r\none\r\n3\r\ntwo\r\n"));
    EXPECT_FALSE(client.timed_out());
    co_await server.stop(1s);
}

CO_TEST(HttpServer, AStreamOfKnownLengthIsSentAsIs) {
    Handler handler = [](Context ctx, Request& request, BodyReader&, ResponseWriter& out) -> Task<Unit> {
        CO_TRY(std::ignore, co_await out.begin(ctx, 200, {{"Content-Length", "6"}}));
        CO_TRY(std::ignore, co_await out.write(ctx, "abc"));
        if (request.target.path == "/short") co_return Unit{};
        if (request.target.path == "/long") co_return co_await out.write(ctx, "defg");
        co_return co_await out.write(ctx, "def");
    };
    HttpServer server(loop.get_executor(), {}, handler);
    CO_ASSERT_OK(server.start());
    for (const std::string path : {"/right", "/short", "/long"}) {
        auto client = co_await RawSocket::connect(server.port());
        co_await client.write(get(path, "Connection: close\r\n"));
        const auto answer = co_await client.read_to_end();
        EXPECT_THAT(answer, HasSubstr("Content-Length: 6\r\n"));
        EXPECT_EQ(body_of(answer), path == "/right" ? "abcdef" : "abc") << path;
    }
    co_await server.stop(1s);
}

CO_TEST(HttpServer, PassesTheBodyToTheHandlerIncrementally) {
    std::vector<std::string> pieces;
    Handler handler = peers::with(
        pieces, [](Context ctx, Request&, BodyReader& body, ResponseWriter& out, std::vector<std::string>& pieces_) -> Task<Unit> {
            for (;;) {
                CO_TRY(auto piece, co_await body.read_some(ctx));
                pieces_.push_back(piece);
                if (piece.empty()) break;
            }
            co_return co_await out.send(ctx, {});
        });
    HttpServer server(loop.get_executor(), {}, handler);
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    co_await client.write("PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    while (pieces.empty()) co_await peers::sleep_for(1ms);
    co_await client.write("4;ext=1\r\ndefg\r\n0\r\nX-Trailer: 1\r\nHost: y\r\n\r\n");
    const auto got_5 = co_await client.read_answer();
    EXPECT_EQ(status_of_answer(got_5), 200);
    EXPECT_THAT(pieces, ::testing::ElementsAre("abc", "defg", ""));
    co_await client.write(get("/still-in-step"));
    const auto got_6 = co_await client.read_answer();
    EXPECT_EQ(status_of_answer(got_6), 200);
    client.close();
    co_await server.stop(1s);
}

CO_TEST(HttpServer, SendsContinueOnlyWhenTheHandlerReadsTheBody) {
    HttpServer server(loop.get_executor(), {.max_body = 100, .on_error = in_test_form}, echo);
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    co_await client.write("PUT /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    const auto got_7 = co_await client.read_until("\r\n\r\n");
    EXPECT_EQ(got_7, "HTTP/1.1 100 Continue\r\n\r\n");
    co_await client.write("abc");
    const auto got_8 = co_await client.read_answer();
    EXPECT_THAT(got_8, EndsWith("PUT /a abc"));
    // Too much: refused before it is sent.
    co_await client.write("PUT /b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 101\r\n\r\n");
    const auto refused = co_await client.read_to_end();
    EXPECT_EQ(status_of_answer(refused), 413);
    EXPECT_THAT(refused, HasSubstr("Connection: close\r\n"));
    auto odd = co_await RawSocket::connect(server.port());
    co_await odd.write("PUT /b HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\nContent-Length: 1\r\n\r\n");
    const auto got_9 = co_await odd.read_to_end();
    EXPECT_EQ(status_of_answer(got_9), 417);
    co_await server.stop(1s);
}

CO_TEST(HttpServer, RefusesBodiesOverTheLimit) {
    HttpServer server(loop.get_executor(), {.max_body = 1000, .on_error = in_test_form}, echo);
    CO_ASSERT_OK(server.start());
    const std::string just(1000, 'x');
    auto fits = co_await RawSocket::connect(server.port());
    co_await fits.write("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + just);
    const auto got_10 = co_await fits.read_answer();
    EXPECT_EQ(status_of_answer(got_10), 200);
    co_await fits.write("PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + just + "\r\n0\r\n\r\n");
    const auto got_11 = co_await fits.read_answer();
    EXPECT_EQ(status_of_answer(got_11), 200);
    for (const std::string& framing : {"Content-Length: 1001\r\n\r\n" + just + "x",
                                       "Transfer-Encoding: chunked\r\n\r\n3e8\r\n" + just + "\r\n1\r\nx\r\n0\r\n\r\n"}) {
        auto client = co_await RawSocket::connect(server.port());
        co_await client.write("PUT / HTTP/1.1\r\nHost: x\r\n" + framing);
        const auto answer = co_await client.read_answer();
        EXPECT_EQ(status_of_answer(answer), 413);
        EXPECT_THAT(answer, HasSubstr("application/problem+json"));
        EXPECT_THAT(answer, HasSubstr("longer than 1000 bytes"));
    }
    fits.close();
    co_await server.stop(1s);
}

CO_TEST(HttpServer, AnEndlessBodyIsCutOff) {
    HttpServer server(loop.get_executor(), {.max_body = 100'000}, echo);
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    co_await client.write("PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string chunk = "8000\r\n" + std::string(0x8000, 'x') + "\r\n";
    int chunks = 0;
    while (chunks < 100'000 && co_await client.write(chunk)) ++chunks;
    EXPECT_LT(chunks, 100'000);
    co_await server.stop(1s);
}

CO_TEST(HttpServer, SkipsASmallUnreadBodyAndClosesOnALargeOne) {
    HttpServer server(loop.get_executor(), {}, reads_nothing);
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    co_await client.write("PUT /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" + std::string(5000, 'G') +
                          "PUT /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\n" + get("/3"));
    for (const char* path : {"/1", "/2", "/3"}) {
        const auto got_12 = co_await client.read_answer();
        EXPECT_EQ(body_of(got_12), std::string("unread ") + path);
    }
    co_await client.write("PUT /4 HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\nx");
    const auto last = co_await client.read_to_end();
    EXPECT_THAT(last, HasSubstr("Connection: close\r\n"));
    EXPECT_EQ(body_of(last), "unread /4");
    client.close();
    co_await server.stop(1s);
}

CO_TEST(HttpServer, AcceptsAValidRequestIdAndCreatesOneOtherwise) {
    std::string seen;
    Handler handler =
        peers::with(seen, [](Context ctx, Request&, BodyReader&, ResponseWriter& out, std::string& seen_) -> Task<Unit> {
            seen_ = ctx.id();
            co_return co_await out.send(ctx, Response{200, {{"X-Request-Id", "mine"}}, ""});
        });
    HttpServer server(loop.get_executor(), {}, handler);
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    const std::string good = std::string(60, 'a') + "._-9";
    co_await client.write(get("/", "X-Request-Id: " + good + "\r\n"));
    const auto got_13 = co_await client.read_answer();
    EXPECT_THAT(got_13, HasSubstr("\r\nX-Request-Id: " + good + "\r\n"));
    EXPECT_EQ(seen, good);
    for (const std::string& bad :
         {std::string(65, 'a'), std::string("a b"), std::string("a\"b"), std::string("caf\xc3\xa9"), std::string()}) {
        co_await client.write(get("/", "X-Request-Id: " + bad + "\r\n"));
        const auto answer = co_await client.read_answer();
        EXPECT_NE(seen, bad);
        EXPECT_EQ(seen.size(), 16u);
        EXPECT_THAT(answer, HasSubstr("\r\nX-Request-Id: " + seen + "\r\n"));
        EXPECT_THAT(answer, Not(HasSubstr("mine")));
    }
    client.close();
    co_await server.stop(1s);
}

CO_TEST(HttpServer, AnErrorOfAHandlerIsAnsweredOnce) {
    Handler handler = [](Context ctx, Request& request, BodyReader&, ResponseWriter& out) -> Task<Unit> {
        const auto& path = request.target.path;
        if (path == "/error") co_return Error{Code::conflict, "another client was faster", "read again"};
        if (path == "/throws") throw std::runtime_error("boom");
        if (path == "/nothing") co_return Unit{};
        if (path == "/inject")
            co_return co_await out.send(
                ctx, Response{200, {{"X-A", "1\r\nX-Evil: 1"}, {"X B", "2"}, {"Transfer-Encoding", "chunked"}}, "x"});
        CO_TRY(std::ignore, co_await out.send(ctx, {}));
        auto again = co_await out.send(ctx, {});
        EXPECT_FALSE(again.ok());
        co_return Error{Code::internal, "after the answer"};
    };
    std::vector<int> statuses;
    HttpServer::Options options;
    options.on_done = [&statuses](const Context&, const Request&, int status, Duration) { statuses.push_back(status); };
    HttpServer server(loop.get_executor(), options, handler);
    CO_ASSERT_OK(server.start());
    auto client = co_await RawSocket::connect(server.port());
    co_await client.write(get("/error"));
    const auto conflict = co_await client.read_answer();
    EXPECT_EQ(status_of_answer(conflict), 409);
    EXPECT_EQ(body_of(conflict), "another client was faster\nfix: read again\n");
    co_await client.write(get("/throws"));
    const auto got_14 = co_await client.read_answer();
    EXPECT_EQ(status_of_answer(got_14), 500);
    co_await client.write(get("/nothing"));
    const auto got_15 = co_await client.read_answer();
    EXPECT_EQ(status_of_answer(got_15), 500);
    co_await client.write(get("/inject"));
    const auto injected = co_await client.read_answer();
    EXPECT_THAT(injected, HasSubstr("X-A: 1  X-Evil: 1\r\n"));
    EXPECT_THAT(injected, Not(HasSubstr("X B")));
    EXPECT_THAT(injected, Not(HasSubstr("chunked")));
    co_await client.write(get("/twice"));
    const auto got_16 = co_await client.read_answer();
    EXPECT_EQ(status_of_answer(got_16), 200);
    EXPECT_THAT(statuses, ::testing::ElementsAre(409, 500, 500, 200, 200));
    client.close();
    co_await server.stop(1s);
}

CO_TEST(HttpServer, ListensOnSeveralAddresses) {
    HttpServer::Options options;
    options.also = {{"::1", 0, nullptr}, {"127.0.0.2", 0, nullptr}};
    std::string peer;
    Handler handler =
        peers::with(peer, [](Context ctx, Request& request, BodyReader&, ResponseWriter& out, std::string& peer_) -> Task<Unit> {
            peer_ = request.peer;
            co_return co_await out.send(ctx, {});
        });
    HttpServer server(loop.get_executor(), options, handler);
    CO_ASSERT_OK(server.start());
    const auto ports = server.ports();
    CO_ASSERT(ports.size() == 3);
    EXPECT_EQ(ports[0], server.port());
    HttpClient client(loop.get_executor(), {});
    auto over_v6 = co_await client.send(Context::background(), {.url = {"http", "::1", ports[1], "/"}});
    CO_ASSERT_OK(over_v6);
    EXPECT_EQ(peer, "::1");
    auto over_v4 = co_await client.send(Context::background(), {.url = {"http", "127.0.0.2", ports[2], "/"}});
    CO_ASSERT_OK(over_v4);
    EXPECT_EQ(peer, "127.0.0.1");
    co_await client.stop();
    co_await server.stop(1s);
}

CO_TEST(HttpServer, ReportsWhyItCannotListen) {
    HttpServer first(loop.get_executor(), {}, echo);
    CO_ASSERT_OK(first.start());
    HttpServer second(loop.get_executor(), {.port = first.port()}, echo);
    auto taken = second.start();
    CO_ASSERT(!taken.ok());
    EXPECT_EQ(taken.error().code, Code::unavailable);
    EXPECT_EQ(taken.error().message, fmt::format("cannot listen on 127.0.0.1 port {}: address already in use", first.port()));
    HttpServer third(loop.get_executor(), {.address = "localhost"}, echo);
    EXPECT_EQ(third.start().error().code, Code::invalid);
    HttpServer fourth(loop.get_executor(), {.address = "192.0.2.1"}, echo);
    EXPECT_EQ(fourth.start().error().code, Code::unavailable);
    co_await first.stop(0s);
}

CO_TEST(HttpServer, ServesTwoHundredClientsAtOnce) {
    HttpServer server(loop.get_executor(), {}, echo);
    CO_ASSERT_OK(server.start());
    HttpClient client(loop.get_executor(), {});
    int good = 0;
    TaskGroup group(loop.get_executor());
    for (int at = 0; at < 200; ++at) {
        group.spawn([](HttpClient& http, Url url, int number, int& count) -> asio::awaitable<void> {
            for (int round = 0; round < 10; ++round) {
                url.target = fmt::format("/{}/{}", number, round);
                auto answer =
                    co_await http.send(Context::background(), {.method = "POST", .url = url, .body = std::string(2000, 'x')});
                count += answer.ok() && answer->body == "POST " + url.target + " " + std::string(2000, 'x');
            }
        }(client, peers::url_of(server), at, good));
    }
    co_await group.join();
    EXPECT_EQ(good, 2000);
    EXPECT_LE(server.connections(), 200u);
    co_await client.stop();
    co_await server.stop(1s);
}

} // namespace orrery::net
