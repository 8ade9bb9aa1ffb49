#include "net/http_client.h"
#include "net/http_fixture.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

namespace orrery::net {

using namespace std::chrono_literals;
using peers::RawSocket;
using peers::ScriptedServer;
using peers::sleep_for;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

const std::string small_answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Sends the same bytes to every client, then closes.
ScriptedServer::Script says(std::string bytes) {
    return [bytes = std::move(bytes)](RawSocket socket, int) {
        return [](RawSocket socket_, std::string bytes_) -> asio::awaitable<void> {
            co_await socket_.read_until("\r\n\r\n");
            co_await socket_.write(std::move(bytes_));
            socket_.finish();
            co_await socket_.read_to_end();
        }(std::move(socket), bytes);
    };
}

/// Answers some requests of each connection and then closes it when the next one has arrived, as a server does whose idle timeout
/// meets our request.
ScriptedServer::Script closes_after(int requests) {
    return [requests](RawSocket socket, int) {
        return [](RawSocket socket_, int requests_) -> asio::awaitable<void> {
            for (int at = 0; at < requests_; ++at) {
                co_await socket_.read_until("\r\n\r\n");
                co_await socket_.write(small_answer);
            }
            co_await socket_.read_until("\r\n\r\n");
            socket_.close();
        }(std::move(socket), requests);
    };
}

/// Holds every connection open without a word.
asio::awaitable<void> holds(RawSocket socket, int) { co_await socket.read_to_end(); }

Task<ClientResponse> ask(HttpClient& client, Url url) { co_return co_await client.send(Context::background(), {.url = url}); }

} // namespace

CO_TEST(HttpClient, RetriesOnceWhenAReusedConnectionWasClosed) {
    ScriptedServer peer(loop, closes_after(1));
    HttpClient client(loop.get_executor(), {});
    for (int round = 0; round < 4; ++round) {
        auto answer = co_await client.send(Context::background(), {.method = "POST", .url = peer.url(), .body = "abc"});
        CO_ASSERT_OK(answer);
        EXPECT_EQ(answer->body, "ok");
    }
    EXPECT_EQ(peer.connections(), 4);
    co_await client.stop();
}

CO_TEST(HttpClient, DoesNotRetryOnAFreshConnection) {
    ScriptedServer peer(loop, closes_after(0));
    HttpClient client(loop.get_executor(), {});
    auto answer = co_await ask(client, peer.url());
    CO_ASSERT(!answer.ok());
    EXPECT_EQ(answer.error().code, Code::unavailable);
    EXPECT_EQ(answer.error().message, fmt::format("http://127.0.0.1:{} closed the connection before it answered", peer.port()));
    EXPECT_EQ(peer.connections(), 1);
}

CO_TEST(HttpClient, DoesNotRetryAfterTheFirstByteOfTheAnswer) {
    ScriptedServer peer(loop, [](RawSocket socket, int) -> asio::awaitable<void> {
        co_await socket.read_until("\r\n\r\n");
        co_await socket.write(small_answer);
        co_await socket.read_until("\r\n\r\n");
        co_await socket.write("H");
        socket.close();
    });
    HttpClient client(loop.get_executor(), {});
    auto first = co_await ask(client, peer.url());
    CO_ASSERT_OK(first);
    auto second = co_await ask(client, peer.url());
    CO_ASSERT(!second.ok());
    EXPECT_EQ(second.error().code, Code::unavailable);
    EXPECT_EQ(peer.connections(), 1);
}

CO_TEST(HttpClient, DoesNotReuseAClosedConnection) {
    ScriptedServer peer(loop, [](RawSocket socket, int) -> asio::awaitable<void> {
        co_await socket.read_until("\r\n\r\n");
        co_await socket.write(small_answer); // and closes without announcing it
    });
    HttpClient client(loop.get_executor(), {});
    for (int round = 0; round < 3; ++round) {
        auto answer = co_await ask(client, peer.url());
        CO_ASSERT_OK(answer);
        co_await sleep_for(5ms);
    }
    EXPECT_EQ(peer.connections(), 3);
}

