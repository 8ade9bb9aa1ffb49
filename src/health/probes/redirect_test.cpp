#include "core/test_fixture.h"
#include "health/probe_spec.h"
#include "health/probes/http_probe.h"
#include "health/probes/probe.h"
#include "net/http_server.h"
#include "net/tls_fixture.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

namespace orrery::health {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

namespace {

/// Two listeners on one host, one of them with TLS, and the redirects of their pages.
struct TwoListeners {
    explicit TwoListeners(asio::any_io_executor executor)
        : authority(folder.path()),
          trust(*net::tls_client({.ca = authority.file()})),
          plain(executor, {}, page()),
          secure(executor, {.tls = tls()}, page()) {
        EXPECT_TRUE(plain.start().ok() && secure.start().ok());
    }
    std::shared_ptr<net::TlsContext> tls() {
        const auto files = authority.sign("here", "IP:127.0.0.1,DNS:www.example");
        return *net::tls_server({.certificate = files.certificate, .key = files.key});
    }
    net::Handler page() {
        return [this](Context ctx, net::Request& request, net::BodyReader&, net::ResponseWriter& out) -> Task<Unit> {
            const auto& path = request.target.path;
            requests.push_back(fmt::format("{} {}", std::string(request.headers.get("Host")), path));
            if (path == "/slow") {
                std::ignore = co_await real_clock().sleep(30s);
            }
            const auto to = redirects.find(path);
            if (to == redirects.end()) co_return co_await out.send(ctx, net::Response{200, {}, "well"});
            net::Response moved{302, {}, "not here"};
            moved.headers.set("Location", to->second);
            co_return co_await out.send(ctx, std::move(moved));
        };
    }
    asio::awaitable<void> stop() {
        co_await plain.stop(0s);
        co_await secure.stop(0s);
    }

    testing::TemporaryFolder folder;
    net::peers::TestAuthority authority;
    std::shared_ptr<net::TlsContext> trust;
    std::map<std::string, std::string, std::less<>> redirects;
    std::vector<std::string> requests;
    net::HttpServer plain, secure;
};

} // namespace

CO_TEST(Redirects, AreFollowedOnTheSameHostIfConfigured) {
    TwoListeners site(loop.get_executor());
    const auto secure_port = site.secure.port();
    site.redirects = {{"/up", fmt::format("https://www.example:{}/deep/first", secure_port)},
                      {"/deep/first", "second?x=1"},
                      {"/deep/second", "/well"},
                      {"/loop", "/loop"},
                      {"/down", fmt::format("http://www.example:{}/well", site.plain.port())},
                      {"/away", "http://192.0.2.1/well"},
                      {"/odd", "gopher://www.example/"},
                      {"/late", "/slow"}};
    Engine engine;
    const auto probe = [&](std::string path, int max, bool tls = false, Duration time = 10s) -> asio::awaitable<Observation> {
        const auto& server = tls ? site.secure : site.plain;
        const HttpProbeOptions what{.url = fmt::format("{}://www.example:{}{}", tls ? "https" : "http", server.port(), path),
                                    .contains = "well",
                                    .address = "127.0.0.1",
                                    .follow_redirects = max};
        co_return co_await probe_once(engine, *http_probe(what, site.trust), Context::make("test").with_timeout(time));
    };
    auto seen = co_await probe("/up", 3);
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    EXPECT_THAT(seen.text, HasSubstr(fmt::format("redirected to HTTP GET https://www.example:{}/well: 200", secure_port)));
    const auto there = fmt::format("www.example:{}", secure_port);
    EXPECT_THAT(site.requests, ::testing::ElementsAre(fmt::format("www.example:{} /up", site.plain.port()), there + " /deep/first",
                                                      there + " /deep/second", there + " /well"));
    struct Case {
        std::string path;
        int max;
        bool tls;
        std::string text;
    };
    for (const auto& [path, max, tls, text] :
         {Case{"/up", 0, false, "302 Found"}, Case{"/up", 2, false, "/deep/second?x=1: 302 Found"},
          Case{"/loop", 10, false, "302 Found"}, Case{"/down", 3, true, "which is not encrypted"},
          Case{"/away", 3, false, "different host, http://192.0.2.1"}, Case{"/odd", 3, false, "cannot be followed"}}) {
        seen = co_await probe(path, max, tls);
        EXPECT_EQ(seen.outcome, Outcome::bad_status) << path << ": " << seen.text;
        EXPECT_THAT(seen.text, HasSubstr(text));
    }
    seen = co_await probe("/late", 1, false, 2s);
    EXPECT_EQ(seen.outcome, Outcome::timeout_read) << "one deadline for all of it: " << seen.text;
    co_await site.stop();
}

CO_TEST(Redirects, AreAFieldOfProbesAndValidated) {
    const json::object good{{"kind", "https"}, {"follow_redirects", 2}};
    EXPECT_TRUE(validate_probe(good, "spec", {}).empty());
    CO_ASSERT_OK(probe_from(good, "192.0.2.1", 443, {}));
    EXPECT_NE((*probe_from(good, "192.0.2.1", 443, {}))->identity(),
              (*probe_from({{"kind", "https"}}, "192.0.2.1", 443, {}))->identity());
    for (const json::object& bad :
         {json::object{{"kind", "http"}, {"follow_redirects", 11}}, json::object{{"kind", "http"}, {"follow_redirects", "all"}},
          json::object{{"kind", "http"}, {"follow_redirects", 1}, {"method", "POST"}},
          json::object{{"kind", "tcp"}, {"follow_redirects", 1}, {"port", 1}}})
        EXPECT_EQ(validate_probe(bad, "spec", {}).size(), 1U);
    co_return;
}

} // namespace orrery::health
