#include "core/test_fixture.h"
#include "store/sqlite/backup.h"
#include "store/sqlite/sqlite_store.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include <fstream>

namespace orrery::store {
namespace {

using namespace std::chrono_literals;

asio::awaitable<void> write_until(Store& store, const bool& enough, int& written) {
    const auto ctx = Context::background();
    while (!enough) {
        // Two keys that always change together: their values differ if a backup splits a revision.
        auto revision =
            co_await store.apply(ctx, Transaction().put("left", std::to_string(written)).put("right", std::to_string(written)));
        if (!revision.ok()) {
            ADD_FAILURE() << revision.error().text();
            co_return;
        }
        ++written;
    }
}

asio::awaitable<void> fill_for_backup(Store& store, int keys) {
    for (int i = 0; i < keys;) {
        Transaction some;
        for (int j = 0; j < 100; ++j, ++i) some.put(fmt::format("k/{:05}", i), std::string(500, 'x'));
        auto written = co_await store.apply(Context::background(), std::move(some));
        if (!written.ok()) ADD_FAILURE() << written.error().text();
    }
}

CO_TEST(Backup, ContainsWholeRevisionsDuringWrites) {
    testing::TemporaryFolder folder;
    const auto ctx = Context::background();
    auto opened = co_await open_sqlite(ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(opened);
    auto store = std::move(*opened);
    co_await fill_for_backup(*store, 2000);
    TaskGroup group(loop.get_executor());
    bool enough = false;
    int written = 0;
    group.spawn(write_until(*store, enough, written));
    for (int i = 0; i < 3; ++i) {
        const auto before = store->revision();
        auto revision = co_await backup_to(ctx, *store, folder / "copy.db");
        CO_ASSERT_OK(revision);
        EXPECT_GE(*revision, before);
        auto verified = verify_sqlite(folder / "copy.db");
        CO_ASSERT_OK(verified);
        EXPECT_EQ(verified->revision, *revision);
        EXPECT_EQ(verified->identity, store->identity());
    }
    enough = true;
    co_await group.join();
    EXPECT_GT(written, 3);
    EXPECT_FALSE(std::filesystem::exists(folder / "copy.db-wal"));
    EXPECT_FALSE(std::filesystem::exists(folder / "copy.db.partial"));

    auto verified = verify_sqlite(folder / "store.db"); // a server runs on it
    CO_ASSERT_OK(verified);
    EXPECT_EQ(verified->revision, store->revision());
    const auto identity = store->identity();
    co_await store->stop();
    store.reset();

    auto refused = restore_sqlite(folder / "copy.db", folder / "store.db", Overwrite::no);
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::conflict);
    auto restored = restore_sqlite(folder / "copy.db", folder / "store.db", Overwrite::yes);
    CO_ASSERT_OK(restored);
    opened = co_await open_sqlite(ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(opened);
    store = std::move(*opened);
    EXPECT_EQ(store->revision(), restored->revision);
    EXPECT_EQ(store->identity(), restored->identity);
    EXPECT_NE(store->identity(), identity);
    EXPECT_EQ(store->count("k/"), 2000u);
    CO_ASSERT(store->find("left") && store->find("right"));
    EXPECT_EQ(store->find("left")->value, store->find("right")->value);
    auto next = co_await store->apply(ctx, Transaction().put("new", "1"));
    CO_ASSERT_OK(next);
    EXPECT_EQ(*next, restored->revision + 1);

    auto in_use = restore_sqlite(folder / "copy.db", folder / "store.db", Overwrite::yes);
    CO_ASSERT(!in_use.ok());
    EXPECT_EQ(in_use.error().code, Code::conflict);
    auto onto_itself = co_await backup_to(ctx, *store, folder / "store.db");
    CO_ASSERT(!onto_itself.ok());
    EXPECT_EQ(onto_itself.error().code, Code::invalid);
    co_await store->stop();
}

CO_TEST(Backup, AnInterruptedRestoreIsRefusedWithARemedy) {
    testing::TemporaryFolder folder;
    const auto ctx = Context::background();
    auto opened = co_await open_sqlite(ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(opened);
    co_await fill_for_backup(**opened, 20);
    CO_ASSERT_OK(co_await backup_to(ctx, **opened, folder / "copy.db"));
    co_await (*opened)->stop();
    const auto touch = [&](std::string_view name) { std::ofstream(folder / name) << "x"; };
    const auto refusal = [&](bool refused) -> asio::awaitable<std::string> { // NOLINT: awaited where it is called
        auto again = co_await open_sqlite(ctx, loop.get_executor(), {.path = folder / "store.db"});
        EXPECT_EQ(again.ok(), !refused);
        if (again.ok()) co_await (*again)->stop();
        co_return again.ok() ? std::string() : again.error().text();
    };
    // Killed during the copy of the backup.
    touch("store.db.restoring");
    const auto copying = co_await refusal(true);
    EXPECT_NE(copying.find("remove " + (folder / "store.db.restoring").string()), std::string::npos) << copying;
    // Killed between the two renames of the old store and of the new one.
    std::filesystem::rename(folder / "store.db", folder / "store.db.replaced");
    const auto between = co_await refusal(true);
    EXPECT_NE(between.find("rename " + (folder / "store.db.replaced").string()), std::string::npos) << between;
    std::filesystem::remove(folder / "store.db.restoring");
    const auto without_copy = co_await refusal(true);
    EXPECT_NE(without_copy.find("a restore of the store"), std::string::npos) << without_copy;
    EXPECT_FALSE(std::filesystem::exists(folder / "store.db")) << "no empty store was created";
    // A second run completes.
    CO_ASSERT_OK(restore_sqlite(folder / "copy.db", folder / "store.db", Overwrite::no));
    EXPECT_FALSE(std::filesystem::exists(folder / "store.db.replaced"));
    const auto ended = co_await refusal(false);
    EXPECT_EQ(ended, "");
    // Killed after the last rename: the restored store is in its place.
    touch("store.db.replaced");
    const auto in_place = co_await refusal(false);
    EXPECT_EQ(in_place, "");
}

CO_TEST(Backup, TheRestoreHookChangesTheRestoredStoreAtomically) {
    testing::TemporaryFolder folder;
    const auto ctx = Context::background();
    auto opened = co_await open_sqlite(ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(opened);
    co_await fill_for_backup(**opened, 20);
    CO_ASSERT_OK(co_await backup_to(ctx, **opened, folder / "copy.db"));
    co_await (*opened)->stop();
    auto failed = restore_sqlite(folder / "copy.db", folder / "store.db", Overwrite::yes,
                                 [](const auto&) -> Result<Unit> { return Error{Code::no_space, "the disk is full"}; });
    CO_ASSERT(!failed.ok());
    EXPECT_FALSE(std::filesystem::exists(folder / "store.db.restoring"));
    const auto before = verify_sqlite(folder / "store.db");
    CO_ASSERT_OK(before);
    auto changed = restore_sqlite(folder / "copy.db", folder / "store.db", Overwrite::yes, [](const auto& copy) -> Result<Unit> {
        asio::io_context own(1);
        Result<Unit> done = Unit{};
        asio::co_spawn(
            own,
            [&]() -> asio::awaitable<void> {
                auto store = co_await open_sqlite(Context::background(), own.get_executor(), {.path = copy});
                auto written = co_await (*store)->apply(Context::background(), Transaction().put("changed", "1"));
                if (!written.ok()) done = written.error();
                co_await (*store)->stop();
            },
            asio::detached);
        own.run();
        return done;
    });
    CO_ASSERT_OK(changed);
    EXPECT_EQ(changed->keys, before->keys + 1);
    EXPECT_EQ(changed->revision, before->revision + 1);
    auto after = co_await open_sqlite(ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(after);
    EXPECT_TRUE((*after)->find("changed") != nullptr);
    EXPECT_EQ((*after)->identity(), changed->identity);
    EXPECT_NE((*after)->identity(), before->identity);
    co_await (*after)->stop();
    for (const auto* left : {"store.db.restoring", "store.db.restoring.lock", "store.db.restoring-wal", "store.db.replaced"})
        EXPECT_FALSE(std::filesystem::exists(folder / left)) << left;
}

CO_TEST(Backup, ADamagedBackupIsNotRestored) {
    testing::TemporaryFolder folder;
    const auto ctx = Context::background();
    auto opened = co_await open_sqlite(ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(opened);
    auto store = std::move(*opened);
    co_await fill_for_backup(*store, 200);
    auto made = co_await backup_to(ctx, *store, folder / "copy.db");
    CO_ASSERT_OK(made);
    co_await store->stop();
    {
        std::fstream file(folder / "copy.db", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(folder / "copy.db") / 2));
        file.put('!');
    }
    auto verified = verify_sqlite(folder / "copy.db");
    CO_ASSERT(!verified.ok());
    EXPECT_NE(verified.error().message.find("damaged"), std::string::npos) << verified.error().text();
    auto restored = restore_sqlite(folder / "copy.db", folder / "store.db", Overwrite::yes);
    EXPECT_FALSE(restored.ok());
    auto still = verify_sqlite(folder / "store.db");
    CO_ASSERT_OK(still);
    EXPECT_EQ(still->keys, 200u);
    EXPECT_EQ(verify_sqlite(folder / "none.db").error().code, Code::not_found);
    EXPECT_EQ(restore_sqlite(folder / "none.db", folder / "other.db", Overwrite::no).error().code, Code::not_found);
    EXPECT_FALSE(std::filesystem::exists(folder / "other.db"));
}

} // namespace
} // namespace orrery::store
