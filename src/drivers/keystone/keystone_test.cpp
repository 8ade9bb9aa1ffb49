#include "core/test_fixture.h"
#include "drivers/keystone/keystone.h"
#include "net/http_fixture.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

namespace orrery::drivers::keystone_test {

using namespace std::chrono_literals;
using identity::Role;

namespace {

/// What the driver needs of Keystone: a login, and the validation of tokens. tests/conformance/keystone asks the real one the same.
struct FakeKeystone final : net::peers::FakeHttpService {
    using FakeHttpService::FakeHttpService;

    Task<Unit> serve(Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) override {
        CO_TRY(const auto text, co_await net::read_all(ctx, body, 65536));
        if (hang) {
            std::ignore = co_await real_clock().sleep(1h);
        }
        if (fail_with != 0) co_return co_await out.send(ctx, {fail_with, {}, "no"});
        if (request.target.path != "/v3/auth/tokens") co_return co_await out.send(ctx, {404, {}, "no such path"});
        if (request.method == "POST") {
            ++logins;
            if (text.find(password) == std::string::npos) co_return co_await out.send(ctx, {401, {}, R"({"error":{"code":401}})"});
            const auto token = fmt::format("service-token-{}", logins);
            service_tokens = {token};
            co_return co_await out.send(
                ctx, {201, {{"X-Subject-Token", token}}, fmt::format(R"({{"token":{{"expires_at":"{}"}}}})", own_expiry)});
        }
        ++validations;
        if (!service_tokens.contains(std::string(request.headers.get("X-Auth-Token"))))
            co_return co_await out.send(ctx, {401, {}, "{}"});
        const std::string subject(request.headers.get("X-Subject-Token"));
        if (!tokens.contains(subject)) co_return co_await out.send(ctx, {404, {}, R"({"error":{"code":404}})"});
        co_return co_await out.send(ctx, {200, {}, tokens[subject]});
    }

    void add(const std::string& token, const std::string& user, const std::string& role,
             const std::string& expires_at = "2099-01-01T00:00:00.000000Z") {
        tokens[token] = fmt::format(
            R"({{"token":{{"user":{{"name":"{}","domain":{{"id":"default","name":"Default"}}}},"roles":[{{"name":"{}"}}],"expires_at":"{}"}}}})",
            user, role, expires_at);
    }

    KeystoneOptions options() const {
        KeystoneOptions options;
        options.url = url();
        options.user = "orrery";
        options.password = password;
        options.roles = {{"reader", Role::viewer}, {"admin", Role::admin}};
        options.timeout = 5s;
        return options;
    }
    std::unique_ptr<identity::TokenSource> source(KeystoneOptions options) {
        auto made = keystone_source(client, clock, std::move(options));
        EXPECT_TRUE(made.ok());
        return std::move(*made);
    }

