#include "core/testing.h"
#include "net/http.h"
#include "net/http_client.h"
#include "net/http_server.h"

#include <gmock/gmock.h>

namespace orrery::net {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

namespace {

Task<Unit> echo(Context ctx, Request& request, BodyReader& body, ResponseWriter& out) {
    CO_TRY(auto text, co_await read_all(ctx, body, 1 << 20));
    Response response;
    response.headers = {{"Content-Type", "text/plain"}};
    response.body = request.method + " " + request.target.path + " " + text;
    co_return co_await out.send(ctx, std::move(response));
}

Url url_of(const HttpServer& server, std::string target) { return Url{"http", "127.0.0.1", server.port(), std::move(target)}; }

} // namespace

CO_TEST(Http, ARequestReachesTheHandlerAndItsAnswerComesBack) {
    HttpServer server(loop.get_executor(), {}, echo);
    CO_ASSERT_OK(server.start());
    HttpClient client(loop.get_executor(), {});
    const auto ctx = Context::background();
    for (int round = 0; round < 3; ++round) {
        auto answer = co_await client.send(ctx, {.method = "POST", .url = url_of(server, "/v1/x"), .body = "hello"});
        CO_ASSERT_OK(answer);
        EXPECT_EQ(answer->status, 200);
        EXPECT_EQ(answer->body, "POST /v1/x hello");
        EXPECT_EQ(answer->headers.get("x-request-id"), ctx.id());
    }
    EXPECT_EQ(server.connections(), 1u);
    co_await client.stop();
    co_await server.stop(1s);
}

CO_TEST(Http, APeerThatIsNotThereIsNamed) {
    HttpClient client(loop.get_executor(), {});
    auto answer = co_await client.send(Context::background(), {.url = {"http", "127.0.0.1", 1, "/"}});
    CO_ASSERT(!answer.ok());
    EXPECT_EQ(answer.error().code, Code::unavailable);
    EXPECT_EQ(answer.error().message, "cannot connect to http://127.0.0.1:1: connection refused");
    EXPECT_NE(answer.error().remedy, "");
}

} // namespace orrery::net
