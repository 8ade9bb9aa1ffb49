#include "core/test_fixture.h"
#include "faults/store/history.h"
#include "linearizability.h"
#include "store/sqlite/sqlite_store.h"

#include <gtest/gtest.h>

namespace orrery::store::faults {
namespace {

using Call = testing::RegisterCall;
using Type = Call::Type;
using Outcome = Call::Outcome;

Call write_call(std::int64_t value, std::int64_t called, std::int64_t returned, Outcome outcome = Outcome::done) {
    return {Type::write, "k", 0, value, outcome, called, returned};
}
Call read_call(std::int64_t value, std::int64_t called, std::int64_t returned) {
    return {Type::read, "k", 0, value, Outcome::done, called, returned};
}
Call set_call(std::int64_t expected, std::int64_t value, Outcome outcome, std::int64_t called, std::int64_t returned) {
    return {Type::compare_and_set, "k", expected, value, outcome, called, returned};
}

TEST(Linearizability, AcceptsALinearizableHistory) {
    EXPECT_FALSE(testing::anomaly_in({}));
    // Overlapping writes may fall in either order, and a read among them sees either.
    EXPECT_FALSE(testing::anomaly_in({write_call(1, 1, 6), write_call(2, 2, 5), read_call(2, 3, 4), read_call(1, 7, 8)}));
    EXPECT_FALSE(testing::anomaly_in(
        {write_call(1, 1, 2), set_call(1, 2, Outcome::done, 3, 4), set_call(1, 3, Outcome::refused, 5, 6), read_call(2, 7, 8)}));
    // A write without an answer may show late, or never.
    EXPECT_FALSE(
        testing::anomaly_in({write_call(1, 1, 2), write_call(2, 3, 0, Outcome::unknown), read_call(1, 4, 5), read_call(2, 6, 7)}));
    EXPECT_FALSE(testing::anomaly_in({write_call(1, 1, 2), write_call(2, 3, 0, Outcome::unknown), read_call(1, 4, 5)}));
    EXPECT_FALSE(
        testing::anomaly_in({set_call(0, 1, Outcome::unknown, 1, 0), set_call(0, 2, Outcome::done, 2, 3), read_call(2, 4, 5)}));
}

TEST(Linearizability, RejectsAHistoryThatIsNotLinearizable) {
    // A read of what had been overwritten before it began.
    EXPECT_TRUE(testing::anomaly_in({write_call(1, 1, 2), write_call(2, 3, 4), read_call(1, 5, 6)}));
    // A write that was acknowledged and never seen.
    EXPECT_TRUE(testing::anomaly_in({write_call(1, 1, 2), read_call(0, 3, 4)}));
    // Back and forth.
    EXPECT_TRUE(testing::anomaly_in({write_call(1, 1, 2), write_call(2, 3, 10), read_call(2, 4, 5), read_call(1, 6, 7)}));
    // Two that both set from the same value.
    EXPECT_TRUE(
        testing::anomaly_in({write_call(1, 1, 2), set_call(1, 2, Outcome::done, 3, 5), set_call(1, 3, Outcome::done, 4, 6)}));
    // Refused although it held all the time.
    EXPECT_TRUE(testing::anomaly_in({write_call(1, 1, 2), set_call(1, 2, Outcome::refused, 3, 4), read_call(1, 5, 6)}));
    // An unknown one that took effect twice.
    EXPECT_TRUE(testing::anomaly_in(
        {write_call(1, 1, 0, Outcome::unknown), read_call(1, 2, 3), write_call(2, 4, 5), read_call(2, 6, 7), read_call(1, 8, 9)}));
    const auto words = testing::anomaly_in({write_call(1, 1, 2), read_call(0, 3, 4)});
    EXPECT_NE(words->find("read 0 [3..4]"), std::string::npos) << *words;
}

asio::awaitable<void> sqlite_history(asio::io_context& loop, HistoryOptions options, bool sound) {
    testing::TemporaryFolder folder;
    auto opened = co_await open_sqlite(Context::background(), loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(opened);
    History history(**opened, options);
    co_await history.run(loop.get_executor());
    co_await (*opened)->stop();
    EXPECT_EQ(history.calls().size(), static_cast<std::size_t>(options.calls));
    EXPECT_GT(history.refused(), 0u);
    const auto anomaly = testing::anomaly_in(history.calls());
    if (sound)
        EXPECT_FALSE(anomaly.has_value()) << anomaly.value_or("");
    else
        EXPECT_TRUE(anomaly.has_value());
}

CO_TEST(Linearizability, HoldsForAHundredThousandCallsOnSqlite) { co_await sqlite_history(loop, {}, true); }
CO_TEST(Linearizability, AStaleReadIsFound) { co_await sqlite_history(loop, {.calls = 20'000, .stale_read = 0.001}, false); }
CO_TEST(Linearizability, ALostUpdateIsFound) { co_await sqlite_history(loop, {.calls = 20'000, .lost_update = 0.001}, false); }

} // namespace
} // namespace orrery::store::faults