    std::map<std::string, std::string> tokens;
    std::set<std::string> service_tokens;
    std::string password = "the service password", own_expiry = "2098-01-01T00:00:00.000000Z";
    int logins = 0, validations = 0, fail_with = 0;
    bool hang = false;
    VirtualClock clock;
};

Task<identity::TokenSource::Answer> ask_keystone(identity::TokenSource& source, std::string token) {
    return source.check(Context::make("test"), std::move(token));
}

asio::awaitable<void> ask_into(identity::TokenSource& source, std::string token,
                               std::vector<Result<identity::TokenSource::Answer>>& answers) {
    answers.push_back(co_await ask_keystone(source, std::move(token)));
}

} // namespace

CO_TEST(Keystone, ReturnsTheHolderOfAToken) {
    FakeKeystone keystone(loop.get_executor());
    keystone.add("carols", "carol", "reader");
    auto source = keystone.source(keystone.options());
    auto answer = co_await ask_keystone(*source, "carols");
    auto unknown = co_await ask_keystone(*source, "nobodys");
    co_await keystone.stop();
    CO_ASSERT_OK(answer);
    EXPECT_EQ(answer->principal.user, "carol");
    EXPECT_EQ(answer->principal.role, Role::viewer);
    CO_ASSERT(!unknown.ok());
    EXPECT_EQ(unknown.error().code, Code::unauthenticated);
    EXPECT_EQ(keystone.logins, 1);
}

CO_TEST(Keystone, LogsInAgainWhenItsOwnTokenIsRefused) {
    FakeKeystone keystone(loop.get_executor());
    keystone.add("carols", "carol", "reader");
    auto source = keystone.source(keystone.options());
    auto before = co_await ask_keystone(*source, "carols");
    keystone.service_tokens.clear();
    auto after = co_await ask_keystone(*source, "carols");
    co_await keystone.stop();
    CO_ASSERT_OK(before);
    CO_ASSERT_OK(after);
    EXPECT_EQ(keystone.logins, 2);
}

CO_TEST(Keystone, LogsInAgainBeforeItsOwnTokenExpires) {
    FakeKeystone keystone(loop.get_executor());
    keystone.add("carols", "carol", "reader");
    keystone.own_expiry = to_rfc3339(keystone.clock.wall() + 10min);
    auto source = keystone.source(keystone.options());
    auto first = co_await ask_keystone(*source, "carols");
    keystone.clock.advance(8min);
    auto second = co_await ask_keystone(*source, "carols");
    const auto logins = keystone.logins;
    keystone.clock.advance(90s);
    auto third = co_await ask_keystone(*source, "carols");
    co_await keystone.stop();
    CO_ASSERT(first.ok() && second.ok() && third.ok());
    EXPECT_EQ(logins, 1);
    EXPECT_EQ(keystone.logins, 2);
}

CO_TEST(Keystone, ConcurrentRequestsShareOneLogin) {
    FakeKeystone keystone(loop.get_executor());
    keystone.add("carols", "carol", "reader");
    auto source = keystone.source(keystone.options());
    std::vector<Result<identity::TokenSource::Answer>> answers;
    TaskGroup group(loop.get_executor());
    for (int i = 0; i < 20; ++i) group.spawn(ask_into(*source, "carols", answers));
    co_await group.join();
    co_await keystone.stop();
    EXPECT_EQ(std::count_if(answers.begin(), answers.end(), [](const auto& answer) { return answer.ok(); }), 20);
    EXPECT_EQ(keystone.logins, 1);
}

CO_TEST(Keystone, AnExpiredTokenIsRefused) {
    FakeKeystone keystone(loop.get_executor());
    keystone.add("carols", "carol", "reader", to_rfc3339(keystone.clock.wall() - 1s));
    auto source = keystone.source(keystone.options());
    auto answer = co_await ask_keystone(*source, "carols");
    co_await keystone.stop();
    CO_ASSERT(!answer.ok());
    EXPECT_EQ(answer.error().code, Code::unauthenticated);
}

CO_TEST(Keystone, AWrongServicePasswordIsRetriedSeldomAndNotShown) {
    FakeKeystone keystone(loop.get_executor());
    auto options = keystone.options();
    options.password = "not that one";
    auto source = keystone.source(options);
    for (int i = 0; i < 10; ++i) {
        auto answer = co_await ask_keystone(*source, "carols");
        CO_ASSERT(!answer.ok());
        EXPECT_EQ(answer.error().code, Code::unavailable);
        EXPECT_THAT(answer.error().text(), ::testing::Not(::testing::HasSubstr("not that one")));
    }
    EXPECT_EQ(keystone.logins, 1);
    // It recovers by itself once the account works again.
    keystone.password = "not that one";
    keystone.add("carols", "carol", "reader");
    keystone.clock.advance(6s);
    auto answer = co_await ask_keystone(*source, "carols");
    co_await keystone.stop();
    CO_ASSERT_OK(answer);
}

CO_TEST(Keystone, AnErrorOfKeystoneIsNotARefusal) {
    FakeKeystone keystone(loop.get_executor());
    keystone.add("carols", "carol", "reader");
    auto source = keystone.source(keystone.options());
    CO_ASSERT_OK(co_await ask_keystone(*source, "carols"));
    for (const int status : {500, 502, 503, 429, 403, 302, 418}) {
        keystone.fail_with = status;
        auto answer = co_await ask_keystone(*source, "carols");
        CO_ASSERT(!answer.ok());
        EXPECT_EQ(answer.error().code, Code::unavailable) << status;
    }
    keystone.fail_with = 0;
    keystone.tokens["odd"] = "<html>";
    auto odd = co_await ask_keystone(*source, "odd");
    keystone.tokens["huge"] = std::string(2U << 20U, ' ');
    auto huge = co_await ask_keystone(*source, "huge");
    auto fine = co_await ask_keystone(*source, "carols");
    co_await keystone.stop();
    CO_ASSERT(!odd.ok() && !huge.ok());
    EXPECT_EQ(odd.error().code, Code::unavailable);
    EXPECT_EQ(huge.error().code, Code::unavailable);
    CO_ASSERT_OK(fine);
}

CO_TEST(Keystone, AServerThatHangsIsATimeout) {
    FakeKeystone keystone(loop.get_executor());
    auto options = keystone.options();
    options.timeout = 200ms;
    auto source = keystone.source(options);
    keystone.hang = true;
    const auto began = std::chrono::steady_clock::now();
    auto answer = co_await ask_keystone(*source, "carols");
    const auto took = std::chrono::steady_clock::now() - began;
    co_await keystone.stop();
    CO_ASSERT(!answer.ok());
    EXPECT_EQ(answer.error().code, Code::timeout) << answer.error().text();
    EXPECT_LT(took, 5s);
}

CO_TEST(Keystone, AServerThatIsDownIsUnavailable) {
    FakeKeystone keystone(loop.get_executor());
    auto source = keystone.source(keystone.options());
    co_await keystone.server.stop(0s);
    auto answer = co_await ask_keystone(*source, "carols");
    co_await keystone.client.stop();
    CO_ASSERT(!answer.ok());
    EXPECT_EQ(answer.error().code, Code::unavailable);
}

CO_TEST(Keystone, ATokenThatCouldForgeAHeaderIsNotSent) {
    FakeKeystone keystone(loop.get_executor());
    auto source = keystone.source(keystone.options());
    auto answer = co_await ask_keystone(*source, "x\r\nX-Auth-Token: y");
    co_await keystone.stop();
    CO_ASSERT(!answer.ok());
    EXPECT_EQ(answer.error().code, Code::unauthenticated);
    EXPECT_EQ(keystone.logins + keystone.validations, 0);
}

CO_TEST(Keystone, RefusesInvalidOptions) {
    net::HttpClient client(loop.get_executor(), {});
    VirtualClock clock;
    const auto first_wrong = [&](const std::string& url, const std::string& user, bool allow) {
        KeystoneOptions options;
        options.url = url;
        options.user = user;
        options.password = "x";
        options.roles = {{"reader", Role::viewer}};
        options.allow_plaintext = allow;
        const auto source = keystone_source(client, clock, std::move(options));
        return source.ok() ? std::string("none") : source.error().fields.front().path;
    };
    EXPECT_EQ(first_wrong("https://keystone:5000/v3/", "orrery", false), "none");
    EXPECT_EQ(first_wrong("http://127.0.0.1:5000", "orrery", false), "none");
    EXPECT_EQ(first_wrong("http://keystone:5000", "orrery", false), "identity.keystone.url");
    EXPECT_EQ(first_wrong("http://127.example.org:5000", "orrery", false), "identity.keystone.url");
    EXPECT_EQ(first_wrong("http://keystone:5000", "orrery", true), "none");
    EXPECT_EQ(first_wrong("keystone:5000", "orrery", false), "identity.keystone.url");
    EXPECT_EQ(first_wrong("https://keystone:5000", "", false), "identity.keystone.user");
    co_await client.stop();
}

} // namespace orrery::drivers::keystone_test
