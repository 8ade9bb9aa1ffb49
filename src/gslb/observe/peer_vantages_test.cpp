#include "core/json_fields.h"
#include "core/test_fixture.h"
#include "core/text.h"
#include "gslb/observe/peer_vantages.h"
#include "store/memory_store.h"

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;

const Context peers_ctx = Context::make("server");

/// A server that probes, as its peers see it.
struct Looking {
    Looking(asio::io_context& loop, std::shared_ptr<store::MemoryStore::Shared> shared, std::string name)
        : store(loop.get_executor(), std::move(shared)),
          aggregator(loop.get_executor(), clock, {.name = name}, {}),
          peers(loop.get_executor(), store, clock, aggregator, {.server = name}),
          group(loop.get_executor()) {}
    void start() { group.spawn(peers.run(peers_ctx)); }
    asio::awaitable<void> run_until_idle(Duration time) {
        for (int round = 0; round < 10; ++round) {
            clock.advance(time / 10);
            for (int i = 0; i < 20; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        }
        std::ignore = co_await store.catch_up(peers_ctx);
    }
    json::object vantage(std::string_view name) const {
        for (const auto& one : aggregator.vantages())
            if (text_at(one.get_object(), "name") == name) return one.get_object();
        return {};
    }
    VirtualClock clock;
    store::MemoryStore store;
    health::HealthAggregator aggregator;
    PeerVantages peers;
    TaskGroup group;
};

} // namespace

CO_TEST(GslbPeers, ServersThatShareAStoreAreVantagesOfEachOther) {
    auto shared = std::make_shared<store::MemoryStore::Shared>();
    Looking a(loop, shared, "a");
    // A target that no vantage can probe, because no prober runs: it is reported as unknown after the wait.
    CO_ASSERT_OK(a.aggregator.set("m|web|192.0.2.1", {.probe = {{"kind", "tcp"}}, .address = "192.0.2.1", .port = 80}));
    a.start();
    co_await a.run_until_idle(10s);
    const auto sign = a.store.find("sys/vantages/a");
    CO_ASSERT(sign != nullptr);
    EXPECT_EQ(sign->value, R"({"trusted":true,"ready":false,"targets":1})");
    EXPECT_NE(sign->lease, 0);
    {
        Looking b(loop, shared, "b");
        b.start();
        co_await b.run_until_idle(10s);
        EXPECT_EQ(text_at(b.vantage("a"), "kind"), "server");
        EXPECT_FALSE(flag_at(b.vantage("a"), "ready"));
        EXPECT_TRUE(flag_at(b.vantage("b"), "trusted"));
        co_await a.run_until_idle(60s);
        EXPECT_FALSE(a.vantage("b").empty());
        co_await a.run_until_idle(5s);
        EXPECT_NE(a.store.find("sys/vantages/a/m|web|192.0.2.1"), nullptr);
        co_await b.run_until_idle(1s);
        EXPECT_TRUE(flag_at(b.vantage("a"), "ready"));
        a.aggregator.remove("m|web|192.0.2.1");
        co_await a.run_until_idle(10s);
        EXPECT_EQ(a.store.find("sys/vantages/a/m|web|192.0.2.1"), nullptr);
        // A lost lease is replaced, and all reports are sent again.
        CO_ASSERT_OK(co_await a.store.revoke(peers_ctx, a.store.find("sys/vantages/a")->lease));
        co_await b.run_until_idle(1s);
        EXPECT_TRUE(b.vantage("a").empty());
        co_await a.run_until_idle(10s);
        co_await b.run_until_idle(1s);
        EXPECT_TRUE(flag_at(b.vantage("a"), "ready"));
        co_await b.group.stop();
    }
    co_await a.run_until_idle(1s);
    EXPECT_TRUE(a.vantage("b").empty()) << "it took its sign of life back";
    co_await a.group.stop();
    EXPECT_EQ(a.store.find("sys/vantages/a"), nullptr);
}

} // namespace orrery::gslb
