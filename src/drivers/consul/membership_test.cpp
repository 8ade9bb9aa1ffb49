#include "core/test_fixture.h"
#include "drivers/consul/consul.h"
#include "net/http_server.h"

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

namespace orrery::drivers::membership_test {

using namespace std::chrono_literals;

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string instance(std::string_view node, std::string_view status, std::string_view tags = "[]") {
    return fmt::format(
        R"({{"Node":{{"Node":"{0}","Address":"10.0.0.1"}},"Service":{{"ID":"web-{0}","Service":"web","Address":"","Port":80,"Tags":{2}}},
        "Checks":[{{"Name":"up","Status":"{1}","Output":"words"}}]}})",
        node, status, tags);
}

/// A Consul whose answers the test sets, and which blocks like the real one.
struct FakeConsul {
    explicit FakeConsul(asio::any_io_executor executor)
        : changed(executor),
          server(executor, {.request_timeout = 20min},
                 [this](Context ctx, net::Request& request, net::BodyReader&, net::ResponseWriter& out) {
                     return serve(ctx, request, out);
                 }) {
        EXPECT_TRUE(server.start().ok());
    }
    Task<Unit> serve(Context ctx, net::Request& request, net::ResponseWriter& out) {
        ++asked;
        token = std::string(request.headers.get("X-Consul-Token"));
        const auto from = request.target.param("index");
        out.will_wait();
        while (from && std::stoi(*from) >= index && status == 200) {
            const auto woken = co_await changed.wait(ctx.without_deadline());
            if (!woken.ok()) co_return woken.error();
        }
        net::Headers headers{{"X-Consul-Index", std::to_string(index)}, {"X-Consul-KnownLeader", leader ? "true" : "false"}};
        if (filtered) headers.add("X-Consul-Results-Filtered-By-ACLs", "true");
        co_return co_await out.send(ctx, net::Response{status, std::move(headers), body});
    }
    void set(std::string now) {
        body = std::move(now);
        ++index;
        changed.notify_all();
    }
    Notifier changed;
    std::string body = "[]", token;
    int index = 5, status = 200, asked = 0;
    bool leader = true, filtered = false;
    net::HttpServer server;
};

struct Bench {
    explicit Bench(asio::any_io_executor executor) : fake(executor), client(executor, {}), group(executor) {
        ConsulOptions options;
        options.url = fmt::format("http://127.0.0.1:{}/", fake.server.port());
        options.token = "t0ken";
        options.first_backoff = options.max_backoff = 20ms;
        membership = std::move(*ConsulMembership::make(executor, client, real_clock(), options));
        group.spawn(membership->run(Context::make("test")));
        handle = membership->subscribe([this](const std::string& service) { notified.push_back(service); });
    }
    /// Waits for a real answer, briefly.
    asio::awaitable<std::string> until(std::string expected) {
        std::string seen;
        for (int i = 0; i < 1000; ++i) {
            seen = summary();
            if (seen == expected || (expected == "none" && seen.starts_with("unavailable"))) co_return expected;
            std::ignore = co_await real_clock().sleep(2ms);
        }
        co_return seen;
    }
    std::string summary(std::string_view tag = "") const {
        const auto members = membership->members("web", tag);
        if (!members.ok()) return members.error().text();
        std::string out;
        for (const auto& member : members->all) out += fmt::format("{}={} ", member.node, name_of(member.state));
        return out;
    }
    asio::awaitable<void> stop() {
        co_await group.stop();
        co_await client.stop();
        co_await fake.server.stop(0s);
    }
    FakeConsul fake;
    net::HttpClient client;
    TaskGroup group;
    std::unique_ptr<ConsulMembership> membership;
    std::vector<std::string> notified;
    std::shared_ptr<void> handle;
};

} // namespace

