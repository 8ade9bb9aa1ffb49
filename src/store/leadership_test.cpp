#include "core/test_fixture.h"
#include "store/freezable_store.h"
#include "store/leadership.h"
#include "store/sqlite/sqlite_store.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace orrery::store {

using namespace std::chrono_literals;
using orrery::testing::TemporaryFolder;

namespace {

const Context leadership_ctx = Context::background();

Task<std::unique_ptr<Store>> open_with_clock(asio::io_context& loop, const TemporaryFolder& folder, Clock& clock) {
    SqliteOptions options;
    options.path = folder / "store.db";
    options.clock = &clock;
    return open_sqlite(leadership_ctx, loop.get_executor(), std::move(options));
}

Leadership::Options named(std::string server, Clock& clock) {
    return {.role = "controllers", .server = std::move(server), .ttl = 10s, .clock = &clock};
}

/// Runs the loop for some real milliseconds: the store has its own thread.
asio::awaitable<void> let_run(VirtualClock& clock, Duration time, std::function<bool()> until) {
    for (const auto step = time / 20; time > 0s && !until(); time -= step) {
        clock.advance(step);
        for (int i = 0; i < 5 && !until(); ++i) std::ignore = co_await real_clock().sleep(1ms);
    }
}

} // namespace

CO_TEST(Leadership, ASingleServerIsElectedImmediatelyAndStaysLeader) {
    TemporaryFolder folder;
    VirtualClock clock;
    auto store = co_await open_with_clock(loop, folder, clock);
    CO_ASSERT_OK(store);
    Leadership leadership(loop.get_executor(), **store, named("a", clock));
    TaskGroup group(loop.get_executor());
    EXPECT_FALSE(leadership.leads());
    EXPECT_EQ(leadership.leader(), "");
    group.spawn(leadership.run(leadership_ctx));
    auto fence = co_await leadership.wait_until_elected(leadership_ctx.with_timeout(10s));
    CO_ASSERT_OK(fence);
    EXPECT_EQ(leadership.leader(), "a");
    const auto created = (*store)->find("sys/leader/controllers")->created;
    for (int i = 0; i < 10; ++i) {
        co_await let_run(clock, 5s, [] { return false; });
        EXPECT_TRUE(leadership.leads());
    }
    EXPECT_EQ((*store)->find("sys/leader/controllers")->created, created);
    Transaction write;
    auto written = co_await (*store)->apply(leadership_ctx, fence->guard(write.put("k", "v")));
    CO_ASSERT_OK(written);
    co_await group.stop();
    EXPECT_FALSE(leadership.leads());
    EXPECT_EQ((*store)->find("sys/leader/controllers"), nullptr) << "the lease is revoked";
    co_await (*store)->stop();
}

CO_TEST(Leadership, AStalledLeadersWriteIsRefusedAfterATakeover) {
    TemporaryFolder folder;
    VirtualClock time, stalled;
    auto opened = co_await open_with_clock(loop, folder, time);
    CO_ASSERT_OK(opened);
    // The first server is stalled: its clock does not advance and only its fence protects the store.
    FreezableStore gate(loop.get_executor(), std::move(*opened));
    Store& store = gate.inner();
    Leadership first(loop.get_executor(), gate, named("a", stalled)), second(loop.get_executor(), store, named("b", time));
    TaskGroup group(loop.get_executor());
    group.spawn(first.run(leadership_ctx));
    auto fence = co_await first.wait_until_elected(leadership_ctx.with_timeout(10s));
    CO_ASSERT_OK(fence);
    auto frozen = co_await gate.refuse_writes(leadership_ctx, Error{Code::unavailable, "stalled"});
    CO_ASSERT_OK(frozen);
    group.spawn(second.run(leadership_ctx));
    co_await let_run(time, 30s, [&] { return second.leads(); });
    CO_ASSERT(second.leads());
    EXPECT_EQ(first.leader(), "b");
    Transaction late, good;
    auto refused = co_await store.apply(leadership_ctx, fence->guard(late.put("k", "from a")));
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::conflict);
    auto written = co_await store.apply(leadership_ctx, second.fence()->guard(good.put("k", "from b")));
    CO_ASSERT_OK(written);
    EXPECT_EQ(store.find("k")->value, "from b");
    // The copy of the first server shows another leader, although its lease is valid by its own clock.
    auto over = co_await first.wait_until_deposed(leadership_ctx.with_timeout(10s));
    CO_ASSERT_OK(over);
    co_await group.stop();
    co_await gate.stop();
}

CO_TEST(Leadership, ALeaderStepsDownBeforeItsLeaseCanExpire) {
    TemporaryFolder folder;
    VirtualClock store_time, own_time;
    auto store = co_await open_with_clock(loop, folder, store_time);
    CO_ASSERT_OK(store);
    Leadership leadership(loop.get_executor(), **store, named("a", own_time));
    TaskGroup group(loop.get_executor());
    group.spawn(leadership.run(leadership_ctx));
    auto fence = co_await leadership.wait_until_elected(leadership_ctx.with_timeout(10s));
    CO_ASSERT_OK(fence);
    own_time.advance(7s);
    EXPECT_TRUE(leadership.leads());
    own_time.advance(2s); // nothing ran in between, as in a process that was stopped
    EXPECT_FALSE(leadership.leads());
    EXPECT_FALSE(leadership.fence().has_value());
    // Its key still exists: it renews the lease and continues with the same fence.
    co_await let_run(own_time, 5s, [&] { return leadership.leads(); });
    EXPECT_TRUE(leadership.leads());
    co_await group.stop();
    co_await (*store)->stop();
}

