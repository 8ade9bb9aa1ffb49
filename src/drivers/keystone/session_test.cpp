#include "core/test_fixture.h"
#include "drivers/keystone/session.h"
#include "net/http_fixture.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace orrery::drivers::session_test {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

/// A Keystone and a service of its catalog, at one address.
struct FakeCloud final : net::peers::FakeHttpService {
    using FakeHttpService::FakeHttpService;
    Task<Unit> serve(Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) override {
        CO_TRY(const auto text, co_await net::read_all(ctx, body, 65536));
        if (request.target.path == "/v3/auth/tokens") {
            ++logins;
            last_login = text;
            if (keystone_down) co_return co_await out.send(ctx, {503, {}, ""});
            if (text.find("the password") == std::string::npos && text.find("the secret") == std::string::npos)
                co_return co_await out.send(ctx, {401, {}, "{}"});
            token = fmt::format("token-{}", logins);
            auto answer = fmt::format(R"({{"token":{{"expires_at":"{}","catalog":[{{"type":"dns","endpoints":[
                {{"interface":"admin","region_id":"one","url":"http://127.0.0.1:1/"}},
                {{"interface":"public","region_id":"one","url":"http://127.0.0.1:{}{}"}},
                {{"interface":"public","region_id":"two","url":"http://127.0.0.1:1"}}]}}]}}}})",
                                      to_rfc3339(clock.wall() + 100s), server.port(), suffix);
            co_return co_await out.send(ctx, {201, {{"X-Subject-Token", token}}, std::move(answer)});
        }
        seen.push_back(request.method + " " + request.target.path);
        if (request.headers.get("X-Auth-Token") != token) co_return co_await out.send(ctx, {401, {}, ""});
        co_return co_await out.send(ctx, {202, {}, text});
    }
    std::shared_ptr<OpenstackSession> session(OpenstackLogin login = {.user = "svc", .password = "the password"}) {
        login.url = url();
        auto made = OpenstackSession::make(client, clock, "designate.keystone", std::move(login));
        EXPECT_TRUE(made.ok());
        return std::move(*made);
    }
    std::vector<std::string> seen;
    std::string token, suffix, last_login;
    int logins = 0;
    bool keystone_down = false;
    VirtualClock clock;
};

Task<net::ClientResponse> zones(OpenstackSession& session) {
    return session.send(Context::background().with_timeout(10s), {.service = "dns", .path = "/v2/zones"});
}

} // namespace

CO_TEST(OpenstackSession, FindsTheServiceInEveryFormOfEndpoint) {
    FakeCloud cloud(loop.get_executor());
    for (const auto* suffix : {"", "/", "/v2", "/v2/", "/dns", "/dns/v2"}) {
        cloud.suffix = suffix;
        auto session = cloud.session();
        auto answer = co_await zones(*session);
        CO_ASSERT_OK(answer);
        EXPECT_EQ(answer->status, 202) << suffix;
    }
    co_await cloud.stop();
    EXPECT_THAT(cloud.seen, ElementsAre("GET /v2/zones", "GET /v2/zones", "GET /v2/zones", "GET /v2/zones", "GET /dns/v2/zones",
                                        "GET /dns/v2/zones"));
}

CO_TEST(OpenstackSession, LogsInOnceAndAgainWhenTheTokenExpiresOrIsRefused) {
    FakeCloud cloud(loop.get_executor());
    auto session = cloud.session();
    for (int i = 0; i < 3; ++i) CO_ASSERT_OK(co_await zones(*session));
    EXPECT_EQ(cloud.logins, 1);
    cloud.clock.advance(81s);
    CO_ASSERT_OK(co_await zones(*session));
    EXPECT_EQ(cloud.logins, 2);
    cloud.token = "revoked";
    auto after = co_await zones(*session);
    CO_ASSERT_OK(after);
    EXPECT_EQ(after->status, 202);
    EXPECT_EQ(cloud.logins, 3);
    // If Keystone is unavailable and the old token is still valid, the session continues.
    cloud.keystone_down = true;
    cloud.clock.advance(85s);
    auto meanwhile = co_await zones(*session);
    CO_ASSERT_OK(meanwhile);
    EXPECT_EQ(meanwhile->status, 202);
    cloud.clock.advance(20s);
    auto too_late = co_await zones(*session);
    co_await cloud.stop();
    CO_ASSERT(!too_late.ok());
    EXPECT_EQ(too_late.error().code, Code::unavailable);
}

CO_TEST(OpenstackSession, ARefusedLoginIsNotRepeatedAtOnceAndShowsNoSecret) {
    FakeCloud cloud(loop.get_executor());
    auto session = cloud.session({.user = "svc", .password = "wrong one"});
    for (int i = 0; i < 5; ++i) {
        auto answer = co_await zones(*session);
        CO_ASSERT(!answer.ok());
        EXPECT_EQ(answer.error().code, Code::unauthenticated);
        EXPECT_THAT(answer.error().text(), Not(HasSubstr("wrong one")));
    }
    EXPECT_EQ(cloud.logins, 1);
    co_await cloud.stop();
}

CO_TEST(OpenstackSession, AnApplicationCredentialAsksForNoScope) {
    FakeCloud cloud(loop.get_executor());
    auto session = cloud.session({.credential = "abc", .credential_secret = "the secret"});
    CO_ASSERT_OK(co_await zones(*session));
    co_await cloud.stop();
    EXPECT_THAT(cloud.last_login, Not(HasSubstr("scope")));
}

CO_TEST(OpenstackSession, NamesTheServiceThatIsMissingFromTheCatalog) {
    FakeCloud cloud(loop.get_executor());
    auto session = cloud.session({.user = "svc", .password = "the password", .region = "three"});
    auto answer = co_await zones(*session);
    co_await cloud.stop();
    CO_ASSERT(!answer.ok());
    EXPECT_EQ(answer.error().code, Code::not_found);
    EXPECT_THAT(answer.error().message, HasSubstr("region three"));
}

CO_TEST(OpenstackSession, RefusesInvalidLogins) {
    net::HttpClient client(loop.get_executor(), {});
    VirtualClock clock;
    const auto first_wrong = [&](OpenstackLogin login) {
        const auto made = OpenstackSession::make(client, clock, "x", std::move(login));
        return made.ok() ? std::string("none") : made.error().fields.front().path;
    };
    EXPECT_EQ(first_wrong({.url = "https://k:5000", .user = "a", .password = "b"}), "none");
    EXPECT_EQ(first_wrong({.url = "http://k:5000", .user = "a", .password = "b"}), "x.url");
    EXPECT_EQ(first_wrong({.url = "https://k:5000", .password = "b"}), "x.user");
    EXPECT_EQ(first_wrong({.url = "https://k:5000", .credential = "b"}), "x.credential_secret");
    EXPECT_EQ(first_wrong({.url = "https://k:5000", .user = "a", .password = "b", .interface_ = "outer"}), "x.interface");
    co_await client.stop();
}

} // namespace orrery::drivers::session_test
