#include "core/test_fixture.h"
#include "core/text.h"
#include "drivers/http/http.h"
#include "net/http_server.h"

#include <gmock/gmock.h>

#include <optional>

namespace orrery::drivers::http_executor_test {

namespace {
using namespace std::chrono_literals;
using jobs::ErrorClass;
using jobs::Outcome;
using ::testing::HasSubstr;

boost::json::value yaml(const std::string& text) { return parse_yaml(text)->front().value; }
Context ctx() { return Context::background().with_timeout(30s); }

class HttpOutput final : public jobs::Output {
public:
    void write(jobs::Stream, std::uint64_t, std::string_view bytes) override { text += bytes; }
    void step(jobs::Step) override {}
    std::string text;
};

jobs::Attempt call(std::string id, const std::string& body) {
    jobs::Attempt attempt;
    attempt.id = std::move(id);
    attempt.body = yaml(body);
    return attempt;
}

/// Answers what it was asked, as JSON; /no with 409, /hang not at all.
Task<Unit> echo(Context asked, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
    CO_TRY(auto text, co_await net::read_all(asked, body, 1 << 20));
    if (request.target.path == "/hang") {
        CO_TRY(std::ignore, co_await real_clock().sleep(60s));
    }
    boost::json::object answer{{"method", request.method},
                               {"body", text},
                               {"key", request.headers.get("Idempotency-Key")},
                               {"token", request.headers.get("X-Token")},
                               {"server", {{"id", 7}}}};
    const auto content = request.target.path == "/text" ? std::string("plain") : to_json_text(answer);
    co_return co_await out.send(
        asked, net::Response{request.target.path == "/no" ? 409 : 200, {{"Content-Type", "application/json"}}, content});
}
} // namespace

CO_TEST(HttpExecutor, AValueInAUrlIsOneSegmentOrParameter) {
    std::vector<std::string> asked;
    net::HttpServer server(loop.get_executor(), {.address = "127.0.0.1", .port = 0},
                           [&](Context from, net::Request& request, net::BodyReader&, net::ResponseWriter& out) -> Task<Unit> {
                               asked.push_back(request.target.path + " " + request.target.param("c").value_or("") + " " +
                                               std::to_string(request.target.query.size()));
                               co_return co_await out.send(from, net::Response{200, {}, "{}"});
                           });
    CO_ASSERT_OK(server.start());
    net::HttpClient client(loop.get_executor(), {});
    auto executor = http_executor(loop.get_executor(), client);
    const auto at = "127.0.0.1:" + std::to_string(server.port());
    HttpOutput output;
    // As the engine does it: values are separated, then bound.
    const auto bound = [&](const std::string& url, boost::json::value value) {
        auto separated = executor->separate_values(boost::json::object{{"url", url}});
        EXPECT_TRUE(separated.ok());
        auto attempt = call("u1", "{}");
        attempt.body = std::move(separated->body);
        auto& body = attempt.body.get_object();
        if (auto* parts = body.if_contains("orrery_url_parts"))
            for (auto& part : parts->get_array())
                if (part.is_array()) part.get_array().front() = value;
        if (std::string_view(body["url"].get_string()).starts_with("${")) body["url"] = "http://" + at;
        return attempt;
    };
    auto path = co_await executor->start(ctx(), bound("http://" + at + "/a/${with.x}/b?c=${with.x}&d=1", "x?y=1&z/#%2f é"), output);
    auto list = co_await executor->start(ctx(), bound("${with.base}/l/${with.x}", boost::json::array{"a", "b/c", 3}), output);
    auto plain = co_await executor->start(ctx(), bound("http://" + at + "/plain?x=$y", {}), output);
    auto dots = co_await executor->start(ctx(), bound("http://" + at + "/a/${with.x}/b", ".."), output);
    co_await client.stop();
    co_await server.stop(1s);
    EXPECT_TRUE(path.ok() && list.ok() && plain.ok());
    EXPECT_FALSE(dots.ok());
    EXPECT_THAT(asked, ::testing::ElementsAre("/a/x?y=1&z/#%2f é/b x?y=1&z/#%2f é 2", "/l/a,b/c,3  0", "/plain  1"));
}

CO_TEST(HttpExecutor, SendsRequestsAndPublishesValues) {
    net::HttpServer server(loop.get_executor(), {.address = "127.0.0.1", .port = 0}, echo);
    CO_ASSERT_OK(server.start());
    net::HttpClient client(loop.get_executor(), {});
    auto executor = http_executor(loop.get_executor(), client);
    const auto at = "http://127.0.0.1:" + std::to_string(server.port());
    HttpOutput output;
    auto post = call("h1", "{url: " + at +
                               "/x, headers: {X-Token: \"canary-4711\"}, json: {a: 1}, values: {id: /server/id, sent: /body, "
                               "token: /token, key: /key}}");
    post.secrets = {{"a.b", "canary-4711"}};
    auto posted = co_await executor->start(ctx(), post, output);
    auto refused = co_await executor->start(ctx(), call("h2", "{url: " + at + "/no}"), output);
    auto expected = co_await executor->start(ctx(), call("h3", "{url: " + at + "/no, expect: [409]}"), output);
    auto missing = co_await executor->start(ctx(), call("h4", "{url: " + at + "/x, values: {a: /none}}"), output);
    auto no_json = co_await executor->start(ctx(), call("h5", "{url: " + at + "/text, values: {a: /none}}"), output);
    auto late = co_await executor->start(ctx(), call("h6", "{url: " + at + "/hang, timeout: 1s}"), output);
    auto nobody = co_await executor->start(ctx(), call("h7", "{url: \"http://127.0.0.1:1/\"}"), output);
    std::optional<Result<Outcome>> cancelled;
    const auto hanging = call("h8", "{url: " + at + "/hang}");
    asio::co_spawn(loop, executor->start(ctx(), hanging, output),
                   [&](std::exception_ptr, Result<Outcome> outcome) { cancelled = std::move(outcome); });
    while (!cancelled) {
        std::ignore = co_await executor->cancel(ctx(), call("h8", "{}"));
        std::ignore = co_await real_clock().sleep(5ms);
    }
    auto get_again = co_await executor->reattach(ctx(), call("h9", "{url: " + at + "/x}"), {}, output);
    auto post_again = co_await executor->reattach(ctx(), call("h10", "{url: " + at + "/x, body: x}"), {}, output);
    co_await client.stop();
    co_await server.stop(1s);
    CO_ASSERT_OK(posted);
    EXPECT_EQ(to_json_text(posted->values), R"({"id":7,"sent":"{\"a\":1}","token":"canary-4711","key":"h1"})");
    CO_ASSERT_OK(refused);
    EXPECT_EQ(refused->error, ErrorClass::failed);
    EXPECT_THAT(refused->message, HasSubstr("409"));
    CO_ASSERT_OK(expected);
    EXPECT_EQ(expected->ended, Outcome::Ended::succeeded);
    EXPECT_THAT(missing->message, HasSubstr("nothing at /none"));
    EXPECT_THAT(no_json->message, HasSubstr("not JSON"));
    EXPECT_EQ(late->error, ErrorClass::timeout);
    EXPECT_EQ(nobody->error, ErrorClass::connect);
    EXPECT_EQ((*cancelled)->error, ErrorClass::cancelled);
    EXPECT_EQ(get_again->state, jobs::Reattached::State::not_started);
    EXPECT_EQ(post_again->state, jobs::Reattached::State::unknown);
}

CO_TEST(HttpExecutor, ErrorsNameTheField) {
    net::HttpClient client(loop.get_executor(), {});
    auto executor = http_executor(loop.get_executor(), client);
    EXPECT_EQ(executor->check(yaml("{url: ftp://x}")).error().fields.front().path, "url");
    EXPECT_EQ(executor->check(yaml("{url: http://x, json: {}, body: y}")).error().fields.front().path, "body");
    EXPECT_EQ(executor->check(yaml("{url: http://x, values: {a: b}}")).error().fields.front().path, "values.a");
    EXPECT_EQ(executor->check(yaml("{}")).error().fields.front().path, "url");
    EXPECT_TRUE(executor->check(yaml("{url: \"${task.a.values.url}\", method: DELETE}")).ok());
    co_await client.stop();
}

} // namespace orrery::drivers::http_executor_test
