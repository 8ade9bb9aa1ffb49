#include "core/test_fixture.h"
#include "store/sqlite/backup.h"
#include "store/sqlite/database.h"
#include "store/sqlite/sqlite_store.h"

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <fstream>
#include <random>

namespace orrery::store {
namespace {

using namespace std::chrono_literals;

const Context sqlite_ctx = Context::background();

std::string bytes_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

double metric_of(const Store& store, std::string_view name) {
    for (const auto& [each, value] : store.metrics())
        if (each == name) return value;
    return -1;
}

asio::awaitable<void> put_in_hundreds(Store& store, int from, int to, int different_keys) {
    for (int i = from; i < to;) {
        Transaction some;
        for (int j = 0; j < std::min(100, different_keys) && i < to; ++j, ++i)
            some.put(fmt::format("k/{:05}", i % different_keys), std::to_string(i));
        auto written = co_await store.apply(sqlite_ctx, std::move(some));
        if (!written.ok()) ADD_FAILURE() << written.error().text();
    }
}

asio::awaitable<void> put_and_keep(Store& store, std::string key, std::string value, std::vector<Result<Revision>>& into) {
    into.push_back(co_await store.apply(sqlite_ctx, Transaction().put(std::move(key), std::move(value))));
}

CO_TEST(SqliteStore, PersistsWrites) {
    testing::TemporaryFolder folder;
    auto opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(opened);
    auto store = std::move(*opened);
    auto first = co_await store->apply(sqlite_ctx, Transaction().expect("a", 0).put("a", "1"));
    CO_ASSERT_OK(first);
    EXPECT_EQ(*first, 1);
    co_await store->stop();
    store.reset();
    opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(opened);
    EXPECT_EQ((*opened)->find("a")->value, "1");
    co_await (*opened)->stop();
}

CO_TEST(SqliteStore, ConcurrentWritersShareACommitAndAStaleTransactionFailsAlone) {
    testing::TemporaryFolder folder;
    auto opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(opened);
    auto store = std::move(*opened);
    TaskGroup group(loop.get_executor());
    std::vector<Result<Revision>> outcomes;
    for (int i = 0; i < 200; ++i) group.spawn(put_and_keep(*store, fmt::format("k/{}", i), "v", outcomes));
    co_await group.join();
    EXPECT_LE(metric_of(*store, "commits_total"), 3);
    EXPECT_EQ(store->revision(), 200);
    co_await store->stop();
}

CO_TEST(SqliteStore, OnlySupersededRowsAreDeleted) {
    testing::TemporaryFolder folder;
    SqliteOptions options{.path = folder / "store.db",
                          .mirror = {.max_history_events = 100},
                          .min_superseded_rows = 300,
                          .superseded_ratio = 2,
                          .max_deletions_per_commit = 50};
    auto opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), options);
    CO_ASSERT_OK(opened);
    auto store = std::move(*opened);
    co_await put_in_hundreds(*store, 0, 10'000, 120);
    auto removed = co_await store->apply(sqlite_ctx, Transaction().remove("k/00007"));
    CO_ASSERT_OK(removed);
    co_await put_in_hundreds(*store, 10'000, 12'000, 5);
    EXPECT_GT(metric_of(*store, "superseded_rows_deleted_total"), 5'000);
    EXPECT_LT(metric_of(*store, "superseded_rows"), 3'000);
    const auto revision = store->revision();
    std::vector<std::string> values;
    for (const auto& record : store->range("", 0).records)
        values.push_back(fmt::format("{}={}@{}", record->key, record->value, record->modified));
    co_await store->stop();
    store.reset();
    auto verified = verify_sqlite(folder / "store.db");
    CO_ASSERT_OK(verified);
    EXPECT_EQ(verified->revision, revision);
    opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), options);
    CO_ASSERT_OK(opened);
    store = std::move(*opened);
    std::vector<std::string> again;
    for (const auto& record : store->range("", 0).records)
        again.push_back(fmt::format("{}={}@{}", record->key, record->value, record->modified));
    EXPECT_EQ(again, values);
    EXPECT_EQ(store->revision(), revision);
    co_await store->stop();
}

CO_TEST(SqliteStore, TheRevisionSurvivesDeletionOfTheLastRows) {
    testing::TemporaryFolder folder;
    SqliteOptions options{.path = folder / "store.db", .min_superseded_rows = 1, .superseded_ratio = 0};
    auto opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), options);
    CO_ASSERT_OK(opened);
    auto store = std::move(*opened);
    for (int i = 0; i < 5; ++i) {
        auto written = co_await store->apply(sqlite_ctx, Transaction().put("a", std::to_string(i)));
        CO_ASSERT_OK(written);
    }
    auto removed = co_await store->apply(sqlite_ctx, Transaction().remove("a"));
    CO_ASSERT_OK(removed);
    auto compacted = co_await store->compact(sqlite_ctx, *removed);
    CO_ASSERT_OK(compacted);
    while (metric_of(*store, "superseded_rows") > 0) co_await asio::post(loop, asio::use_awaitable);
    co_await store->stop();
    store.reset();
    opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), options);
    CO_ASSERT_OK(opened);
    EXPECT_EQ((*opened)->revision(), *removed);
    EXPECT_EQ((*opened)->count(""), 0u);
    co_await (*opened)->stop();
}

