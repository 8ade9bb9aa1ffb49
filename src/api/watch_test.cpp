#include "api/server_fixture.h"

#include <gmock/gmock.h>

namespace orrery::api::testing {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

/// Reads frames off a stream: "created n1".
class Frames {
public:
    explicit Frames(std::unique_ptr<net::ClientStream> stream) : stream_(std::move(stream)) {}

    /// The next frame that is neither a heart-beat nor the greeting.
    asio::awaitable<std::string> next() {
        for (;;) {
            const auto end = text_.find("\n\n");
            if (end == std::string::npos) {
                auto more = co_await stream_->body().read_some(Context::background().with_timeout(std::chrono::seconds(10)));
                if (!more.ok() || more->empty()) co_return "(end)";
                text_ += *more;
                continue;
            }
            const auto frame = text_.substr(0, end);
            text_.erase(0, end + 2);
            if (frame.find("heartbeat") != std::string::npos) ++heartbeats;
            const auto event = frame.find("event: ");
            if (event == std::string::npos) continue;
            const auto kind = frame.substr(event + 7, frame.find('\n', event) - event - 7);
            if (const auto id = frame.find("id: "); id != std::string::npos)
                last_id = frame.substr(id + 4, frame.find('\n', id) - id - 4);
            if (kind == "started") continue;
            if (kind == "error") co_return frame;
            const auto data = json::parse(frame.substr(frame.find("data: ") + 6));
            co_return fmt::format("{} {}", kind, std::string_view(data.at("object").at("name").as_string()));
        }
    }
    std::string last_id;
    int heartbeats = 0;

private:
    std::unique_ptr<net::ClientStream> stream_;
    std::string text_;
};

asio::awaitable<std::unique_ptr<Frames>> open_frames(ServerFixture& server, std::string target, net::Headers headers = {}) {
    auto request = server.request("GET", target, {}, server.admin_token);
    for (const auto& [name, value] : headers) request.headers.set(name, value);
    auto stream = co_await server.client->open(Context::background(), std::move(request));
    if (!stream.ok()) {
        ADD_FAILURE() << stream.error().text();
        co_return nullptr;
    }
    EXPECT_EQ((*stream)->status(), 200);
    co_return std::make_unique<Frames>(std::move(*stream));
}

asio::awaitable<void> put_node(ServerFixture& server, std::string name, std::string zone) {
    auto made = co_await server.put("/v1/nodes/" + name,
                                    fmt::format(R"({{"labels":{{"zone":"{}"}},"spec":{{"address":"10.0.0.1"}}}})", zone));
    EXPECT_LT(made.status, 300) << made.text;
}

} // namespace

CO_SERVER_TEST(Watch, SendsChangesInOrderAndResumesWhereItStopped) {
    const auto from = server.store->revision();
    co_await put_node(server, "n1", "a");
    auto frames = co_await open_frames(server, fmt::format("/v1/nodes?watch={}", from));
    CO_ASSERT(frames != nullptr);
    std::vector<std::string> seen;
    seen.push_back(co_await frames->next());
    co_await put_node(server, "n2", "a");
    co_await put_node(server, "n1", "b");
    seen.push_back(co_await frames->next());
    seen.push_back(co_await frames->next());
    EXPECT_THAT(seen, ElementsAre("created n1", "created n2", "updated n1"));
    const auto last = frames->last_id;
    frames.reset();
    std::ignore = co_await server.call("DELETE", "/v1/nodes/n1", {}, server.admin_token);
    auto resumed = co_await open_frames(server, "/v1/nodes?watch=now", {{"Last-Event-ID", last}});
    CO_ASSERT(resumed != nullptr);
    EXPECT_EQ(co_await resumed->next(), "removed n1");
}

CO_SERVER_TEST(Watch, AResourceThatLeavesTheSelectionIsReportedAsRemoved) {
    co_await put_node(server, "n1", "a");
    auto frames = co_await open_frames(server, "/v1/nodes?watch=now&labels=zone%3Da");
    CO_ASSERT(frames != nullptr);
    co_await put_node(server, "n2", "b");
    co_await put_node(server, "n1", "b");
    co_await put_node(server, "n1", "a");
    std::vector<std::string> seen;
    seen.push_back(co_await frames->next());
    seen.push_back(co_await frames->next());
    EXPECT_THAT(seen, ElementsAre("removed n1", "created n1"));
}

CO_SERVER_TEST(Watch, ASingleResourceCanBeWatched) {
    auto frames = co_await open_frames(server, "/v1/nodes/n2?watch=now");
    // No resource exists yet, and the caller may not read the kind: the route refuses the watch.
    CO_ASSERT(frames != nullptr);
    co_await put_node(server, "n1", "a");
    co_await put_node(server, "n2", "a");
    EXPECT_EQ(co_await frames->next(), "created n2");
}

CO_SERVER_TEST(Watch, ARevisionThatIsNotKeptIsRefused) {
    auto future = co_await server.get("/v1/nodes?watch=999999");
    EXPECT_EQ(future.status, 410) << future.text;
    auto other = co_await server.get("/v1/nodes?watch=1-0123456789abcdef");
    EXPECT_EQ(other.status, 410);
    auto nonsense = co_await server.get("/v1/nodes?watch=yesterday");
    EXPECT_EQ(nonsense.status, 400);
    for (int i = 0; i < 3; ++i) co_await put_node(server, "n1", std::to_string(i));
    const auto now = server.store->revision();
    auto compacted = co_await server.store->compact(Context::background(), now - 1);
    CO_ASSERT_OK(compacted);
    auto old = co_await server.get(fmt::format("/v1/nodes?watch={}", now - 2));
    EXPECT_EQ(old.status, 410);
    EXPECT_THAT(old.text, HasSubstr("list again"));
}

CO_SERVER_TEST(Watch, AnExpiredLoginEndsItsStreams) {
    const auto token = co_await server.token_for("vera", "viewer");
    auto frames = co_await open_frames(server, "/v1/nodes?watch=now", {{"Authorization", "Bearer " + token}});
    CO_ASSERT(frames != nullptr);
    co_await put_node(server, "n1", "a");
    EXPECT_EQ(co_await frames->next(), "created n1");
    auto revoked = co_await server.call("DELETE", "/v1/tokens/vera-token", {}, server.admin_token);
    EXPECT_EQ(revoked.status, 200);
    server.clock.advance(std::chrono::seconds(1));
    const auto last = co_await frames->next();
    EXPECT_THAT(last, HasSubstr("has ended"));
    EXPECT_EQ(co_await frames->next(), "(end)");
}

CO_SERVER_TEST(Watch, ManyLargeChangesArriveCompletely) {
    const auto from = server.store->revision();
    for (int i = 0; i < 300; ++i) co_await put_node(server, fmt::format("n{}", i), std::string(250, 'x'));
    auto frames = co_await open_frames(server, fmt::format("/v1/nodes?watch={}", from));
    CO_ASSERT(frames != nullptr);
    for (int i = 0; i < 300; ++i) {
        const auto seen = co_await frames->next();
        EXPECT_EQ(seen, fmt::format("created n{}", i));
    }
}

CO_SERVER_TEST(Watch, AQuietStreamHasHeartBeats) {
    auto frames = co_await open_frames(server, "/v1/nodes?watch=now");
    CO_ASSERT(frames != nullptr);
    std::ignore = co_await real_clock().sleep(std::chrono::milliseconds(180));
    co_await put_node(server, "n1", "a");
    EXPECT_EQ(co_await frames->next(), "created n1");
    EXPECT_GE(frames->heartbeats, 1);
}

} // namespace orrery::api::testing
