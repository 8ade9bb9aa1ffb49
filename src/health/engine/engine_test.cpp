#include "core/test_fixture.h"
#include "health/probes/http_probe.h"
#include "health/probes/probe.h"
#include "health/probes/tcp_probe.h"
#include "health/probes/tls_probe.h"
#include "net/http_server.h"
#include "net/tls_fixture.h"

#include <boost/asio/ip/tcp.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace orrery::health {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::HasSubstr;

namespace {

/// Accepts on its own thread and handles each connection as the test wants: any fault a peer may have.
class Peer {
public:
    using Treat = std::function<void(int fd, int nth)>;
    explicit Peer(Treat treat) : treat_(std::move(treat)) {
        listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 64) != 0) std::abort();
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
        port_ = ntohs(address.sin_port);
        thread_ = std::thread([this] {
            running_ = true;
            for (;;) {
                const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
                if (fd < 0 && (errno == EMFILE || errno == ECONNABORTED)) { // a test takes the files away, from this side, too
                    std::this_thread::yield();
                    continue;
                }
                if (fd < 0) return;
                treat_(fd, accepted++);
                ::close(fd);
            }
        });
        while (!running_) std::this_thread::yield(); // the sanitizer takes a thread that starts without files for a fault
    }
    ~Peer() {
        ::shutdown(listener_, SHUT_RDWR);
        thread_.join();
        ::close(listener_);
    }
    std::uint16_t port() const { return port_; }
    std::string url(std::string_view path = "/") const { return fmt::format("http://127.0.0.1:{}{}", port_, path); }
    std::atomic<int> accepted{0};

private:
    Treat treat_;
    int listener_ = -1;
    std::uint16_t port_ = 0;
    std::atomic<bool> running_{false};
    std::thread thread_;
};

void send_text(int fd, std::string_view text) { std::ignore = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL); }
/// Reads to the end of a request's head; false where the peer has gone.
bool receive_head(int fd) {
    std::string got;
    char c = 0;
    while (got.find("\r\n\r\n") == std::string::npos) {
        if (::recv(fd, &c, 1, 0) != 1) return false;
        got += c;
    }
    return true;
}
/// Until the other side has closed.
void wait_for_end(int fd) {
    char buffer[4096];
    while (::recv(fd, buffer, sizeof buffer, 0) > 0) {
    }
}

asio::awaitable<Observation> probe_with(Engine& engine, ProbePtr probe, Duration time = 10s) {
    co_return co_await probe_once(engine, probe, Context::make("test").with_timeout(time));
}

ProbePtr http(std::string url, HttpProbeOptions more = {}) {
    more.url = std::move(url);
    auto made = http_probe(std::move(more), nullptr);
    EXPECT_TRUE(made.ok());
    return *made;
}

/// Consecutive probes of one target, with the connection and session that the engine keeps between them.
class Repeated {
public:
    Repeated(asio::any_io_executor executor, Engine& engine, ProbePtr probe)
        : engine_(engine),
          came_(executor),
          results_(engine.result_queue(executor,
                                       [this](std::vector<Engine::ProbeResult> done) {
                                           for (auto& one : done) seen_.push_back(std::move(one));
                                           came_.notify_all();
                                       })),
          target_(engine.add(probe->program(), results_)) {}
    ~Repeated() { engine_.remove(target_); }
    asio::awaitable<Observation> run(Duration time = 10s) {
        std::vector<Engine::ProbeRequest> requests;
        requests.push_back({target_, real_clock().steady() + time, ++tag_});
        engine_.start(std::move(requests));
        while (seen_.empty() || seen_.back().tag != tag_)
            std::ignore = co_await came_.wait(Context::background().with_timeout(20s));
        co_return seen_.back().seen;
    }

private:
    Engine& engine_;
    Notifier came_;
    std::vector<Engine::ProbeResult> seen_;
    Engine::ResultQueuePtr results_;
    Engine::ProbeTargetPtr target_;
    std::uint64_t tag_ = 0;
};

} // namespace