CO_TEST(SqliteStore, AFullQueueThrottles) {
    testing::TemporaryFolder folder;
    auto opened =
        co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "store.db", .max_queued_transactions = 10});
    CO_ASSERT_OK(opened);
    auto store = std::move(*opened);
    TaskGroup group(loop.get_executor());
    std::vector<Result<Revision>> outcomes;
    for (int i = 0; i < 50; ++i) group.spawn(put_and_keep(*store, fmt::format("k/{}", i), "v", outcomes));
    co_await group.join();
    int throttled = 0;
    for (const auto& outcome : outcomes) throttled += !outcome.ok() && outcome.error().code == Code::throttled;
    EXPECT_EQ(throttled, 40);
    EXPECT_EQ(store->count("k/"), 10u);
    co_await store->stop();
}

CO_TEST(SqliteStore, ALeaseGetsItsFullTtlAfterARestart) {
    testing::TemporaryFolder folder;
    VirtualClock clock;
    SqliteOptions options{.path = folder / "store.db", .clock = &clock};
    auto opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), options);
    CO_ASSERT_OK(opened);
    auto store = std::move(*opened);
    auto lease = co_await store->grant(sqlite_ctx, 10s);
    CO_ASSERT_OK(lease);
    auto written = co_await store->apply(sqlite_ctx, Transaction().put("a", "1", *lease));
    CO_ASSERT_OK(written);
    clock.advance(9s);
    co_await store->stop();
    store.reset();
    opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), options);
    CO_ASSERT_OK(opened);
    store = std::move(*opened);
    clock.advance(9s);
    for (int i = 0; i < 10; ++i) co_await asio::post(loop, asio::use_awaitable);
    EXPECT_NE(store->find("a"), nullptr);
    auto watch = store->watch("a", store->revision());
    clock.advance(1s);
    auto gone = co_await watch->next(sqlite_ctx.with_timeout(10s));
    CO_ASSERT_OK(gone);
    EXPECT_EQ(store->find("a"), nullptr);
    EXPECT_EQ(metric_of(*store, "leases"), 0);
    co_await store->stop();
}

CO_TEST(SqliteStore, ASecondServerIsRefused) {
    testing::TemporaryFolder folder;
    auto first = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(first);
    auto second = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT(!second.ok());
    EXPECT_EQ(second.error().code, Code::conflict);
    EXPECT_FALSE(second.error().remedy.empty());
    co_await (*first)->stop();
    second = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(second);
    co_await (*second)->stop();
}

CO_TEST(SqliteStore, AMigratedStoreNamesItsTarget) {
    testing::TemporaryFolder folder;
    auto opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(opened);
    auto store = std::move(*opened);
    auto written = co_await store->apply(sqlite_ctx, Transaction().put("a", "1"));
    CO_ASSERT_OK(written);
    EXPECT_EQ(sqlite_migration_target(folder / "store.db").value(), std::nullopt);
    auto sealed = co_await seal_migrated(sqlite_ctx, *store, "etcd://one:2379");
    CO_ASSERT_OK(sealed);
    EXPECT_EQ(*sealed, *written);
    written = co_await store->apply(sqlite_ctx, Transaction().put("a", "2"));
    CO_ASSERT(!written.ok());
    EXPECT_EQ(written.error().code, Code::unsupported);
    EXPECT_NE(written.error().message.find("etcd://one:2379"), std::string::npos);
    EXPECT_EQ(store->find("a")->value, "1");
    co_await store->stop();
    store.reset();
    opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT(!opened.ok());
    EXPECT_EQ(opened.error().code, Code::unsupported);
    EXPECT_NE(opened.error().message.find("etcd://one:2379"), std::string::npos);
    auto where = sqlite_migration_target(folder / "store.db");
    CO_ASSERT_OK(where);
    EXPECT_EQ(*where, "etcd://one:2379");
    auto marked = mark_migrated(folder / "store.db", "etcd://two:2379");
    CO_ASSERT_OK(marked);
    EXPECT_EQ(sqlite_migration_target(folder / "store.db").value(), "etcd://two:2379");
    EXPECT_EQ(mark_migrated(folder / "none.db", "x").error().code, Code::not_found);
}

/// Opens a store, fills it and closes it.
asio::awaitable<void> make_store(asio::io_context& loop, std::filesystem::path path, int keys) {
    auto opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = path});
    CO_ASSERT_OK(opened);
    co_await put_in_hundreds(**opened, 0, keys, keys);
    co_await (*opened)->stop();
}

