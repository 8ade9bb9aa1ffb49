// Two servers that share an etcd: one leads, and a stalled leader can do no harm.

#include "core/test_fixture.h"
#include "lab/etcd/etcd_cluster.h"
#include "store/etcd/etcd_store.h"
#include "store/freezable_store.h"
#include "store/leadership.h"

#include <gtest/gtest.h>

namespace orrery::store {

using namespace std::chrono_literals;
using orrery::testing::EtcdCluster;

namespace {

EtcdOptions options_of(const EtcdCluster& cluster) {
    EtcdOptions options;
    options.endpoints = cluster.endpoints();
    return options;
}

} // namespace

CO_TEST(EtcdLeadership, AStalledLeadersWriteIsRefusedAfterATakeover) {
    CO_NEEDS_ETCD();
    EtcdCluster cluster;
    auto up = cluster.start(1);
    CO_ASSERT_OK(up);
    auto ctx = Context::background();
    auto opened = co_await open_etcd(ctx, loop.get_executor(), options_of(cluster));
    CO_ASSERT_OK(opened);
    auto other = co_await open_etcd(ctx, loop.get_executor(), options_of(cluster));
    CO_ASSERT_OK(other);
    // The clock of the first does not advance and its writes fail: it neither renews nor campaigns.
    VirtualClock stalled;
    FreezableStore gate(loop.get_executor(), std::move(*opened));
    Leadership first(loop.get_executor(), gate, {.server = "a", .ttl = 2s, .clock = &stalled});
    Leadership second(loop.get_executor(), **other, {.server = "b", .ttl = 2s});
    TaskGroup group(loop.get_executor());
    group.spawn(first.run(ctx));
    auto fence = co_await first.wait_until_elected(ctx.with_timeout(10s));
    CO_ASSERT_OK(fence);
    auto frozen = co_await gate.refuse_writes(ctx, Error{Code::unavailable, "stalled"});
    CO_ASSERT_OK(frozen);
    group.spawn(second.run(ctx));
    auto next = co_await second.wait_until_elected(ctx.with_timeout(20s));
    CO_ASSERT_OK(next);
    Transaction late, good;
    auto refused = co_await gate.inner().apply(ctx, fence->guard(late.put("k", "from a")));
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::conflict);
    auto written = co_await (*other)->apply(ctx, next->guard(good.put("k", "from b")));
    CO_ASSERT_OK(written);
    std::ignore = co_await real_clock().sleep(5s);
    EXPECT_TRUE(second.leads()) << "it renews";
    EXPECT_EQ(first.leader(), "b");
    EXPECT_FALSE(first.leads());
    co_await group.stop();
    co_await gate.stop();
    co_await (*other)->stop();
}

CO_TEST(EtcdLeadership, OneLeaderAtATimeWhileServersStartAndStop) {
    CO_NEEDS_ETCD();
    EtcdCluster cluster;
    auto up = cluster.start(1);
    CO_ASSERT_OK(up);
    auto ctx = Context::background();
    auto store = co_await open_etcd(ctx, loop.get_executor(), options_of(cluster));
    CO_ASSERT_OK(store);
    std::vector<std::unique_ptr<Leadership>> contenders;
    std::vector<std::unique_ptr<TaskGroup>> groups;
    for (int i = 0; i < 4; ++i) {
        contenders.push_back(std::make_unique<Leadership>(loop.get_executor(), **store,
                                                          Leadership::Options{.server = std::to_string(i), .ttl = 5s}));
        groups.push_back(std::make_unique<TaskGroup>(loop.get_executor()));
        groups.back()->spawn(contenders.back()->run(ctx));
    }
    for (int round = 0; round < 4; ++round) {
        std::size_t leads = 4;
        for (int i = 0; i < 500 && leads == 4; ++i) {
            std::ignore = co_await real_clock().sleep(10ms);
            for (std::size_t c = 0; c < contenders.size(); ++c)
                if (contenders[c]->leads()) leads = c;
        }
        CO_ASSERT(leads < 4);
        int leaders = 0;
        for (const auto& contender : contenders) leaders += contender->leads();
        EXPECT_EQ(leaders, 1);
        co_await groups[leads]->stop();
    }
    for (const auto& contender : contenders) EXPECT_FALSE(contender->leads());
    EXPECT_EQ((*store)->count("sys/leader/"), 0U);
    co_await (*store)->stop();
}

} // namespace orrery::store