CO_TEST(Engine, ReportsEachFaultOfAnHttpPeer) {
    Engine engine;
    struct Case {
        std::string_view answer;
        Outcome outcome;
        std::string_view text;
    };
    const std::vector<Case> cases{
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Outcome::ok, "200 OK Output: ok"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok", Outcome::protocol, "closed within the body"},
        {"HTTP/1.1 200 OK\r\nConte", Outcome::protocol, "closed within the head"},
        {"", Outcome::protocol, "closed without an answer"},
        {"\x16\x03\x01 garbage", Outcome::protocol, "no HTTP answer"},
        {"220 mail.example.org ESMTP\r\n", Outcome::protocol, "no HTTP answer"},
        {"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", Outcome::bad_status, "503 Busy"},
        {"HTTP/1.1 200 OK\r\n\r\nno length, ends by closing", Outcome::ok, "ends by closing"},
    };
    for (const auto& one : cases) {
        Peer peer([&](int fd, int) {
            receive_head(fd);
            send_text(fd, one.answer);
            ::shutdown(fd, SHUT_WR);
            wait_for_end(fd);
        });
        const auto seen = co_await probe_with(engine, http(peer.url()));
        EXPECT_EQ(seen.outcome, one.outcome) << seen.text;
        EXPECT_THAT(seen.text, HasSubstr(one.text));
        EXPECT_GT(seen.connect.count(), 0);
        EXPECT_GE(seen.total, seen.first_byte);
    }
    Peer huge([](int fd, int) {
        receive_head(fd);
        send_text(fd, "HTTP/1.1 200 OK\r\nX: ");
        const std::string much(1 << 20, 'x');
        send_text(fd, much);
        wait_for_end(fd);
    });
    const auto seen = co_await probe_with(engine, http(huge.url()));
    EXPECT_EQ(seen.outcome, Outcome::protocol) << seen.text;
    EXPECT_THAT(seen.text, HasSubstr("over 32 KiB"));
    EXPECT_EQ(engine.counts().running, 0U);
}

CO_TEST(Engine, TheDeadlineCoversTheWholeProbe) {
    Engine engine;
    // Each byte comes in time; the answer does not.
    std::atomic<bool> over{false};
    Peer slow([&](int fd, int) {
        receive_head(fd);
        send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        while (!over && ::send(fd, "x", 1, MSG_NOSIGNAL) == 1) std::this_thread::sleep_for(5ms);
    });
    auto seen = co_await probe_with(engine, http(slow.url()), 150ms);
    EXPECT_EQ(seen.outcome, Outcome::timeout_read) << seen.text;
    over = true;
    Peer mute([](int fd, int) { wait_for_end(fd); });
    seen = co_await probe_with(engine, http(mute.url()), 50ms);
    EXPECT_EQ(seen.outcome, Outcome::timeout_read) << seen.text;
    auto secure = http_probe({.url = fmt::format("https://127.0.0.1:{}/", mute.port())}, nullptr);
    seen = co_await probe_with(engine, *secure, 50ms);
    EXPECT_EQ(seen.outcome, Outcome::timeout_tls) << seen.text;
    EXPECT_THAT(seen.text, HasSubstr("no handshake in time"));
    EXPECT_EQ(engine.counts().idle, 0U);
}

CO_TEST(Engine, SendsAndExpectsOverTcp) {
    Engine engine;
    Peer echo([](int fd, int) {
        send_text(fd, "220 hello\r\n");
        char buffer[256];
        if (const auto count = ::recv(fd, buffer, sizeof buffer, 0); count > 0)
            send_text(fd, std::string_view(buffer, static_cast<std::size_t>(count)));
        wait_for_end(fd);
    });
    const auto probe_for = [&](std::string send, std::string text, std::string expression) {
        return tcp_probe({"127.0.0.1", echo.port(), std::move(send), *Pattern::make(std::move(text), std::move(expression))});
    };
    auto seen = co_await probe_with(engine, probe_for("", "220 ", ""));
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    seen = co_await probe_with(engine, probe_for("PING\r\n", "", "^220 .*PING"));
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    seen = co_await probe_with(engine, probe_for("", "500", ""), 60ms);
    EXPECT_EQ(seen.outcome, Outcome::timeout_read) << seen.text;
    Peer rude([](int fd, int) { send_text(fd, "554 go away\r\n"); });
    seen = co_await probe_with(engine, tcp_probe({"127.0.0.1", rude.port(), "", *Pattern::make("220", "")}));
    EXPECT_EQ(seen.outcome, Outcome::bad_body) << seen.text;
    EXPECT_THAT(seen.text, HasSubstr("554 go away"));
    Peer endless([](int fd, int) {
        const std::string much(1 << 16, 'x');
        send_text(fd, much);
        wait_for_end(fd);
    });
    seen = co_await probe_with(engine, tcp_probe({"127.0.0.1", endless.port(), "", *Pattern::make("y", "")}));
    EXPECT_EQ(seen.outcome, Outcome::bad_body) << seen.text;
    EXPECT_THAT(seen.text, HasSubstr("first 4 KiB"));
    EXPECT_FALSE(Pattern::make("", "(").ok());
}