/// Expects that open fails with that code and does not change the file.
asio::awaitable<void> expect_refused(asio::io_context& loop, std::filesystem::path path, Code code, std::string word) {
    const auto before = bytes_of(path);
    auto opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = path});
    CO_ASSERT(!opened.ok());
    EXPECT_EQ(opened.error().code, code) << opened.error().text();
    EXPECT_NE(opened.error().message.find(word), std::string::npos) << opened.error().text();
    EXPECT_FALSE(opened.error().remedy.empty()) << opened.error().text();
    EXPECT_EQ(bytes_of(path), before);
    EXPECT_FALSE(std::filesystem::exists(path.string() + "-wal"));
}

CO_TEST(SqliteStore, ForeignFilesAreRefusedAndUnchanged) {
    testing::TemporaryFolder folder;
    std::ofstream(folder / "text") << std::string(5000, 't');
    co_await expect_refused(loop, folder / "text", Code::unsupported, "not an orrery store");
    std::ofstream(folder / "short") << "SQLite";
    co_await expect_refused(loop, folder / "short", Code::unsupported, "not an orrery store");
    {
        auto other = Database::open((folder / "other").string(), Database::Mode::create);
        CO_ASSERT_OK(other);
        auto made = other->run("CREATE TABLE t(x); INSERT INTO t VALUES (1)");
        CO_ASSERT_OK(made);
    }
    co_await expect_refused(loop, folder / "other", Code::unsupported, "not an orrery store");

    co_await make_store(loop, folder / "newer", 10);
    {
        auto newer = Database::open((folder / "newer").string(), Database::Mode::read_write);
        CO_ASSERT_OK(newer);
        auto changed = newer->run("PRAGMA user_version=99");
        CO_ASSERT_OK(changed);
    }
    co_await expect_refused(loop, folder / "newer", Code::unsupported, "format 99");
    std::filesystem::create_directory(folder / "folder");
    auto opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "folder"});
    EXPECT_FALSE(opened.ok());
    opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "none/store.db"});
    CO_ASSERT(!opened.ok());
    EXPECT_EQ(opened.error().code, Code::unavailable);
}

CO_TEST(SqliteStore, DamageIsDetectedAndTheFileUnchanged) {
    testing::TemporaryFolder folder;
    co_await make_store(loop, folder / "good", 3000);
    const auto good = bytes_of(folder / "good");
    std::mt19937 random(7);
    int refused = 0, harmless = 0;
    for (int round = 0; round < 60; ++round) {
        auto damaged = good;
        const auto at = 100 + random() % (damaged.size() - 100);
        const auto kind = round % 3;
        if (kind == 0) damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
        if (kind == 1) damaged.resize(at);
        if (kind == 2)
            std::fill_n(damaged.begin() + static_cast<std::ptrdiff_t>(at), std::min<std::size_t>(4096, damaged.size() - at), '\0');
        std::ofstream(folder / "bad", std::ios::binary | std::ios::trunc) << damaged;
        auto opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "bad"});
        if (opened.ok()) {
            // Unused bytes: then all keys must be readable.
            ++harmless;
            EXPECT_EQ((*opened)->count("k/"), 3000u);
            EXPECT_EQ((*opened)->find("k/02999")->value, "2999");
            co_await (*opened)->stop();
        } else {
            ++refused;
            EXPECT_NE(opened.error().message.find("damaged"), std::string::npos) << opened.error().text();
            EXPECT_EQ(bytes_of(folder / "bad"), damaged);
        }
        for (const auto* name : {"bad", "bad-wal", "bad-shm", "bad.lock"}) std::filesystem::remove(folder / name);
    }
    EXPECT_GT(refused, 36);
    EXPECT_LT(harmless, 24);
}

CO_TEST(SqliteStore, AGapInTheRevisionsIsDamage) {
    testing::TemporaryFolder folder;
    auto opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "store"});
    CO_ASSERT_OK(opened);
    for (int i = 0; i < 10; ++i) {
        auto written = co_await (*opened)->apply(sqlite_ctx, Transaction().put("a", std::to_string(i)));
        CO_ASSERT_OK(written);
    }
    co_await (*opened)->stop();
    {
        auto database = Database::open((folder / "store").string(), Database::Mode::read_write);
        CO_ASSERT_OK(database);
        auto removed = database->run("DELETE FROM log WHERE seq >> 16 = 5");
        CO_ASSERT_OK(removed);
    }
    co_await expect_refused(loop, folder / "store", Code::internal, "revision 4 is followed by 6");
}

CO_TEST(SqliteStore, ALogWithoutItsFileIsNotAnEmptyStore) {
    testing::TemporaryFolder folder;
    std::ofstream(folder / "store-wal") << "something";
    auto opened = co_await open_sqlite(sqlite_ctx, loop.get_executor(), {.path = folder / "store"});
    CO_ASSERT(!opened.ok());
    EXPECT_EQ(opened.error().code, Code::conflict);
}

} // namespace
} // namespace orrery::store
