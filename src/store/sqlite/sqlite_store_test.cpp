#include "core/testing.h"
#include "store/sqlite/sqlite_store.h"

namespace orrery::store {
namespace {

using namespace std::chrono_literals;

CO_TEST(SqliteStore, WritesAndReadsAndRemembers) {
    testing::TemporaryFolder folder;
    const auto ctx = Context::background();
    auto opened = co_await open_sqlite(ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(opened);
    auto store = std::move(*opened);
    auto first = co_await store->apply(ctx, Transaction().expect("a", 0).put("a", "1"));
    CO_ASSERT_OK(first);
    EXPECT_EQ(*first, 1);
    auto second = co_await store->apply(ctx, Transaction().expect("a", 0).put("a", "2"));
    CO_ASSERT(!second.ok());
    EXPECT_EQ(second.error().code, Code::conflict);
    auto third = co_await store->apply(ctx, Transaction().expect("a", 1).put("a", "3").put("b", ""));
    CO_ASSERT_OK(third);
    EXPECT_EQ(*third, 2);
    const auto identity = store->identity();
    co_await store->stop();
    store.reset();

    opened = co_await open_sqlite(ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(opened);
    store = std::move(*opened);
    EXPECT_EQ(store->identity(), identity);
    EXPECT_EQ(store->revision(), 2);
    CO_ASSERT(store->find("a"));
    EXPECT_EQ(store->find("a")->value, "3");
    EXPECT_EQ(store->find("a")->created, 1);
    EXPECT_EQ(store->find("a")->version, 2);
    EXPECT_EQ(store->find("b")->value, "");
    co_await store->stop();
}

} // namespace
} // namespace orrery::store
