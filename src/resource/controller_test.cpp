#include "core/test_fixture.h"
#include "resource/controller.h"
#include "store/memory_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::resource {

using namespace std::chrono_literals;

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const Context tester = Context::make("tester");

/// Lets all that can run now run.
asio::awaitable<void> run_pending_work() {
    for (int i = 0; i < 50; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
}

/// A controller that records the resources it reconciles.
struct Watched {
    explicit Watched(asio::any_io_executor executor, Controller::Options options = {})
        : store(executor),
          leadership(executor, store, {.server = "me", .clock = &clock}),
          controller(
              store, leadership, clock, {"nodes/"},
              [this](Context, std::string key, store::Fence fence) { return reconcile(std::move(key), fence); }, options),
          group(executor) {}

    Task<Unit> reconcile(std::string key, store::Fence) {
        reconciled.push_back(key);
        EXPECT_TRUE(inside.insert(key).second) << key << " is looked at twice at once";
        co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        inside.erase(key);
        if (failing.contains(key)) co_return Error{Code::unavailable, "not now"};
        co_return Unit{};
    }
    asio::awaitable<void> start() {
        group.spawn(leadership.run(tester));
        group.spawn(controller.run(tester));
        co_await run_pending_work();
    }
    asio::awaitable<void> put(std::string key) {
        store::Transaction transaction;
        transaction.put(std::move(key), "x");
        auto written = co_await store.apply(tester, std::move(transaction));
        EXPECT_TRUE(written.ok());
    }
    std::vector<std::string> taken() { return std::exchange(reconciled, {}); }

    VirtualClock clock;
    store::MemoryStore store;
    store::Leadership leadership;
    std::set<std::string> failing, inside;
    std::vector<std::string> reconciled;
    Controller controller;
    TaskGroup group;
};

} // namespace

CO_TEST(Controller, ReconcilesEverythingAtTheStartAndThenChanges) {
    Watched watched(loop.get_executor());
    co_await watched.put("nodes/a");
    co_await watched.put("nodes/b");
    co_await watched.put("other/x");
    co_await watched.start();
    EXPECT_THAT(watched.taken(), UnorderedElementsAre("nodes/a", "nodes/b"));
    co_await watched.put("nodes/c");
    co_await watched.put("other/y");
    co_await run_pending_work();
    EXPECT_THAT(watched.taken(), ElementsAre("nodes/c"));
    store::Transaction removal;
    removal.remove("nodes/a");
    auto removed = co_await watched.store.apply(tester, removal);
    EXPECT_TRUE(removed.ok());
    co_await run_pending_work();
    EXPECT_THAT(watched.taken(), ElementsAre("nodes/a"));
    watched.controller.enqueue("nodes/b");
    co_await run_pending_work();
    EXPECT_THAT(watched.taken(), ElementsAre("nodes/b"));
    co_await watched.group.stop();
}

CO_TEST(Controller, ReconcilesOnceAfterManyChanges) {
    Watched watched(loop.get_executor());
    co_await watched.start();
    for (int i = 0; i < 20; ++i) {
        store::Transaction transaction;
        transaction.put("nodes/a", std::to_string(i));
        watched.controller.enqueue("nodes/a");
    }
    co_await run_pending_work();
    EXPECT_EQ(watched.taken().size(), 1U);
    co_await watched.group.stop();
}

CO_TEST(Controller, RetriesWithBackoffAfterAFailure) {
    Watched watched(loop.get_executor());
    watched.failing.insert("nodes/a");
    co_await watched.put("nodes/a");
    co_await watched.put("nodes/b");
    co_await watched.start();
    EXPECT_EQ(watched.taken().size(), 2U);
    EXPECT_EQ(watched.controller.failing(), 1U);
    std::vector<int> after;
    for (int second = 1; second <= 40; ++second) {
        watched.clock.advance(1s);
        co_await run_pending_work();
        for (const auto& key : watched.taken()) {
            EXPECT_EQ(key, "nodes/a");
            after.push_back(second);
        }
    }
    EXPECT_THAT(after, ElementsAre(1, 3, 7, 15, 31));
    watched.failing.clear();
    for (int second = 0; second < 32; ++second) { // in steps, so that the lease is renewed
        watched.clock.advance(1s);
        co_await run_pending_work();
    }
    EXPECT_EQ(watched.controller.failing(), 0U);
    EXPECT_EQ(watched.taken().size(), 1U);
    co_await watched.group.stop();
}

CO_TEST(Controller, ReconcilesEverythingPeriodically) {
    Watched watched(loop.get_executor());
    co_await watched.put("nodes/a");
    co_await watched.start();
    watched.taken();
    for (int minute = 0; minute < 25; ++minute)
        for (int step = 0; step < 20; ++step) {
            watched.clock.advance(3s);
            co_await run_pending_work();
        }
    EXPECT_EQ(watched.taken().size(), 2U);
    co_await watched.group.stop();
}

CO_TEST(Controller, ReconcilesOnlyAsLeaderAndStartsAgainWithEachTerm) {
    Watched watched(loop.get_executor());
    store::Transaction taken;
    taken.put("sys/leader/controllers", "another");
    auto other = co_await watched.store.apply(tester, taken);
    EXPECT_TRUE(other.ok());
    co_await watched.put("nodes/a");
    co_await watched.start();
    EXPECT_THAT(watched.taken(), IsEmpty());
    store::Transaction freed;
    freed.remove("sys/leader/controllers");
    auto removed = co_await watched.store.apply(tester, freed);
    EXPECT_TRUE(removed.ok());
    co_await run_pending_work();
    EXPECT_THAT(watched.taken(), ElementsAre("nodes/a"));
    // Deposed: the key goes, and another is quicker.
    removed = co_await watched.store.apply(tester, freed);
    EXPECT_TRUE(removed.ok());
    auto stolen = co_await watched.store.apply(tester, taken);
    EXPECT_TRUE(stolen.ok());
    co_await run_pending_work();
    co_await watched.put("nodes/b");
    co_await run_pending_work();
    EXPECT_THAT(watched.taken(), ::testing::Not(::testing::Contains("nodes/b")));
    removed = co_await watched.store.apply(tester, freed);
    EXPECT_TRUE(removed.ok());
    co_await run_pending_work();
    EXPECT_THAT(watched.taken(), ::testing::IsSupersetOf({"nodes/a", "nodes/b"}));
    co_await watched.group.stop();
}

CO_TEST(Controller, CanBeStoppedAtAnyTimeAndStartedAgain) {
    for (int instant = 0; instant < 30; ++instant) {
        Watched watched(loop.get_executor(), {.max_concurrent = 3});
        for (int i = 0; i < 10; ++i) co_await watched.put("nodes/" + std::to_string(i));
        watched.failing = {"nodes/3"};
        watched.group.spawn(watched.leadership.run(tester));
        {
            TaskGroup first(loop.get_executor());
            first.spawn(watched.controller.run(tester));
            for (int i = 0; i < instant; ++i) co_await asio::post(loop.get_executor(), asio::use_awaitable);
            co_await first.stop();
        }
        watched.inside.clear();
        watched.taken();
        watched.group.spawn(watched.controller.run(tester));
        co_await run_pending_work();
        EXPECT_EQ(watched.taken().size(), 10U) << instant;
        co_await watched.group.stop();
    }
}

} // namespace orrery::resource
