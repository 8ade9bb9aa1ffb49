// A running SQLite store is moved to a real etcd.

#include "core/test_fixture.h"
#include "lab/etcd/etcd_cluster.h"
#include "store/etcd/etcd_store.h"
#include "store/migrate.h"
#include "store/sqlite/sqlite_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

namespace orrery::store {

using namespace std::chrono_literals;
using orrery::testing::EtcdCluster;
using orrery::testing::TemporaryFolder;

namespace {

Task<std::unique_ptr<FreezableStore>> filled_source(asio::io_context& loop, std::filesystem::path path, int keys) {
    SqliteOptions options;
    options.path = std::move(path);
    CO_TRY(auto source, co_await open_sqlite(Context::background(), loop.get_executor(), std::move(options)));
    for (int i = 0; i < keys;) {
        Transaction some;
        for (int j = 0; j < 100; ++j, ++i) some.put(fmt::format("nodes/{:06}", i), fmt::format("{{\"value\": {}}}", i));
        CO_TRY(std::ignore, co_await source->apply(Context::background(), std::move(some)));
    }
    co_return std::make_unique<FreezableStore>(loop.get_executor(), std::move(source));
}

struct Load {
    std::map<std::string, std::string> acknowledged;
    int refused = 0;
    bool ended = false;
};

asio::awaitable<void> write_under(Store& store, int writer, Load& load) {
    for (int n = 0; !load.ended; ++n) {
        const auto key = fmt::format("load/{}/{}", writer, n);
        auto done = co_await store.apply(Context::background(), Transaction().put(key, std::to_string(n)));
        if (done.ok())
            load.acknowledged[key] = std::to_string(n);
        else {
            ++load.refused;
            if (done.error().code != Code::unavailable || done.error().message != "the store is being migrated")
                ADD_FAILURE() << done.error().text();
            std::ignore = co_await real_clock().sleep(5ms);
        }
    }
}

EtcdOptions target_of(const EtcdCluster& cluster) {
    EtcdOptions options;
    options.endpoints = cluster.endpoints();
    options.retry_time = 1s;
    return options;
}

/// A store that loses its engine after some writes.
asio::awaitable<void> kill_after(EtcdCluster& cluster, const std::int64_t& done, std::int64_t enough) {
    while (done < enough) std::ignore = co_await real_clock().sleep(1ms);
    cluster.kill(0);
}

} // namespace

CO_TEST(EtcdMigrate, TwentyThousandKeysMoveUnderLoadAndNothingIsLost) {
    CO_NEEDS_ETCD();
    EtcdCluster cluster;
    auto up = cluster.start(1);
    CO_ASSERT_OK(up);
    TemporaryFolder folder;
    auto source = co_await filled_source(loop, folder / "store.db", 20'000);
    CO_ASSERT_OK(source);
    auto ctx = Context::background();
    auto target = co_await open_etcd(ctx, loop.get_executor(), target_of(cluster));
    CO_ASSERT_OK(target);
    Load load;
    TaskGroup writers(loop.get_executor());
    for (int i = 0; i < 8; ++i) writers.spawn(write_under(**source, i, load));
    std::ignore = co_await real_clock().sleep(300ms);
    const auto begin = std::chrono::steady_clock::now();
    auto report = co_await migrate(ctx, **source, **target);
    CO_ASSERT_OK(report);
    fmt::print("{} keys in {:.1f} s, {} writes before, {} refused meanwhile\n", report->keys,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), load.acknowledged.size(),
               load.refused);
    auto sealed = co_await seal_migrated(ctx, (*source)->inner(), cluster.url());
    CO_ASSERT_OK(sealed);
    load.ended = true;
    co_await writers.join();
    EXPECT_GT(load.acknowledged.size(), 0U);
    EXPECT_GT(load.refused, 0);
    EXPECT_EQ(report->keys, 20'000 + load.acknowledged.size());
    co_await (*target)->stop();
    co_await (*source)->stop();

    auto fresh = co_await open_etcd(ctx, loop.get_executor(), target_of(cluster));
    CO_ASSERT_OK(fresh);
    EXPECT_EQ((*fresh)->count("nodes/"), 20'000U);
    EXPECT_EQ((*fresh)->find("nodes/019999")->value, "{\"value\": 19999}");
    std::size_t lost = 0;
    for (const auto& [key, value] : load.acknowledged) {
        const auto record = (*fresh)->find(key);
        lost += !record || record->value != value;
    }
    EXPECT_EQ(lost, 0U);
    co_await (*fresh)->stop();
}

CO_TEST(EtcdMigrate, AFailureDuringTheMigrationLeavesTheOldStoreInUse) {
    CO_NEEDS_ETCD();
    EtcdCluster cluster;
    auto up = cluster.start(1);
    CO_ASSERT_OK(up);
    TemporaryFolder folder;
    auto source = co_await filled_source(loop, folder / "store.db", 20'000);
    CO_ASSERT_OK(source);
    auto ctx = Context::background();
    auto target = co_await open_etcd(ctx, loop.get_executor(), target_of(cluster));
    CO_ASSERT_OK(target);
    auto hasty = co_await migrate(ctx.with_timeout(60ms), **source, **target);
    CO_ASSERT(!hasty.ok());
    EXPECT_EQ((*target)->count(""), 0U) << "what was written is removed again";
    EXPECT_FALSE((*source)->refuses_writes());

    std::int64_t progress = 0;
    TaskGroup killer(loop.get_executor());
    killer.spawn(kill_after(cluster, progress, 5'000));
    auto report = co_await migrate(ctx.with_timeout(30s), **source, **target,
                                   [&progress](std::int64_t done, std::int64_t) { progress = done; });
    co_await killer.join();
    CO_ASSERT(!report.ok());
    EXPECT_EQ(report.error().code, Code::unavailable) << report.error().text();
    EXPECT_NE(report.error().remedy.find("the old store is in use"), std::string::npos) << report.error().text();
    auto written = co_await (*source)->apply(ctx, Transaction().put("after", "1"));
    CO_ASSERT_OK(written);
    co_await (*target)->stop();

    // The target returns with half a copy: it is refused until it is cleared, and then the migration succeeds.
    auto back = cluster.restart(0);
    CO_ASSERT_OK(back);
    auto refused = co_await open_etcd(ctx, loop.get_executor(), target_of(cluster));
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::conflict) << refused.error().text();
    auto options = target_of(cluster);
    options.allow_incomplete = true;
    auto half = co_await open_etcd(ctx, loop.get_executor(), options);
    CO_ASSERT_OK(half);
    auto cleared = co_await clear_incomplete_migration(ctx, **half);
    CO_ASSERT_OK(cleared);
    auto second = co_await migrate(ctx, **source, **half);
    CO_ASSERT_OK(second);
    EXPECT_EQ(second->keys, 20'001U);
    co_await (*half)->stop();
    co_await (*source)->stop();
}

} // namespace orrery::store
