#include "core/test_fixture.h"
#include "health/engine/engine.h"
#include "health/probes/command_probe.h"
#include "health/probes/http_probe.h"
#include "health/probes/probe.h"
#include "health/probes/tcp_probe.h"
#include "net/http_server.h"

#include <boost/asio/ip/tcp.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

namespace orrery::health {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

namespace {

Task<Unit> page(Context ctx, net::Request& request, net::BodyReader&, net::ResponseWriter& out) {
    const auto& path = request.target.path;
    int status = 200;
    if (path == "/busy") status = 429;
    if (path == "/broken") status = 500;
    if (path == "/moved") status = 301;
    std::string body = "hello " + std::string(request.headers.get("Host")) + " " + std::string(request.headers.get("X-Word"));
    if (path == "/long") body.assign(200'000, 'x');
    if (path == "/slow") {
        std::ignore = co_await real_clock().sleep(30s);
    }
    co_return co_await out.send(ctx, net::Response{status, {}, std::move(body)});
}

struct Site {
    explicit Site(asio::any_io_executor executor) : server(executor, {}, page) { EXPECT_TRUE(server.start().ok()); }
    std::string url(std::string_view path) const { return fmt::format("http://127.0.0.1:{}{}", server.port(), path); }
    net::HttpServer server;
};

asio::awaitable<Observation> probe_on_engine(ProbePtr probe, Duration time = 5s) {
    static Engine engine; // shared by all tests here: state of one probe must not affect another
    co_return co_await probe_once(engine, probe, Context::make("test").with_timeout(time));
}

std::uint16_t closed_port(asio::io_context& loop) {
    asio::ip::tcp::acceptor acceptor(loop, {asio::ip::make_address("127.0.0.1"), 0});
    return acceptor.local_endpoint().port();
}

} // namespace

CO_TEST(TcpProbe, DistinguishesAcceptedFromRefused) {
    asio::ip::tcp::acceptor acceptor(loop, {asio::ip::make_address("127.0.0.1"), 0});
    auto good = co_await probe_on_engine(tcp_probe({"127.0.0.1", acceptor.local_endpoint().port()}));
    EXPECT_EQ(good.outcome, Outcome::ok) << good.text;
    EXPECT_THAT(good.text, HasSubstr("Success"));
    auto refused = co_await probe_on_engine(tcp_probe({"127.0.0.1", closed_port(loop)}));
    EXPECT_EQ(refused.outcome, Outcome::refused) << refused.text;
    // With or without a name server: a name that does not exist is neither up nor a timeout.
    auto nowhere = co_await probe_on_engine(tcp_probe({"no-such-host.invalid", 80}), 30s);
    EXPECT_THAT(nowhere.outcome, ::testing::AnyOf(Outcome::dns_error, Outcome::local_error)) << nowhere.text;
}

CO_TEST(HttpProbe, JudgesCodesAndBodies) {
    Site site(loop.get_executor());
    const std::vector<std::pair<HttpProbeOptions, Outcome>> table{
        {{.url = site.url("/")}, Outcome::ok},
        {{.url = site.url("/busy")}, Outcome::warning},
        {{.url = site.url("/broken")}, Outcome::bad_status},
        {{.url = site.url("/moved")}, Outcome::bad_status},
        {{.url = site.url("/moved"), .codes = {{200, 299}, {301, 301}}}, Outcome::ok},
        {{.url = site.url("/"), .contains = "hello"}, Outcome::ok},
        {{.url = site.url("/"), .contains = "good-bye"}, Outcome::bad_body},
        {{.url = site.url("/long")}, Outcome::ok},
        {{.url = site.url("/long"), .contains = "y"}, Outcome::bad_body},
        {{.url = site.url("/"), .method = "HEAD"}, Outcome::ok},
        {{.url = fmt::format("http://127.0.0.1:{}/", closed_port(loop))}, Outcome::refused},
    };
    for (const auto& [what, expected] : table) {
        const auto seen = co_await probe_on_engine(*http_probe(what, nullptr));
        EXPECT_EQ(seen.outcome, expected) << seen.text;
    }
    const auto worded = co_await probe_on_engine(
        *http_probe({.url = site.url("/"), .headers = {{"Host", "example.org"}, {"X-Word", "abc"}}}, nullptr));
    EXPECT_THAT(worded.text, HasSubstr("200 OK Output: hello example.org abc"));
    co_await site.server.stop(0s);
}

CO_TEST(HttpProbe, EndsAtItsDeadlineInEveryState) {
    Site site(loop.get_executor());
    auto slow = co_await probe_on_engine(*http_probe({.url = site.url("/slow")}, nullptr), 100ms);
    EXPECT_EQ(slow.outcome, Outcome::timeout_read) << slow.text;
    // A peer that accepts and sends nothing, and one that does not speak TLS.
    asio::ip::tcp::acceptor silent(loop, {asio::ip::make_address("127.0.0.1"), 0});
    auto mute = co_await probe_on_engine(
        *http_probe({.url = fmt::format("http://127.0.0.1:{}/", silent.local_endpoint().port())}, nullptr), 100ms);
    EXPECT_EQ(mute.outcome, Outcome::timeout_read) << mute.text;
    auto no_tls =
        co_await probe_on_engine(*http_probe({.url = fmt::format("https://127.0.0.1:{}/", site.server.port())}, nullptr), 2s);
    EXPECT_EQ(no_tls.outcome, Outcome::tls_error) << no_tls.text;
    co_await site.server.stop(0s);
}

CO_TEST(HttpProbe, RefusesInvalidRequests) {
    EXPECT_FALSE(http_probe({.url = "ftp://x/"}, nullptr).ok());
    EXPECT_FALSE(http_probe({.url = "http://x/", .headers = {{"A", "b\r\nC: d"}}}, nullptr).ok());
    EXPECT_FALSE(http_probe({.url = "http://x/", .headers = {{"A:", "b"}}}, nullptr).ok());
    EXPECT_FALSE(http_probe({.url = "http://x/", .method = "GET /x"}, nullptr).ok());
    co_return;
}

CO_TEST(CommandProbe, MapsExitCodesAndTreatsAnUnreachableNodeAsNoEvidence) {
    class Runner final : public CommandRunner {
    public:
        Task<Ended> run(Context, std::string node, std::vector<std::string>, std::string) override {
            if (node == "gone") co_return Error{Code::unavailable, "no connection to gone"};
            co_return Ended{exit_code, "some words"};
        }
        int exit_code = 0;
    } runner;
    const auto probe = command_probe(runner, "n1", {"check_disk", "/"});
    for (const auto& [code, expected] : {std::pair{0, Outcome::ok}, {1, Outcome::warning}, {2, Outcome::failed}}) {
        runner.exit_code = code;
        const auto seen = co_await probe_on_engine(probe);
        EXPECT_EQ(seen.outcome, expected);
    }
    const auto gone = co_await probe_on_engine(command_probe(runner, "gone", {"x"}));
    EXPECT_EQ(gone.outcome, Outcome::local_error);
}

} // namespace orrery::health