CO_TEST(Engine, ReusesConnectionsAndStillMakesNewOnes) {
    Engine engine({.fresh_every = 4});
    Peer server([](int fd, int) {
        while (receive_head(fd)) send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    Repeated probes(loop.get_executor(), engine, http(server.url()));
    for (int i = 0; i < 8; ++i) {
        const auto seen = co_await probes.run();
        EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
        EXPECT_EQ(seen.text.empty(), i > 0) << "the text is sent once";
    }
    EXPECT_EQ(server.accepted, 2);
    EXPECT_EQ(engine.counts().reused, 6U);
}

CO_TEST(Engine, AReusedConnectionThatWasClosedIsNoEvidence) {
    Engine engine;
    // Announces keep-alive, then closes the connection: once while it is idle, once when the request arrives.
    Peer server([](int fd, int nth) {
        if (!receive_head(fd)) return;
        send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        if (nth == 1) receive_head(fd);
    });
    Repeated probes(loop.get_executor(), engine, http(server.url()));
    for (int i = 0; i < 4; ++i) {
        const auto seen = co_await probes.run();
        EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    }
}

CO_TEST(Engine, RunningOutOfFilesIsALocalError) {
    Engine engine;
    Peer server([](int fd, int) {
        while (receive_head(fd)) send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    auto first = co_await probe_with(engine, tcp_probe({"127.0.0.1", server.port()}));
    EXPECT_EQ(first.outcome, Outcome::ok);
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    auto seen = co_await probe_with(engine, http(server.url())); // giving up the spare socket of the first probe does not suffice
    ::setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_EQ(seen.outcome, Outcome::local_error) << seen.text;
    EXPECT_FALSE(is_evidence(seen.outcome));
    EXPECT_THAT(seen.text, HasSubstr("too many open files"));
    seen = co_await probe_with(engine, http(server.url()));
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
}

CO_TEST(Engine, JudgesCertificatesAndResumesSessions) {
    testing::TemporaryFolder folder;
    net::peers::TestAuthority authority(folder.path());
    const auto serve = [&](const net::peers::TestAuthority::Files& files) {
        auto tls = net::tls_server({.certificate = files.certificate, .key = files.key});
        EXPECT_TRUE(tls.ok());
        auto server = std::make_unique<net::HttpServer>(
            loop.get_executor(), net::HttpServer::Options{.tls = *tls},
            [](Context ctx, net::Request&, net::BodyReader&, net::ResponseWriter& out) -> Task<Unit> {
                co_return co_await out.send(ctx, net::Response{200, {}, "fine"});
            });
        EXPECT_TRUE(server->start().ok());
        return server;
    };
    const auto good = serve(authority.sign("good", "IP:127.0.0.1,DNS:localhost", 40 * 24 * 3600));
    const auto old = serve(authority.sign("old", "IP:127.0.0.1", -60));
    const auto other = serve(authority.sign("other", "DNS:elsewhere.example"));
    auto trust = *net::tls_client({.ca = authority.file()});
    Engine engine;
    const auto https = [&](const net::HttpServer& server, HttpProbeOptions more = {}) {
        more.url = fmt::format("https://127.0.0.1:{}/", server.port());
        return *http_probe(std::move(more), trust);
    };
    auto seen = co_await probe_with(engine, https(*good));
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    EXPECT_GT(seen.tls.count(), 0);
    seen = co_await probe_with(engine, https(*old));
    EXPECT_EQ(seen.outcome, Outcome::tls_expired) << seen.text;
    seen = co_await probe_with(engine, https(*other));
    EXPECT_EQ(seen.outcome, Outcome::tls_error) << seen.text;
    EXPECT_THAT(seen.text, HasSubstr("mismatch"));
    seen = co_await probe_with(engine, https(*other, {.verify = false}));
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    auto distrust = http_probe({.url = fmt::format("https://127.0.0.1:{}/", good->port())}, nullptr);
    seen = co_await probe_with(engine, *distrust);
    EXPECT_EQ(seen.outcome, Outcome::tls_error) << seen.text;

    const auto tls_probe_of = [&](const net::HttpServer& server, Duration left, bool verify = true) {
        return tls_probe({.host = "127.0.0.1", .port = server.port(), .verify = verify, .min_certificate_lifetime = left}, trust);
    };
    seen = co_await probe_with(engine, tls_probe_of(*good, 24h * 30));
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    EXPECT_THAT(seen.text, AnyOf(HasSubstr("39 days"), HasSubstr("40 days")));
    seen = co_await probe_with(engine, tls_probe_of(*good, 24h * 60));
    EXPECT_EQ(seen.outcome, Outcome::warning) << seen.text;
    seen = co_await probe_with(engine, tls_probe_of(*old, 0h, false));
    EXPECT_EQ(seen.outcome, Outcome::tls_expired) << seen.text;

    Repeated probes(loop.get_executor(), engine, https(*good, {.reuse = false}));
    const auto before = engine.counts();
    for (int i = 0; i < 5; ++i) {
        seen = co_await probes.run();
        EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    }
    EXPECT_EQ(engine.counts().resumed - before.resumed, 4U);
    Repeated reused(loop.get_executor(), engine, https(*good));
    const auto handshakes = engine.counts().handshakes;
    for (int i = 0; i < 5; ++i) {
        seen = co_await reused.run();
        EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    }
    EXPECT_EQ(engine.counts().handshakes - handshakes, 1U);
    co_await good->stop(0s);
    co_await old->stop(0s);
    co_await other->stop(0s);
}

CO_TEST(Engine, MakesNoMoreHandshakesAtATimeThanItMay) {
    testing::TemporaryFolder folder;
    net::peers::TestAuthority authority(folder.path());
    const auto files = authority.sign("one", "IP:127.0.0.1");
    Engine engine({.handshakes_at_once = 2});
    net::HttpServer server(loop.get_executor(), {.tls = *net::tls_server({.certificate = files.certificate, .key = files.key})},
                           [](Context ctx, net::Request&, net::BodyReader&, net::ResponseWriter& out) -> Task<Unit> {
                               co_return co_await out.send(ctx, net::Response{200, {}, "fine"});
                           });
    CO_ASSERT_OK(server.start());
    auto trust = *net::tls_client({.ca = authority.file()});
    std::vector<Observation> seen;
    TaskGroup group(loop.get_executor());
    const auto one = [](Engine& engine_, ProbePtr probe, std::vector<Observation>& into, Duration time) -> asio::awaitable<void> {
        into.push_back(co_await probe_with(engine_, probe, time));
    };
    for (int i = 0; i < 20; ++i)
        group.spawn(one(engine, *http_probe({.url = fmt::format("https://127.0.0.1:{}/{}", server.port(), i)}, trust), seen, 10s));
    co_await group.join();
    EXPECT_EQ(seen.size(), 20U);
    for (const auto& each : seen) EXPECT_EQ(each.outcome, Outcome::ok) << each.text;
    // Peers that accept the connection and never answer occupy all handshakes until their deadline. A probe that waited behind them
    // has not reached its target, and is a local error.
    Peer mute([](int fd, int) { wait_for_end(fd); });
    seen.clear();
    for (int i = 0; i < 3; ++i)
        group.spawn(one(engine, *http_probe({.url = fmt::format("https://127.0.0.1:{}/{}", mute.port(), i)}, trust), seen,
                        i < 2 ? 600ms : 200ms));
    co_await group.join();
    int not_probed = 0;
    for (const auto& each : seen) not_probed += each.outcome == Outcome::local_error ? 1 : 0;
    EXPECT_EQ(not_probed, 1);
    co_await group.stop();
    co_await server.stop(0s);
}

CO_TEST(Engine, StopsWithProbesUnderWay) {
    Peer mute([](int fd, int) { wait_for_end(fd); });
    auto engine = std::make_unique<Engine>(Engine::Options{.threads = 2});
    auto results = engine->result_queue(loop.get_executor(), [](std::vector<Engine::ProbeResult>) {});
    std::vector<Engine::ProbeRequest> requests;
    for (std::uint64_t i = 0; i < 10; ++i)
        requests.push_back({engine->add(http(mute.url(fmt::format("/{}", i)))->program(), results), real_clock().steady() + 1h, i});
    engine->start(std::move(requests));
    engine.reset();
    co_return;
}

} // namespace orrery::health