CO_TEST(ConsulMembership, FollowsChangesByBlockingQueries) {
    Bench bench(loop.get_executor());
    EXPECT_THAT(bench.summary(), HasSubstr("unavailable: Consul has not answered yet"));
    auto seen = co_await bench.until("");
    EXPECT_EQ(seen, ""); // the service is empty, and that is evidence
    EXPECT_EQ(bench.fake.token, "t0ken");
    bench.fake.set(fmt::format("[{},{}]", instance("b", "passing", R"(["real"])"), instance("a", "warning")));
    seen = co_await bench.until("a=usable b=passing ");
    EXPECT_EQ(seen, "a=usable b=passing ");
    EXPECT_EQ(bench.summary("real"), "b=passing ");
    bench.fake.set(fmt::format("[{}]", instance("b", "critical")));
    seen = co_await bench.until("b=registered ");
    EXPECT_EQ(seen, "b=registered ");
    EXPECT_THAT(bench.membership->members("web", "")->all[0].why, HasSubstr("\"up\" is critical: words"));
    EXPECT_LT(bench.fake.asked, 10);
    EXPECT_THAT(bench.notified, ::testing::Each("web"));
    co_await bench.stop();
}

CO_TEST(ConsulMembership, NoAnswerIsNeverAnEmptyService) {
    Bench bench(loop.get_executor());
    bench.fake.set(fmt::format("[{}]", instance("a", "passing")));
    auto seen = co_await bench.until("a=passing ");
    EXPECT_EQ(seen, "a=passing ");
    const auto spoil = [&](auto change) {
        change(bench.fake);
        bench.fake.set("[]");
        return bench.until("none");
    };
    seen = co_await spoil([](FakeConsul& fake) { fake.filtered = true; });
    EXPECT_EQ(seen, "none") << "an answer with something left out was believed";
    bench.fake.filtered = false;
    seen = co_await bench.until("");
    EXPECT_EQ(seen, "");
    seen = co_await spoil([](FakeConsul& fake) { fake.leader = false; });
    EXPECT_EQ(seen, "none");
    bench.fake.leader = true;
    seen = co_await bench.until("");
    EXPECT_EQ(seen, "");
    seen = co_await spoil([](FakeConsul& fake) { fake.status = 500; });
    EXPECT_EQ(seen, "none");
    bench.fake.status = 200;
    bench.fake.set("no json");
    seen = co_await bench.until("none");
    EXPECT_EQ(seen, "none");
    bench.fake.set(fmt::format("[{}]", instance("a", "passing")));
    seen = co_await bench.until("a=passing ");
    EXPECT_EQ(seen, "a=passing ");
    co_await bench.fake.server.stop(0s); // gone altogether
    seen = co_await bench.until("none");
    EXPECT_EQ(seen, "none");
    co_await bench.stop();
}

TEST(ReadHealth, LeavesOutInstancesWithoutAValidNodeNameOrAddress) {
    const auto at = [](std::string_view node, std::string_view address) {
        return fmt::format(
            R"({{"Node":{{"Node":"{}","Address":"10.0.0.1"}},"Service":{{"ID":"i","Service":"web","Address":"{}"}}}})", node,
            address);
    };
    catalog::InvalidMemberLog log;
    const auto read =
        read_health("[" + at("good", "10.0.0.2") + "," + at("x-${secret.a.b}", "10.0.0.3") + "," + at("n2", "a b") + "]", &log);
    ASSERT_TRUE(read.ok());
    ASSERT_EQ(read->all.size(), 1u);
    EXPECT_EQ(read->all.front().node, "good");
    EXPECT_EQ(read->invalid_count, 2u);
    EXPECT_THAT(read->invalid_text(),
                HasSubstr("2 instances are not members: its node name \"x-${secret.a.b}\" is not a valid host name"));
}

TEST(ReadHealth, RefusesAnswersThatAreNotLists) {
    for (const auto* bad : {"", "{}", "[1]", "[{}]", R"([{"Node":{"Node":"a"},"Service":{}}])",
                            R"([{"Node":{"Node":"a"},"Service":{"ID":"x"},"Checks":[7]}])"})
        EXPECT_FALSE(read_health(bad).ok()) << bad;
    EXPECT_THAT(read_health("[]")->all, IsEmpty());
}

} // namespace orrery::drivers::membership_test
