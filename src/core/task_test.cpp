#include "core/id_order.h"
#include "core/task.h"
#include "core/test_fixture.h"

#include <boost/asio/this_coro.hpp>

#include <thread>
#include <tuple>

namespace orrery {

using namespace std::chrono_literals;

namespace {

asio::awaitable<void> sleep_then_count(Duration time, int& ended) {
    std::ignore = co_await real_clock().sleep(time);
    ++ended;
}

asio::awaitable<void> wait_for(Notifier& notifier, Context ctx, std::vector<Code>& codes, int& told) {
    auto result = co_await notifier.wait(ctx);
    if (result.ok())
        ++told;
    else
        codes.push_back(result.error().code);
}

/// As those do that run until they are cancelled.
asio::awaitable<void> wait_for_ever(Notifier& notifier) {
    co_await asio::this_coro::throw_if_cancelled(false);
    while ((co_await notifier.wait(Context::background())).ok()) {
    }
}

asio::awaitable<void> tick_for_ever(Clock& clock) {
    co_await asio::this_coro::throw_if_cancelled(false);
    while ((co_await clock.sleep(1s)).ok()) {
    }
}

Task<int> answer_after(Duration time) {
    CO_TRY(std::ignore, co_await real_clock().sleep(time));
    co_return 42;
}

} // namespace

CO_TEST(TaskGroup, StopCancelsAndWaits) {
    TaskGroup group(loop.get_executor());
    int ended = 0;
    for (int i = 0; i < 3; ++i) group.spawn(sleep_then_count(1h, ended));
    std::ignore = co_await real_clock().sleep(1ms);
    EXPECT_EQ(group.size(), 3U);
    co_await group.stop();
    EXPECT_EQ(ended, 3);
    group.spawn(sleep_then_count(0s, ended));
    EXPECT_EQ(group.size(), 0U);
}

CO_TEST(TaskGroup, StopsATaskThatIsWokenAtTheSameTime) {
    Notifier notifier(loop.get_executor());
    VirtualClock clock;
    TaskGroup group(loop.get_executor());
    group.spawn(wait_for_ever(notifier));
    group.spawn(tick_for_ever(clock));
    std::ignore = co_await real_clock().sleep(1ms);
    notifier.notify_all();
    clock.advance(1s);
    TaskGroup stopping(loop.get_executor());
    stopping.spawn(group.stop());
    for (int i = 0; i < 1000 && group.size() > 0; ++i) std::ignore = co_await real_clock().sleep(1ms);
    EXPECT_EQ(group.size(), 0U);
    co_await stopping.join();
}

CO_TEST(Notifier, WakesAllAndHonoursDeadlineAndCancellation) {
    Notifier notifier(loop.get_executor());
    TaskGroup group(loop.get_executor());
    std::vector<Code> codes;
    int told = 0;
    auto ctx = Context::background();
    group.spawn(wait_for(notifier, ctx, codes, told));
    group.spawn(wait_for(notifier, ctx, codes, told));
    std::ignore = co_await real_clock().sleep(1ms);
    notifier.notify_all();
    co_await group.join();
    EXPECT_EQ(told, 2);
    group.spawn(wait_for(notifier, ctx.with_timeout(1ms), codes, told));
    co_await group.join();
    group.spawn(wait_for(notifier, ctx, codes, told));
    std::ignore = co_await real_clock().sleep(1ms);
    co_await group.stop();
    EXPECT_EQ(codes, (std::vector<Code>{Code::timeout, Code::cancelled}));
}

CO_TEST(Blocking, RunsOnThePoolAndResumesOnTheLoop) {
    Pool pool(1);
    const auto here = std::this_thread::get_id();
    auto there = co_await blocking(pool, []() -> Result<std::thread::id> { return std::this_thread::get_id(); });
    EXPECT_EQ(std::this_thread::get_id(), here);
    EXPECT_NE(*there, here);
}

CO_TEST(WithinDeadline, ReturnsTheResultOrTimeout) {
    auto ctx = Context::background();
    auto quick = co_await within_deadline(ctx.with_timeout(1h), answer_after(1ms));
    auto late = co_await within_deadline(ctx.with_timeout(1ms), answer_after(1h));
    auto unbound = co_await within_deadline(ctx, answer_after(1ms));
    EXPECT_EQ(*quick, 42);
    EXPECT_EQ(late.error().code, Code::timeout);
    EXPECT_EQ(*unbound, 42);
}

TEST(Context, ADeadlineCanOnlyBecomeEarlier) {
    auto ctx = Context::make("alice", "abc").with_timeout(1h);
    EXPECT_EQ(ctx.with_timeout(2h).deadline(), ctx.deadline());
    EXPECT_LT(*ctx.with_timeout(1min).deadline(), *ctx.deadline());
    EXPECT_EQ(ctx.with_actor("bob").id(), "abc");
}

TEST(Ids, TimeOrderedIdsKeepTheirOrderWhenTheClockStopsOrStepsBack) {
    const WallTime now = *from_rfc3339("2026-11-16T00:00:00Z");
    auto first = time_ordered_id(now);
    auto second = time_ordered_id(now);
    auto third = time_ordered_id(now - 10s);
    EXPECT_LT(first, second);
    EXPECT_LT(second, third);
    EXPECT_LT(time_ordered_bound(now), first);
    EXPECT_LT(third, time_ordered_bound(now + 1ms));
}

TEST(Ids, TimeOrderedIdsContinueAfterThoseOfAnEarlierProcessWhoseClockWasAhead) {
    const WallTime now = *from_rfc3339("2026-11-16T00:00:00Z");
    const auto ahead = time_ordered_bound(now + 1h);
    EXPECT_LT(time_ordered_id(now), ahead);
    continue_ids_after("not an id");
    continue_ids_after(std::string(26, 'u')); // no digit of an id
    EXPECT_LT(time_ordered_id(now), ahead);
    continue_ids_after(ahead);
    const auto next = time_ordered_id(now);
    EXPECT_GT(next, ahead);
    continue_ids_after(time_ordered_bound(now));
    EXPECT_GT(time_ordered_id(now), next) << "an earlier id changes nothing";
}

} // namespace orrery