CO_TEST(HttpClient, DoesNotReuseAConnectionThatThePeerClosesOrThatHasExtraBytes) {
    for (const std::string bytes :
         {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
          "HTTP/1.1 200 OK\r\n\r\nok"}) {
        ScriptedServer peer(loop, says(bytes));
        HttpClient client(loop.get_executor(), {});
        for (int round = 0; round < 2; ++round) {
            auto answer = co_await ask(client, peer.url());
            CO_ASSERT_OK(answer);
            EXPECT_EQ(answer->body, "ok");
        }
        EXPECT_EQ(peer.connections(), 2) << bytes;
    }
}

CO_TEST(HttpClient, ParsesEveryFormOfAnswer) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: 1\r\n\r\n", "200 abcde"},
        {"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone", "404 gone"},
        {"HTTP/1.1 204 No Content\r\n\r\n", "204 "},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", "304 "},
        {"HTTP/1.0 200 \r\n\r\nuntil the end", "200 until the end"},
        {"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: "
         "1\r\n\r\nx",
         "201 x"},
        {"HTTP/1.1 200 OK\r\nX-Folded: a\r\n b\r\nContent-Length: 0\r\n\r\n", "200 "},
    };
    for (const auto& [bytes, expected] : cases) {
        ScriptedServer peer(loop, says(bytes));
        HttpClient client(loop.get_executor(), {});
        auto answer = co_await ask(client, peer.url());
        CO_ASSERT_OK(answer);
        EXPECT_EQ(fmt::format("{} {}", answer->status, answer->body), expected);
    }
    ScriptedServer peer(loop, says("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"));
    HttpClient client(loop.get_executor(), {});
    auto head = co_await client.send(Context::background(), {.method = "HEAD", .url = peer.url()});
    CO_ASSERT_OK(head);
    EXPECT_EQ(head->body, "");
    EXPECT_EQ(head->headers.get("content-length"), "1000");
}

CO_TEST(HttpClient, NamesThePeerOfAMalformedAnswer) {
    std::string interim;
    for (int at = 0; at < 100; ++at) interim += "HTTP/1.1 100 Continue\r\n\r\n";
    const std::vector<std::pair<std::string, Code>> cases = {
        {"SSH-2.0-OpenSSH_9.2\r\n\r\n", Code::unavailable},
        {std::string("\x15\x03\x01\x00\x02\x02\x50", 7), Code::unavailable},
        {"HTTP/1.1 999999 OK\r\n\r\n", Code::unavailable},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", Code::unavailable},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Code::unavailable},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", Code::unavailable},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", Code::unavailable},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", Code::unavailable},
        {"HTTP/1.1 200 OK\r\nContent-", Code::unavailable},
        {"HTTP/1.1 101 Switching Protocols\r\n\r\n", Code::unavailable},
        {interim, Code::unavailable},
        {"HTTP/1.1 200 OK\r\nA: " + std::string(100'000, 'x') + "\r\n\r\n", Code::too_large},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;" + std::string(100'000, 'x') + "\r\n", Code::unavailable},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: " + std::string(100'000, 'x') + "\r\n", Code::unavailable},
        {std::string(100'000, 'H'), Code::too_large},
    };
    for (const auto& [bytes, code] : cases) {
        ScriptedServer peer(loop, says(bytes));
        HttpClient client(loop.get_executor(), {});
        auto answer = co_await ask(client, peer.url());
        CO_ASSERT(!answer.ok());
        EXPECT_EQ(answer.error().code, code) << bytes.substr(0, 100) << ": " << answer.error().text();
        EXPECT_THAT(answer.error().message, HasSubstr(fmt::format("127.0.0.1:{}", peer.port())));
    }
}

