#include "net/http_fixture.h"
#include "net/tls.h"
#include "net/tls_fixture.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

namespace orrery::net {

using namespace std::chrono_literals;
using peers::TestAuthority;
using ::testing::HasSubstr;

namespace {

Task<Unit> says_who(Context ctx, Request& request, BodyReader& body, ResponseWriter& out) {
    CO_TRY(auto text, co_await read_all(ctx, body, 8 << 20));
    co_return co_await out.send(
        ctx, Response{200, {}, fmt::format("{} {} {}", request.tls ? "tls" : "plain", request.client_certificate, text)});
}

Url https(const HttpServer& server, std::string host = "localhost") { return {"https", std::move(host), server.port(), "/"}; }

} // namespace

CO_TEST(Tls, TransfersRequestsAndAnswers) {
    orrery::testing::TemporaryFolder folder;
    TestAuthority authority(folder.path());
    const auto files = authority.sign("server", "DNS:localhost,IP:127.0.0.1,IP:::1");
    auto for_server = tls_server({.certificate = files.certificate, .key = files.key});
    auto for_client = tls_client({.ca = authority.file()});
    CO_ASSERT_OK(for_server);
    CO_ASSERT_OK(for_client);
    HttpServer::Options options;
    options.tls = *for_server;
    options.also = {{"127.0.0.1", 0, nullptr}, {"::1", 0, *for_server}};
    HttpServer server(loop.get_executor(), options, says_who);
    CO_ASSERT_OK(server.start());
    HttpClient client(loop.get_executor(), {.tls = *for_client});
    const auto ctx = Context::background();
    for (const auto size : {0, 10, 16'384, 3'000'000}) {
        const std::string body(static_cast<std::size_t>(size), 'x');
        auto answer = co_await client.send(ctx, {.method = "POST", .url = https(server), .body = body});
        CO_ASSERT_OK(answer);
        EXPECT_EQ(answer->body, "tls  " + body);
    }
    EXPECT_EQ(server.connections(), 1u);
    auto by_address = co_await client.send(ctx, {.url = https(server, "127.0.0.1")});
    CO_ASSERT_OK(by_address);
    auto plain = co_await client.send(ctx, {.url = {"http", "127.0.0.1", server.ports()[1], "/"}});
    CO_ASSERT_OK(plain);
    EXPECT_EQ(plain->body, "plain  ");
    auto by_v6 = co_await client.send(ctx, {.url = {"https", "::1", server.ports()[2], "/"}});
    CO_ASSERT_OK(by_v6);
    co_await client.stop();
    const auto started = std::chrono::steady_clock::now();
    co_await server.stop(10s);
    EXPECT_LT(std::chrono::steady_clock::now() - started, 3s);
}

CO_TEST(Tls, RefusesACertificateThatDoesNotVerify) {
    orrery::testing::TemporaryFolder folder;
    TestAuthority authority(folder.path()), stranger(folder.path(), "stranger");
    const auto ctx = Context::background();
    struct Case {
        TestAuthority::Files files;
        std::string host, words;
    };
    const std::vector<Case> cases = {
        {stranger.sign("foreign", "DNS:localhost"), "localhost", "unable to get local issuer certificate"},
        {authority.sign("other", "DNS:elsewhere.example,IP:10.0.0.1"), "localhost", "hostname mismatch"},
        {authority.sign("address", "DNS:localhost"), "127.0.0.1", "IP address mismatch"},
        {authority.sign("old", "DNS:localhost", -60), "localhost", "certificate has expired"},
    };
    auto for_client = tls_client({.ca = authority.file()});
    CO_ASSERT_OK(for_client);
    for (const auto& each : cases) {
        auto for_server = tls_server({.certificate = each.files.certificate, .key = each.files.key});
        CO_ASSERT_OK(for_server);
        HttpServer server(loop.get_executor(), {.tls = *for_server}, says_who);
        CO_ASSERT_OK(server.start());
        HttpClient client(loop.get_executor(), {.tls = *for_client});
        auto answer = co_await client.send(ctx, {.url = https(server, each.host)});
        CO_ASSERT(!answer.ok());
        EXPECT_EQ(answer.error().code, Code::denied) << answer.error().text();
        EXPECT_THAT(answer.error().message, HasSubstr(fmt::format("cannot connect to https://{}:{}", each.host, server.port())));
        EXPECT_THAT(answer.error().message, HasSubstr(each.words));
        EXPECT_NE(answer.error().remedy, "");
        co_await server.stop(1s);
    }
}

CO_TEST(Tls, AuthenticatesClientsByTheirCertificates) {
    orrery::testing::TemporaryFolder folder;
    TestAuthority authority(folder.path()), stranger(folder.path(), "stranger");
    const auto files = authority.sign("server", "DNS:localhost");
    const auto alice = authority.sign("alice", ""), mallory = stranger.sign("mallory", "");
    const auto ctx = Context::background();
    auto anonymous = tls_client({.ca = authority.file()});
    auto as_alice = tls_client({.ca = authority.file(), .certificate = alice.certificate, .key = alice.key});
    auto as_mallory = tls_client({.ca = authority.file(), .certificate = mallory.certificate, .key = mallory.key});
    CO_ASSERT_OK(as_mallory);
    for (const bool required : {false, true}) {
        auto for_server = tls_server({.certificate = files.certificate,
                                      .key = files.key,
                                      .client_ca = authority.file(),
                                      .require_client_certificate = required});
        CO_ASSERT_OK(for_server);
        HttpServer server(loop.get_executor(), {.tls = *for_server}, says_who);
        CO_ASSERT_OK(server.start());
        HttpClient known(loop.get_executor(), {.tls = *as_alice}), unknown(loop.get_executor(), {.tls = *anonymous}),
            forged(loop.get_executor(), {.tls = *as_mallory});
        auto welcome = co_await known.send(ctx, {.url = https(server)});
        CO_ASSERT_OK(welcome);
        EXPECT_EQ(welcome->body, "tls alice ");
        auto nobody = co_await unknown.send(ctx, {.url = https(server)});
        EXPECT_EQ(nobody.ok(), !required);
        if (nobody.ok())
            EXPECT_EQ(nobody->body, "tls  ");
        else
            EXPECT_EQ(nobody.error().code, Code::denied) << nobody.error().text();
        auto refused = co_await forged.send(ctx, {.url = https(server)});
        EXPECT_FALSE(refused.ok());
        co_await known.stop();
        co_await unknown.stop();
        co_await server.stop(1s);
    }
}

CO_TEST(Tls, MixingPlaintextAndTlsIsReported) {
    orrery::testing::TemporaryFolder folder;
    TestAuthority authority(folder.path());
    const auto files = authority.sign("server", "DNS:localhost,IP:127.0.0.1");
    auto for_server = tls_server({.certificate = files.certificate, .key = files.key});
    auto for_client = tls_client({.ca = authority.file()});
    CO_ASSERT_OK(for_server);
    HttpServer encrypted(loop.get_executor(), {.tls = *for_server, .head_timeout = 200ms}, says_who);
    HttpServer plain(loop.get_executor(), {}, says_who);
    CO_ASSERT_OK(encrypted.start());
    CO_ASSERT_OK(plain.start());
    HttpClient client(loop.get_executor(), {.tls = *for_client});
    const auto ctx = Context::background();
    auto to_plain = co_await client.send(ctx, {.url = https(plain)});
    CO_ASSERT(!to_plain.ok());
    EXPECT_EQ(to_plain.error().code, Code::unavailable);
    EXPECT_THAT(to_plain.error().remedy, HasSubstr("speaks TLS"));
    auto to_encrypted = co_await client.send(ctx, {.url = peers::url_of(encrypted)});
    EXPECT_FALSE(to_encrypted.ok());
    // Who never shakes hands is not waited for.
    auto silent = co_await peers::RawSocket::connect(encrypted.port());
    const auto nothing = co_await silent.read_to_end();
    EXPECT_EQ(nothing, "");
    EXPECT_FALSE(silent.timed_out());
    co_await client.stop();
    co_await encrypted.stop(1s);
    co_await plain.stop(1s);
}

CO_TEST(Tls, AStreamEndsWhenItsClientDisconnects) {
    orrery::testing::TemporaryFolder folder;
    TestAuthority authority(folder.path());
    const auto files = authority.sign("server", "DNS:localhost");
    auto for_server = tls_server({.certificate = files.certificate, .key = files.key});
    auto for_client = tls_client({.ca = authority.file()});
    CO_ASSERT_OK(for_server);
    Notifier never(loop.get_executor());
    HttpServer server(
        loop.get_executor(), {.tls = *for_server},
        peers::with(never, [](Context ctx, Request&, BodyReader&, ResponseWriter& out, Notifier& never_) -> Task<Unit> {
            CO_TRY(std::ignore, co_await out.begin(ctx, 200, {}));
            CO_TRY(std::ignore, co_await out.write(ctx, "x"));
            co_return co_await never_.wait(ctx.without_deadline());
        }));
    CO_ASSERT_OK(server.start());
    HttpClient client(loop.get_executor(), {.tls = *for_client});
    auto stream = co_await client.open(Context::background(), {.url = https(server)});
    CO_ASSERT_OK(stream);
    auto piece = co_await (*stream)->body().read_some(Context::background());
    CO_ASSERT_OK(piece);
    EXPECT_EQ(*piece, "x");
    *stream = nullptr;
    for (int tries = 0; tries < 200 && server.connections() > 0; ++tries) co_await peers::sleep_for(10ms);
    EXPECT_EQ(server.connections(), 0u);
    co_await server.stop(1s);
}

TEST(Tls, ErrorsNameTheFileAndTheCause) {
    orrery::testing::TemporaryFolder folder;
    TestAuthority authority(folder.path());
    const auto one = authority.sign("one", ""), two = authority.sign("two", "");
    std::ofstream(folder / "garbage.pem") << "not a certificate\n";
    const auto garbage = folder / "garbage.pem", missing = folder / "missing.pem";
    struct Case {
        TlsServerOptions options;
        std::string file, words;
    };
    const std::vector<Case> cases = {
        {{.certificate = missing, .key = one.key}, missing, "No such file"},
        {{.certificate = one.certificate, .key = missing}, missing, "No such file"},
        {{.certificate = folder.path(), .key = one.key}, folder.path(), "is a folder"},
        {{.certificate = garbage, .key = one.key}, garbage, "not usable"},
        {{.certificate = one.certificate, .key = garbage}, garbage, "not usable"},
        {{.certificate = one.certificate, .key = two.key}, two.key, "does not belong to the certificate"},
        {{.certificate = one.certificate, .key = one.key, .client_ca = garbage}, garbage, "not usable"},
        {{.certificate = one.certificate, .key = one.key, .client_ca = missing}, missing, "No such file"},
        {{.certificate = one.certificate, .key = one.key, .require_client_certificate = true}, "", "no authority"},
        {{.certificate = one.certificate}, "", "key"},
        {{.key = one.key}, "", "certificate"},
    };
    for (const auto& each : cases) {
        auto made = tls_server(each.options);
        ASSERT_FALSE(made.ok()) << each.words;
        EXPECT_EQ(made.error().code, Code::invalid);
        EXPECT_THAT(made.error().message, HasSubstr(each.file));
        EXPECT_THAT(made.error().message, HasSubstr(each.words));
    }
    EXPECT_FALSE(tls_client({.certificate = one.certificate}).ok());
    EXPECT_FALSE(tls_client({.ca = garbage}).ok());
    EXPECT_TRUE(tls_client({}).ok());
    EXPECT_TRUE(tls_server({.certificate = one.certificate, .key = one.key}).ok());
}

} // namespace orrery::net
