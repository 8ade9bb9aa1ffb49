#include "core/json_fields.h"
#include "core/test_fixture.h"
#include "core/text.h"
#include "gslb/runtime/gslb_fixture.h"
#include "gslb/serve/zone_serials.h"
#include "store/memory_store.h"

#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;

/// One start of a server on a store: what it numbers.
struct Numberer {
    Numberer(asio::io_context& loop, std::shared_ptr<store::MemoryStore::Shared> shared, VirtualClock& clock_)
        : store(loop.get_executor(), std::move(shared)), clock(clock_) {}
    Task<Unit> start() {
        CO_TRY(std::ignore, co_await ZoneSerials::prepare(testing::carla, store, clock));
        serials.emplace(store);
        co_return Unit{};
    }
    Task<Unit> reserve() {
        co_return co_await serials->reserve(testing::carla, clock, store::Fence::if_unmodified("sys/leader/none", 0));
    }
    Task<Unit> write(int times) {
        for (int i = 0; i < times; ++i) {
            CO_TRY(std::ignore, co_await store.apply(testing::carla, store::Transaction().put("nodes/n1", std::to_string(i))));
        }
        co_return Unit{};
    }

    store::MemoryStore store;
    VirtualClock& clock;
    std::optional<ZoneSerials> serials;
};

} // namespace

CO_TEST(ZoneSerials, AreRevisionsAndUnique) {
    VirtualClock clock;
    Numberer one(loop, std::make_shared<store::MemoryStore::Shared>(), clock);
    CO_ASSERT_OK(co_await one.write(5));
    CO_ASSERT_OK(co_await one.start());
    EXPECT_EQ(one.serials->next(), 6U); // the first reservation is a write too
    EXPECT_EQ(one.serials->next(), 7U);
    CO_ASSERT_OK(co_await one.write(5));
    EXPECT_EQ(one.serials->next(), 11U);
}

CO_TEST(ZoneSerials, DoNotGoBackAtARestart) {
    VirtualClock clock;
    const auto shared = std::make_shared<store::MemoryStore::Shared>();
    Numberer one(loop, shared, clock), again(loop, shared, clock);
    CO_ASSERT_OK(co_await one.start());
    EXPECT_FALSE(one.serials->needs_reserve()) << "a server that ends at once has reserved what it gave out";
    std::uint64_t last = 0;
    for (int i = 0; i < 6000; ++i) last = one.serials->next(); // without a write: a zone that is signed again, many zones at once
    EXPECT_TRUE(one.serials->needs_reserve());
    CO_ASSERT_OK(co_await again.store.catch_up(testing::carla));
    CO_ASSERT_OK(co_await again.start());
    EXPECT_GT(again.serials->next(), last);
    // The first server follows the base that the second one raised.
    CO_ASSERT_OK(co_await one.store.catch_up(testing::carla));
    EXPECT_GE(one.serials->next(), again.serials->upcoming() - 1);
}

CO_TEST(ZoneSerials, DoNotGoBackWhenTheStoreIsMigrated) {
    VirtualClock clock;
    Numberer before(loop, std::make_shared<store::MemoryStore::Shared>(), clock);
    Numberer after(loop, std::make_shared<store::MemoryStore::Shared>(), clock);
    CO_ASSERT_OK(co_await before.write(127));
    CO_ASSERT_OK(co_await before.start());
    const auto last = before.serials->next();
    CO_ASSERT_OK(co_await before.reserve());
    // A migration copies values: revisions begin again.
    const auto copied = before.store.find(ZoneSerials::key);
    CO_ASSERT(copied);
    CO_ASSERT_OK(co_await after.store.apply(testing::carla, store::Transaction().put(copied->key, copied->value)));
    CO_ASSERT_OK(co_await after.start());
    EXPECT_GT(after.serials->next(), last);
    const auto first = after.serials->upcoming();
    CO_ASSERT_OK(co_await after.write(1));
    EXPECT_GE(after.serials->next(), first);
}

CO_TEST(ZoneSerials, DoNotGoBackWhenABackupIsRestored) {
    VirtualClock clock;
    Numberer lost(loop, std::make_shared<store::MemoryStore::Shared>(), clock);
    CO_ASSERT_OK(co_await lost.start());
    std::ignore = lost.serials->next();
    CO_ASSERT_OK(co_await lost.reserve());
    const auto backup = lost.store.find(ZoneSerials::key);
    CO_ASSERT(backup);
    CO_ASSERT_OK(co_await lost.write(3000)); // after the backup, in an hour
    const auto last = lost.serials->next();
    clock.advance(1h);
    std::uint64_t restored_to = 0;
    for (int restores = 0; restores < 2; ++restores) { // of the same backup, twice
        Numberer restored(loop, std::make_shared<store::MemoryStore::Shared>(), clock);
        CO_ASSERT_OK(co_await restored.store.apply(testing::carla, store::Transaction().put(backup->key, backup->value)));
        CO_ASSERT_OK(co_await restored.start());
        const auto now = restored.serials->next();
        EXPECT_GT(now, std::max(last, restored_to));
        EXPECT_LT(now - last, std::uint64_t{1} << 31) << "secondaries take it for a later one";
        restored_to = now;
        clock.advance(1min);
    }
}

} // namespace orrery::gslb