CO_TEST(HttpClient, LimitsTheSizeOfAnswers) {
    std::string chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int at = 0; at < 100; ++at) chunks += "3e8\r\n" + std::string(1000, 'x') + "\r\n";
    for (const std::string& bytes : {std::string("HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n"), chunks,
                                     "HTTP/1.0 200 OK\r\n\r\n" + std::string(100'000, 'x')}) {
        ScriptedServer peer(loop, says(bytes));
        HttpClient client(loop.get_executor(), {});
        auto answer = co_await client.send(Context::background(), {.url = peer.url(), .max_answer = 1000});
        CO_ASSERT(!answer.ok());
        EXPECT_EQ(answer.error().code, Code::too_large);
        EXPECT_THAT(answer.error().message, HasSubstr("longer than 1000 bytes"));
    }
    ScriptedServer exact(loop, says("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x')));
    HttpClient client(loop.get_executor(), {});
    auto fits = co_await client.send(Context::background(), {.url = exact.url(), .max_answer = 1000});
    CO_ASSERT_OK(fits);
    EXPECT_EQ(fits->body.size(), 1000u);
}

CO_TEST(HttpClient, KeepsTheDeadlineWithEveryPeer) {
    ScriptedServer silent(loop, holds);
    ScriptedServer trickling(loop, [](RawSocket socket, int) -> asio::awaitable<void> {
        co_await socket.read_until("\r\n\r\n");
        while (co_await socket.write("H")) co_await sleep_for(5ms);
    });
    ScriptedServer endless(loop, [](RawSocket socket, int) -> asio::awaitable<void> {
        co_await socket.read_until("\r\n\r\n");
        co_await socket.write("HTTP/1.1 200 OK\r\n\r\n");
        while (co_await socket.write("x")) co_await sleep_for(5ms);
    });
    HttpClient client(loop.get_executor(), {});
    for (const auto* peer : {&silent, &endless}) {
        const auto started = std::chrono::steady_clock::now();
        auto answer = co_await client.send(Context::background().with_timeout(100ms), {.url = peer->url()});
        CO_ASSERT(!answer.ok());
        EXPECT_EQ(answer.error().code, Code::timeout);
        EXPECT_EQ(answer.error().message, fmt::format("http://127.0.0.1:{} did not answer in time", peer->port()));
        EXPECT_LT(std::chrono::steady_clock::now() - started, 2s);
    }
    auto slow = co_await client.send(Context::background().with_timeout(100ms), {.url = trickling.url()});
    EXPECT_FALSE(slow.ok());
    // A body that no handler reads.
    auto stuck = co_await client.send(Context::background().with_timeout(100ms),
                                      {.method = "PUT", .url = silent.url(), .body = std::string(64 << 20, 'x')});
    EXPECT_TRUE(stuck.ok() || stuck.error().code == Code::timeout);
}

CO_TEST(HttpClient, EndsWhenItsCallerIsCancelled) {
    ScriptedServer peer(loop, holds);
    HttpClient client(loop.get_executor(), {});
    asio::cancellation_signal cancel;
    std::optional<Result<ClientResponse>> outcome;
    asio::co_spawn(loop, ask(client, peer.url()),
                   asio::bind_cancellation_slot(cancel.slot(), [&outcome](std::exception_ptr, Result<ClientResponse> result) {
                       outcome = std::move(result);
                   }));
    while (peer.connections() == 0) co_await sleep_for(1ms);
    co_await sleep_for(5ms);
    cancel.emit(asio::cancellation_type::terminal);
    for (int tries = 0; tries < 100 && !outcome; ++tries) co_await sleep_for(1ms);
    CO_ASSERT(outcome && !outcome->ok());
    EXPECT_EQ(outcome->error().code, Code::cancelled);
}

CO_TEST(HttpClient, StoppingEndsRequestsAndWaiters) {
    ScriptedServer peer(loop, holds);
    HttpClient client(loop.get_executor(), {.max_per_host = 1});
    std::vector<Code> codes;
    for (int at = 0; at < 3; ++at)
        asio::co_spawn(loop, ask(client, peer.url()),
                       [&codes](std::exception_ptr, Result<ClientResponse> result) { codes.push_back(result.error().code); });
    while (peer.connections() == 0) co_await sleep_for(1ms);
    co_await sleep_for(5ms);
    co_await client.stop();
    for (int tries = 0; tries < 100 && codes.size() < 3; ++tries) co_await sleep_for(1ms);
    EXPECT_THAT(codes, ::testing::Each(Code::cancelled));
    EXPECT_EQ(codes.size(), 3u);
    auto late = co_await ask(client, peer.url());
    EXPECT_EQ(late.error().code, Code::cancelled);
}

CO_TEST(HttpClient, LimitsConnectionsAndWaitersPerHost) {
    struct Count {
        int at_once = 0, most = 0;
    };
    auto count = std::make_shared<Count>(); // the peer's connections end after the test's body
    ScriptedServer peer(loop, [count](RawSocket socket, int) {
        return [](RawSocket socket_, std::shared_ptr<Count> count_) -> asio::awaitable<void> {
            count_->most = std::max(count_->most, ++count_->at_once);
            while (!(co_await socket_.read_until("\r\n\r\n")).empty()) {
                co_await sleep_for(2ms);
                co_await socket_.write(small_answer);
            }
            --count_->at_once;
        }(std::move(socket), count);
    });
    HttpClient client(loop.get_executor(), {.max_per_host = 3, .max_waiting_per_host = 20});
    int good = 0, throttled = 0;
    for (int at = 0; at < 30; ++at)
        asio::co_spawn(loop, ask(client, peer.url()), [&good, &throttled](std::exception_ptr, Result<ClientResponse> result) {
            good += result.ok();
            throttled += !result.ok() && result.error().code == Code::throttled;
        });
    while (good + throttled < 30) co_await sleep_for(1ms);
    EXPECT_EQ(good, 23);
    EXPECT_EQ(throttled, 7);
    EXPECT_LE(count->most, 3);
    // A request that is cancelled while it waits uses no connection.
    HttpClient narrow(loop.get_executor(), {.max_per_host = 1});
    ScriptedServer silent(loop, holds);
    std::optional<Result<ClientResponse>> first;
    asio::co_spawn(loop, narrow.send(Context::background().with_timeout(200ms), {.url = silent.url()}),
                   [&first](std::exception_ptr, Result<ClientResponse> result) { first = std::move(result); });
    co_await sleep_for(5ms);
    auto waiter = co_await narrow.send(Context::background().with_timeout(30ms), {.url = silent.url()});
    EXPECT_EQ(waiter.error().code, Code::timeout);
    while (!first) co_await sleep_for(5ms);
    auto next = co_await narrow.send(Context::background().with_timeout(2s), {.url = peer.url()});
    EXPECT_TRUE(next.ok());
    co_await client.stop();
    co_await narrow.stop();
}

CO_TEST(HttpClient, ClosesIdleConnections) {
    HttpServer server(loop.get_executor(), {}, peers::echo);
    CO_ASSERT_OK(server.start());
    HttpClient client(loop.get_executor(), {.idle_timeout = 50ms});
    auto answer = co_await ask(client, peers::url_of(server));
    CO_ASSERT_OK(answer);
    EXPECT_EQ(server.connections(), 1u);
    for (int tries = 0; tries < 100 && server.connections() > 0; ++tries) co_await sleep_for(10ms);
    EXPECT_EQ(server.connections(), 0u);
    co_await server.stop(1s);
}

CO_TEST(HttpClient, FollowsRedirectsIfConfiguredAndDropsCredentials) {
    HttpServer other(loop.get_executor(), {}, [](Context ctx, Request& request, BodyReader&, ResponseWriter& out) -> Task<Unit> {
        std::string said = "other";
        for (const char* name : {"Authorization", "X-Auth-Token", "Cookie", "Accept"})
            if (request.headers.has(name)) said += std::string(" ") + name;
        co_return co_await out.send(ctx, Response{200, {}, said});
    });
    CO_ASSERT_OK(other.start());
    auto elsewhere = peers::url_of(other, "/there").text();
    HttpServer server(
        loop.get_executor(), {},
        peers::with(elsewhere,
                    [](Context ctx, Request& request, BodyReader&, ResponseWriter& out, std::string& there) -> Task<Unit> {
                        const auto& path = request.target.path;
                        const auto to = [](std::string where) { return Response{302, {{"Location", std::move(where)}}, "moved"}; };
                        if (path == "/absolute") co_return co_await out.send(ctx, to(there));
                        if (path == "/rooted") co_return co_await out.send(ctx, to("/end?x=1#part"));
                        if (path == "/a/relative") co_return co_await out.send(ctx, to("../end"));
                        if (path == "/query") co_return co_await out.send(ctx, to("?now"));
                        if (path == "/loop") co_return co_await out.send(ctx, to("/loop"));
                        if (path == "/bad") co_return co_await out.send(ctx, to("ftp://x/"));
                        co_return co_await out.send(
                            ctx, Response{200, {}, "end " + path + (request.headers.has("Authorization") ? " with" : "")});
                    }));
    CO_ASSERT_OK(server.start());
    HttpClient client(loop.get_executor(), {});
    const Headers secrets{{"Authorization", "Bearer x"}, {"X-Auth-Token", "y"}, {"Cookie", "z"}, {"Accept", "*/*"}};
    const auto go = [&](std::string target, int redirects, std::string method = "GET") {
        return client.send(Context::background(), {.method = std::move(method),
                                                   .url = peers::url_of(server, std::move(target)),
                                                   .headers = secrets,
                                                   .follow_redirects = redirects});
    };
    auto unfollowed = co_await go("/absolute", 0);
    CO_ASSERT_OK(unfollowed);
    EXPECT_EQ(unfollowed->status, 302);
    auto absolute = co_await go("/absolute", 3);
    CO_ASSERT_OK(absolute);
    EXPECT_EQ(absolute->body, "other Accept");
    auto rooted = co_await go("/rooted", 3);
    CO_ASSERT_OK(rooted);
    EXPECT_EQ(rooted->body, "end /end with");
    auto relative = co_await go("/a/relative", 3);
    CO_ASSERT_OK(relative);
    EXPECT_EQ(relative->body, "end /end with");
    auto posted = co_await go("/rooted", 3, "POST");
    CO_ASSERT_OK(posted);
    EXPECT_EQ(posted->status, 302);
    auto looped = co_await go("/loop", 3);
    CO_ASSERT(!looped.ok());
    EXPECT_THAT(looped.error().message, HasSubstr("redirects more than 3 times"));
    auto bad = co_await go("/bad", 3);
    CO_ASSERT(!bad.ok());
    EXPECT_EQ(bad.error().code, Code::invalid);
    EXPECT_EQ(server.connections(), 1u); // the connection was good for all of it
    co_await client.stop();
    co_await server.stop(1s);
    co_await other.stop(1s);
}

CO_TEST(HttpClient, ReadsAStreamIncrementally) {
    Notifier go(loop.get_executor());
    HttpServer server(loop.get_executor(), {},
                      peers::with(go, [](Context ctx, Request&, BodyReader&, ResponseWriter& out, Notifier& go_) -> Task<Unit> {
                          ctx = ctx.without_deadline();
                          CO_TRY(std::ignore, co_await out.begin(ctx, 200, {{"Content-Type", "text/event-stream"}}));
                          CO_TRY(std::ignore, co_await out.write(ctx, "one"));
                          CO_TRY(std::ignore, co_await go_.wait(ctx));
                          CO_TRY(std::ignore, co_await out.write(ctx, "two"));
                          co_return co_await out.finish(ctx);
                      }));
    CO_ASSERT_OK(server.start());
    HttpClient client(loop.get_executor(), {});
    const auto ctx = Context::background();
    auto stream = co_await client.open(ctx, {.url = peers::url_of(server)});
    CO_ASSERT_OK(stream);
    EXPECT_EQ((*stream)->status(), 200);
    EXPECT_EQ((*stream)->headers().get("content-type"), "text/event-stream");
    auto one = co_await (*stream)->body().read_some(ctx);
    CO_ASSERT_OK(one);
    EXPECT_EQ(*one, "one");
    auto nothing = co_await (*stream)->body().read_some(ctx.with_timeout(20ms));
    CO_ASSERT(!nothing.ok());
    EXPECT_EQ(nothing.error().code, Code::timeout);
    go.notify_all();
    auto two = co_await (*stream)->body().read_some(ctx);
    CO_ASSERT_OK(two);
    EXPECT_EQ(*two, "two");
    auto end = co_await (*stream)->body().read_some(ctx);
    CO_ASSERT_OK(end);
    EXPECT_EQ(*end, "");
    auto again = co_await client.open(ctx, {.url = peers::url_of(server)});
    CO_ASSERT_OK(again);
    EXPECT_EQ(server.connections(), 1u); // used again
    *again = nullptr;                    // and closed with the stream
    for (int tries = 0; tries < 200 && server.connections() > 0; ++tries) co_await sleep_for(10ms);
    EXPECT_EQ(server.connections(), 0u);
    co_await client.stop();
    co_await server.stop(1s);
}

CO_TEST(HttpClient, UploadsAGeneratedBody) {
    HttpServer server(loop.get_executor(), {}, peers::echo);
    CO_ASSERT_OK(server.start());
    HttpClient client(loop.get_executor(), {});
    int pieces = 0;
    const auto more = [&pieces] {
        return [](int& pieces_) -> Task<std::string> {
            co_await sleep_for(1ms);
            co_return ++pieces_ <= 3 ? std::string(2, static_cast<char>('a' + pieces_)) : std::string();
        }(pieces);
    };
    auto chunked = co_await client.upload(Context::background(), {.method = "PUT", .url = peers::url_of(server)}, more);
    CO_ASSERT_OK(chunked);
    EXPECT_EQ(chunked->body, "PUT / bbccdd");
    pieces = 0;
    auto sized = co_await client.upload(
        Context::background(), {.method = "PUT", .url = peers::url_of(server), .headers = {{"Content-Length", "6"}}}, more);
    CO_ASSERT_OK(sized);
    EXPECT_EQ(sized->body, "PUT / bbccdd");
    auto failing = co_await client.upload(Context::background(), {.method = "PUT", .url = peers::url_of(server)},
                                          []() -> Task<std::string> { co_return Error{Code::not_found, "the file went away"}; });
    CO_ASSERT(!failing.ok());
    EXPECT_EQ(failing.error().message, "the file went away");
    co_await client.stop();
    co_await server.stop(1s);
}

CO_TEST(HttpClient, AnUploadThatIsRefusedEarlyGetsTheAnswer) {
    HttpServer server(loop.get_executor(), {.max_body = 10'000}, peers::echo);
    CO_ASSERT_OK(server.start());
    HttpClient client(loop.get_executor(), {});
    auto answer =
        co_await client.upload(Context::background(), {.method = "PUT", .url = peers::url_of(server)}, []() -> Task<std::string> {
            co_await asio::post(asio::use_awaitable);
            co_return std::string(5000, 'x');
        });
    CO_ASSERT_OK(answer);
    EXPECT_EQ(answer->status, 413);
    auto whole = co_await client.send(Context::background(),
                                      {.method = "PUT", .url = peers::url_of(server), .body = std::string(3 << 20, 'x')});
    CO_ASSERT_OK(whole);
    EXPECT_EQ(whole->status, 413);
    co_await client.stop();
    co_await server.stop(1s);
}

CO_TEST(HttpClient, RefusesHeadersThatWouldBreakTheMessage) {
    HttpServer server(loop.get_executor(), {}, peers::echo);
    CO_ASSERT_OK(server.start());
    HttpClient client(loop.get_executor(), {});
    std::vector<ClientRequest> bad(6, {.url = peers::url_of(server)});
    bad[0].method = "GET / HTTP/1.1\r\nEvil:";
    bad[1].url.target = "/x HTTP/1.1\r\nEvil: 1";
    bad[2].headers.add("X", "1\r\nEvil: 1");
    bad[3].headers.add("X\r\nEvil", "1");
    bad[4].url.host = "127.0.0.1\r\nEvil: 1";
    bad[5].headers.add("Content-Length", "100");
    for (const auto& request : bad) {
        auto answer = co_await client.send(Context::background(), request);
        CO_ASSERT(!answer.ok());
        EXPECT_EQ(answer.error().code, Code::invalid);
    }
    EXPECT_EQ(server.connections(), 0u);
    co_await server.stop(1s);
}

CO_TEST(HttpClient, ResolvesNames) {
    HttpServer server(loop.get_executor(), {}, peers::echo);
    CO_ASSERT_OK(server.start());
    HttpClient client(loop.get_executor(), {});
    auto answer = co_await ask(client, {"http", "localhost", server.port(), "/"}); // ::1 may come first and refuse
    CO_ASSERT_OK(answer);
    EXPECT_EQ(answer->body, "GET /");
    auto unknown = co_await client.send(Context::background().with_timeout(5s), {.url = {"http", "no-such-host.invalid", 80, "/"}});
    CO_ASSERT(!unknown.ok());
    EXPECT_THAT(unknown.error().message, HasSubstr("no-such-host.invalid"));
    co_await client.stop();
    co_await server.stop(1s);
}

CO_TEST(HttpClient, ConnectsOnlyToAddressesThatTheOutboundRulesPermit) {
    ScriptedServer target(loop, says(small_answer));
    ScriptedServer redirects(
        loop, says(fmt::format("HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", target.url().text())));
    HttpClient closed(loop.get_executor(), {.outbound = *OutboundRules::make({})});
    for (const auto* host : {"127.0.0.1", "localhost", "0.0.0.0", "::ffff:127.0.0.1", "127.1"}) {
        auto denied = co_await ask(closed, {"http", host, target.port(), "/"});
        CO_ASSERT(!denied.ok());
        EXPECT_EQ(denied.error().code, Code::denied) << host;
        EXPECT_THAT(denied.error().message, HasSubstr("outbound rule \"loopback\"")) << host;
        EXPECT_THAT(denied.error().remedy, HasSubstr("net.outbound.allow")) << host;
    }
    HttpClient half(loop.get_executor(),
                    {.outbound = *OutboundRules::make({.allow = {fmt::format("127.0.0.1:{}", redirects.port())}})});
    auto led_away = co_await half.send(Context::background(), {.url = redirects.url(), .follow_redirects = 3});
    CO_ASSERT(!led_away.ok());
    EXPECT_EQ(led_away.error().code, Code::denied);
    EXPECT_EQ(target.connections(), 0);
    HttpClient open(loop.get_executor(), {.outbound = *OutboundRules::make({.allow = {"127.0.0.0/8"}})});
    auto answer = co_await open.send(Context::background(), {.url = redirects.url(), .follow_redirects = 3});
    CO_ASSERT_OK(answer);
    EXPECT_EQ(answer->body, "ok");
    co_await closed.stop();
    co_await half.stop();
    co_await open.stop();
}

} // namespace orrery::net
