#include "core/testing.h"
#include "lab/etcd/etcd_cluster.h"
#include "store/etcd/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::store {

using namespace std::chrono_literals;
using orrery::testing::EtcdCluster;

#define NEED_ETCD                                                                                                                  \
    if (!EtcdCluster::installed()) {                                                                                               \
        GTEST_SKIP() << "etcd-server is not installed";                                                                            \
    }

namespace {

EtcdOptions options_for(const EtcdCluster& cluster) {
    EtcdOptions options;
    options.endpoints = cluster.endpoints();
    return options;
}

asio::awaitable<void> write_many(Store& store, std::string name, int count, int& written) {
    for (int i = 0; i < count; ++i) {
        Transaction transaction;
        transaction.put(fmt::format("load/{}/{}", name, i % 50), std::string(256, 'x'));
        auto done = co_await store.apply(Context::background(), std::move(transaction));
        if (!done.ok()) {
            ADD_FAILURE() << done.error().text();
            co_return;
        }
        ++written;
    }
}

} // namespace

CO_TEST(EtcdStore, WritesAreSeenAtOnceAndByASecondServer) {
    EtcdCluster cluster;
    auto up = cluster.start(1);
    CO_ASSERT_OK(up);
    auto ctx = Context::background();
    auto first = co_await open_etcd(ctx, loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(first);
    auto second = co_await open_etcd(ctx, loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(second);
    EXPECT_EQ((*first)->identity(), (*second)->identity());
    EXPECT_EQ((*first)->identity().size(), 16U);
    Transaction transaction;
    transaction.expect("nodes/n1", 0).put("nodes/n1", "one").put("nodes/n2", "two");
    auto revision = co_await (*first)->apply(ctx, transaction);
    CO_ASSERT_OK(revision);
    EXPECT_EQ((*first)->revision(), *revision);
    CO_ASSERT((*first)->find("nodes/n1") != nullptr);
    EXPECT_EQ((*first)->find("nodes/n1")->value, "one");
    EXPECT_EQ((*first)->find("nodes/n1")->modified, *revision);
    auto seen = co_await (*second)->catch_up(ctx);
    CO_ASSERT_OK(seen);
    EXPECT_EQ(*seen, *revision);
    EXPECT_EQ((*second)->count("nodes/"), 2U);
    auto again = co_await (*second)->apply(ctx, transaction);
    CO_ASSERT(!again.ok());
    EXPECT_EQ(again.error().code, Code::conflict) << again.error().text();
    co_await (*first)->stop();
    co_await (*second)->stop();
}

CO_TEST(EtcdStore, ManyWritersAtOnce) {
    EtcdCluster cluster;
    auto up = cluster.start(1);
    CO_ASSERT_OK(up);
    auto store = co_await open_etcd(Context::background(), loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(store);
    for (int writers : {1, 64, 256}) {
        int written = 0;
        const int each = writers == 1 ? 2000 : 20000 / writers;
        const auto begin = std::chrono::steady_clock::now();
        TaskGroup group(loop.get_executor());
        for (int i = 0; i < writers; ++i) group.spawn(write_many(**store, std::to_string(i), each, written));
        co_await group.join();
        const auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        EXPECT_EQ(written, writers * each);
        fmt::print("{} writers: {:.0f} writes/s\n", writers, written / took);
    }
    co_await (*store)->stop();
}

} // namespace orrery::store
