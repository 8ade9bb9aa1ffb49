// The members of an etcd cluster are killed one after another while 64 clients write.

#include "core/test_fixture.h"
#include "faults/store/history.h"
#include "lab/etcd/etcd_cluster.h"
#include "lab/etcd/kill_in_turn.h"
#include "store/etcd/etcd_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace orrery::store::faults {

using namespace std::chrono_literals;
using orrery::testing::EtcdCluster;

namespace {

EtcdOptions patient(const EtcdCluster& cluster) {
    EtcdOptions options;
    options.endpoints = cluster.endpoints();
    options.retry_time = 20s; // there is a loss every few seconds here
    options.give_up = 40s;
    return options;
}

double metric(const Store& store, std::string_view wanted) {
    for (const auto& [name, value] : store.metrics())
        if (name == wanted) return value;
    return -1;
}

struct Written {
    std::map<std::string, Revision> acknowledged;
    std::set<std::string> unknown;
    bool ended = false;
};

asio::awaitable<void> write_until_ended(Store& store, int writer, Written& written) {
    for (int n = 0; !written.ended; ++n) {
        const auto key = fmt::format("w/{}/{}", writer, n);
        auto done = co_await store.apply(Context::background(),
                                         Transaction().put(key, std::to_string(n)).put(fmt::format("c/{}", writer), key));
        if (done.ok())
            written.acknowledged[key] = *done;
        else if (outcome_unknown(done.error()))
            written.unknown.insert(key);
        else { // nothing else may happen to a write while two members of three are alive
            ADD_FAILURE() << done.error().text();
            written.ended = true;
        }
    }
}

asio::awaitable<void> end_after(Duration time, bool& ended) {
    std::ignore = co_await real_clock().sleep(time);
    ended = true;
}

asio::awaitable<void> killed_under_writers(asio::io_context& loop) {
    EtcdCluster cluster;
    auto up = cluster.start(3);
    CO_ASSERT_OK(up);
    auto store = co_await open_etcd(Context::background(), loop.get_executor(), patient(cluster));
    CO_ASSERT_OK(store);
    const auto first_revision = (*store)->revision();
    Written written;
    int kills = 0;
    TaskGroup group(loop.get_executor());
    group.spawn(orrery::testing::kill_in_turn(cluster, 2500ms, 500ms, kills, written.ended));
    for (int i = 0; i < 64; ++i) group.spawn(write_until_ended(**store, i, written));
    group.spawn(end_after(40s, written.ended));
    co_await group.join();
    const auto last_revision = (*store)->revision();
    fmt::print("{} kills, {} writes acknowledged, {} unknown, {:.0f} lost answers settled by {:.0f} fences, {:.0f} lists\n", kills,
               written.acknowledged.size(), written.unknown.size(), metric(**store, "etcd_lost_responses_resolved_total"),
               metric(**store, "etcd_fences_total"), metric(**store, "etcd_lists_total"));
    const auto fences = metric(**store, "etcd_fences_total");
    co_await (*store)->stop();
    store->reset();

    // A fresh start reads from etcd itself.
    auto again = co_await open_etcd(Context::background().with_timeout(30s), loop.get_executor(), patient(cluster));
    CO_ASSERT_OK(again);
    EXPECT_GE(kills, 9);
    EXPECT_GT(written.acknowledged.size(), 2000U);
    std::vector<Revision> revisions;
    for (const auto& [key, revision] : written.acknowledged) {
        const auto record = (*again)->find(key);
        if (!record) {
            ADD_FAILURE() << key << " was acknowledged and is lost";
            continue;
        }
        EXPECT_EQ(record->version, 1) << key << " was applied twice";
        EXPECT_EQ(record->modified, revision) << key;
        revisions.push_back(revision);
    }
    std::size_t present = 0;
    for (int i = 0; i < 64; ++i) {
        const auto below = (*again)->count(fmt::format("w/{}/", i));
        const auto counter = (*again)->find(fmt::format("c/{}", i));
        CO_ASSERT(counter);
        EXPECT_EQ(counter->version, static_cast<std::int64_t>(below)) << "writer " << i;
        present += below;
    }
    EXPECT_LE(present, written.acknowledged.size() + written.unknown.size());
    std::ranges::sort(revisions);
    EXPECT_EQ(std::ranges::adjacent_find(revisions), revisions.end());
    // Every revision is a write or one of our fences (or the second, late copy of a fence).
    EXPECT_LE(static_cast<double>(last_revision - first_revision - static_cast<Revision>(present)), 3 * fences + 3);
    co_await (*again)->stop();
}

asio::awaitable<void> end_with(asio::awaitable<void> work, bool& ended) {
    co_await std::move(work);
    ended = true;
}

asio::awaitable<void> linearizable_while_killed(asio::io_context& loop) {
    EtcdCluster cluster;
    auto up = cluster.start(3);
    CO_ASSERT_OK(up);
    auto store = co_await open_etcd(Context::background(), loop.get_executor(), patient(cluster));
    CO_ASSERT_OK(store);
    History history(**store, {.is_unknown = [](const Error& error) { return error.code == Code::unavailable; }});
    bool ended = false;
    int kills = 0;
    TaskGroup group(loop.get_executor());
    group.spawn(orrery::testing::kill_in_turn(cluster, 3s, 500ms, kills, ended));
    group.spawn(end_with(history.run(loop.get_executor()), ended));
    co_await group.join();
    co_await (*store)->stop();
    fmt::print("{} calls, {} refused, {} unknown, {} kills\n", history.calls().size(), history.refused(), history.unknown(), kills);
    EXPECT_GT(history.calls().size(), 99'000U);
    EXPECT_GT(kills, 0);
    const auto anomaly = testing::anomaly_in(history.calls());
    EXPECT_FALSE(anomaly.has_value()) << anomaly.value_or("");
}

} // namespace

TEST(EtcdMembers, KilledOneAtATimeUnder64WritersLoseNothingAndApplyNothingTwice) {
    if (!EtcdCluster::installed()) GTEST_SKIP() << "etcd-server is not installed";
    orrery::testing::run_co_test(&killed_under_writers);
}

TEST(EtcdMembers, KilledOneAtATimeLeaveAHundredThousandCallsLinearizable) {
    if (!EtcdCluster::installed()) GTEST_SKIP() << "etcd-server is not installed";
    orrery::testing::run_co_test(&linearizable_while_killed);
}

} // namespace orrery::store::faults
