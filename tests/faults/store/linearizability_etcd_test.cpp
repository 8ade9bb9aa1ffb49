// A hundred thousand calls on a real etcd, read through the copy in memory after it has caught up.

#include "faults/store/history.h"
#include "lab/etcd/etcd_cluster.h"
#include "store/etcd/etcd_store.h"

#include <gtest/gtest.h>

namespace orrery::store::faults {
namespace {

testing::EtcdCluster* cluster = nullptr;

asio::awaitable<void> etcd_history(asio::io_context& loop) {
    EtcdOptions options;
    options.endpoints = cluster->endpoints();
    auto opened = co_await open_etcd(Context::background(), loop.get_executor(), std::move(options));
    CO_ASSERT_OK(opened);
    History history(**opened, {.is_unknown = &outcome_unknown});
    co_await history.run(loop.get_executor());
    co_await (*opened)->stop();
    EXPECT_GT(history.calls().size(), 99'000u);
    EXPECT_GT(history.refused(), 0u);
    const auto anomaly = testing::anomaly_in(history.calls());
    EXPECT_FALSE(anomaly.has_value()) << anomaly.value_or("");
}

TEST(Linearizability, HoldsForAHundredThousandCallsOnEtcd) {
    if (!testing::EtcdCluster::installed()) GTEST_SKIP() << "etcd is not installed here";
    testing::EtcdCluster started;
    cluster = &started;
    const auto outcome = started.start(1);
    ASSERT_TRUE(outcome.ok()) << outcome.error().text();
    testing::run_co_test(&etcd_history);
}

} // namespace
} // namespace orrery::store::faults