CO_TEST(Leadership, AResignationHandsOverWithoutWaitingForTheLease) {
    TemporaryFolder folder;
    VirtualClock clock;
    auto store = co_await open_with_clock(loop, folder, clock);
    CO_ASSERT_OK(store);
    Leadership first(loop.get_executor(), **store, named("a", clock)), second(loop.get_executor(), **store, named("b", clock));
    TaskGroup firsts(loop.get_executor()), seconds(loop.get_executor());
    firsts.spawn(first.run(leadership_ctx));
    auto won = co_await first.wait_until_elected(leadership_ctx.with_timeout(10s));
    CO_ASSERT_OK(won);
    seconds.spawn(second.run(leadership_ctx));
    co_await firsts.stop();
    auto next = co_await second.wait_until_elected(leadership_ctx.with_timeout(10s));
    CO_ASSERT_OK(next);
    EXPECT_EQ(first.leader(), "b");
    co_await seconds.stop();
    co_await (*store)->stop();
}

CO_TEST(Leadership, AnExclusiveServerDoesNotWaitForTheLeaseOfAKilledProcess) {
    TemporaryFolder folder;
    VirtualClock clock;
    auto store = co_await open_with_clock(loop, folder, clock);
    CO_ASSERT_OK(store);
    // A killed server leaves its key and its lease.
    auto lease = co_await (*store)->grant(leadership_ctx, 10s);
    CO_ASSERT_OK(lease);
    Transaction left;
    left.put("sys/leader/controllers", "killed", *lease);
    CO_ASSERT_OK(co_await (*store)->apply(leadership_ctx, std::move(left)));
    auto options = named("next", clock);
    options.exclusive = true;
    Leadership leadership(loop.get_executor(), **store, std::move(options));
    TaskGroup group(loop.get_executor());
    group.spawn(leadership.run(leadership_ctx));
    for (int i = 0; i < 500 && !leadership.leads(); ++i) std::ignore = co_await real_clock().sleep(1ms);
    EXPECT_TRUE(leadership.leads()); // and no time has passed
    co_await group.stop();
    co_await (*store)->stop();
}

CO_TEST(Leadership, AServerThatYieldsIsElectedAgainOnlyIfNoOtherIs) {
    TemporaryFolder folder;
    VirtualClock clock;
    auto store = co_await open_with_clock(loop, folder, clock);
    CO_ASSERT_OK(store);
    Leadership first(loop.get_executor(), **store, named("a", clock)), second(loop.get_executor(), **store, named("b", clock));
    TaskGroup group(loop.get_executor()), other(loop.get_executor());
    group.spawn(first.run(leadership_ctx));
    CO_ASSERT_OK(co_await first.wait_until_elected(leadership_ctx.with_timeout(10s)));
    other.spawn(second.run(leadership_ctx));
    co_await let_run(clock, 5s, [] { return false; });
    EXPECT_TRUE(first.leads());

    first.yield("its component jobs failed");
    co_await let_run(clock, 5s, [&] { return second.leads(); });
    EXPECT_TRUE(second.leads());
    EXPECT_FALSE(first.leads());

    co_await other.stop(); // it gives its lease back: no server leads
    co_await let_run(clock, 15s, [&] { return first.leads(); });
    EXPECT_FALSE(first.leads()) << "another server may come";
    co_await let_run(clock, 20s, [&] { return first.leads(); });
    EXPECT_TRUE(first.leads()) << "none came";
    co_await group.stop();
    co_await (*store)->stop();
}

CO_TEST(Leadership, AFailureToBeginATermEndsItInOrder) {
    TemporaryFolder folder;
    VirtualClock clock;
    auto store = co_await open_with_clock(loop, folder, clock);
    CO_ASSERT_OK(store);
    Leadership leadership(loop.get_executor(), **store, named("a", clock));
    TaskGroup group(loop.get_executor());
    group.spawn(leadership.run(leadership_ctx));
    bool ended = false;
    std::string message;
    const auto end = [&ended]() -> asio::awaitable<void> { // NOLINT: each_term keeps it for as long as it lasts
        ended = true;
        co_return;
    };
    try {
        co_await leadership.for_each_term(
            leadership_ctx, [](TaskGroup&, const Fence&) { throw std::out_of_range("a bad record"); }, end);
    } catch (const std::out_of_range& failure) {
        message = failure.what();
    }
    EXPECT_EQ(message, "a bad record");
    EXPECT_TRUE(ended);
    co_await group.stop();
    co_await (*store)->stop();
}

} // namespace orrery::store
