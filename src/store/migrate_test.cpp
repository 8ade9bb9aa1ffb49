#include "core/test_fixture.h"
#include "store/migrate.h"
#include "store/sqlite/sqlite_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace orrery::store {

using namespace std::chrono_literals;
using orrery::testing::TemporaryFolder;

namespace {

const Context migrate_ctx = Context::background();

Task<std::unique_ptr<Store>> open_file(asio::io_context& loop, std::filesystem::path path) {
    SqliteOptions options;
    options.path = std::move(path);
    return open_sqlite(migrate_ctx, loop.get_executor(), std::move(options));
}

Task<Unit> fill(Store& store, int keys) {
    for (int i = 0; i < keys;) {
        Transaction some;
        for (int j = 0; j < 100 && i < keys; ++j, ++i) some.put(fmt::format("nodes/{:05}", i), fmt::format("value {}", i));
        CO_TRY(std::ignore, co_await store.apply(migrate_ctx, std::move(some)));
    }
    CO_TRY(std::ignore,
           co_await store.apply(migrate_ctx, Transaction().put("large/1", std::string(900'000, 'x')).put("empty", "")));
    CO_TRY(std::ignore, co_await store.apply(migrate_ctx, Transaction().put("large/2", std::string(max_value_size, 'y'))));
    co_return Unit{};
}

} // namespace

CO_TEST(FreezableStore, FreezeWaitsForPendingWritesAndRefusesLaterOnes) {
    TemporaryFolder folder;
    auto opened = co_await open_file(loop, folder / "a.db");
    CO_ASSERT_OK(opened);
    FreezableStore store(loop.get_executor(), std::move(*opened));
    auto frozen = co_await store.refuse_writes(migrate_ctx, Error{Code::unavailable, "the store is being migrated"});
    CO_ASSERT_OK(frozen);
    auto twice = co_await store.refuse_writes(migrate_ctx, Error{Code::unavailable, "x"});
    EXPECT_FALSE(twice.ok());
    auto refused = co_await store.apply(migrate_ctx, Transaction().put("a", "1"));
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::unavailable);
    EXPECT_FALSE(store.health().ok());
    auto checked = co_await store.apply(migrate_ctx, Transaction().expect("a", 0));
    EXPECT_TRUE(checked.ok());
    store.accept_writes();
    auto written = co_await store.apply(migrate_ctx, Transaction().put("a", "1"));
    EXPECT_TRUE(written.ok());
    co_await store.stop();
}

CO_TEST(Migrate, EverythingArrivesAndTheSourceStaysFrozen) {
    TemporaryFolder folder;
    auto source = co_await open_file(loop, folder / "a.db");
    CO_ASSERT_OK(source);
    auto target = co_await open_file(loop, folder / "b.db");
    CO_ASSERT_OK(target);
    FreezableStore store(loop.get_executor(), std::move(*source));
    auto filled = co_await fill(store, 1234);
    CO_ASSERT_OK(filled);
    auto lease = co_await store.grant(migrate_ctx, 1h);
    CO_ASSERT_OK(lease);
    auto leader = co_await store.apply(migrate_ctx, Transaction().put("sys/leader/controllers", "a", *lease));
    CO_ASSERT_OK(leader);
    std::int64_t last = 0;
    auto report = co_await migrate(migrate_ctx, store, **target, [&last](std::int64_t done, std::int64_t total) {
        EXPECT_GE(done, last);
        EXPECT_LE(done, total);
        last = done;
    });
    CO_ASSERT_OK(report);
    EXPECT_EQ(report->keys, 1237U);
    EXPECT_EQ(report->skipped, 1U);
    EXPECT_EQ(report->digest.size(), 64U);
    EXPECT_EQ((*target)->count(""), 1237U);
    EXPECT_EQ((*target)->find("nodes/00777")->value, "value 777");
    EXPECT_EQ((*target)->find("large/2")->value.size(), max_value_size);
    EXPECT_EQ((*target)->find(migration_key), nullptr);
    EXPECT_EQ(last, 1238);
    EXPECT_TRUE(store.refuses_writes());
    auto again = co_await migrate(migrate_ctx, store, **target);
    CO_ASSERT(!again.ok());
    EXPECT_EQ(again.error().code, Code::conflict) << again.error().text();
    co_await store.stop();
    co_await (*target)->stop();
}

CO_TEST(Migrate, ANonEmptyTargetIsRefusedAndUnchanged) {
    TemporaryFolder folder;
    auto source = co_await open_file(loop, folder / "a.db");
    CO_ASSERT_OK(source);
    auto target = co_await open_file(loop, folder / "b.db");
    CO_ASSERT_OK(target);
    FreezableStore store(loop.get_executor(), std::move(*source));
    auto theirs = co_await (*target)->apply(migrate_ctx, Transaction().put("theirs", "1"));
    CO_ASSERT_OK(theirs);
    auto report = co_await migrate(migrate_ctx, store, **target);
    CO_ASSERT(!report.ok());
    EXPECT_EQ(report.error().code, Code::conflict);
    EXPECT_FALSE(store.refuses_writes());
    EXPECT_EQ((*target)->count(""), 1U);
    auto cleared = co_await clear_incomplete_migration(migrate_ctx, **target);
    EXPECT_FALSE(cleared.ok()) << "not an incomplete copy";
    auto marked = co_await (*target)->apply(migrate_ctx, Transaction().put(std::string(migration_key), "from somewhere"));
    CO_ASSERT_OK(marked);
    report = co_await migrate(migrate_ctx, store, **target);
    CO_ASSERT(!report.ok());
    EXPECT_NE(report.error().message.find("interrupted"), std::string::npos);
    cleared = co_await clear_incomplete_migration(migrate_ctx, **target);
    CO_ASSERT_OK(cleared);
    EXPECT_EQ((*target)->count(""), 0U);
    report = co_await migrate(migrate_ctx, store, **target);
    CO_ASSERT_OK(report);
    co_await store.stop();
    co_await (*target)->stop();
}

} // namespace orrery::store
