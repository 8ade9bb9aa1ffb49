#include "core/log.h"
#include "core/log_history.h"

#include <gtest/gtest.h>

namespace orrery::log {

namespace {
const WallTime log_test_time = *from_rfc3339("2026-11-16T04:42:52.007Z");
}

TEST(Log, LogfmtQuotesAndKeepsOneLine) {
    EXPECT_EQ(render({.format = Format::logfmt}, Level::warn, log_test_time, "c1", "alice", "two\nlines \"q\""),
              R"(time=2026-11-16T04:42:52.007Z level=warn context=c1 actor=alice message="two\nlines \"q\"")");
}

TEST(Log, LogfmtEscapesBackslashesSoThatTextCannotEndAValue) {
    EXPECT_EQ(render({.format = Format::logfmt}, Level::warn, log_test_time, "c1", "alice", R"(x\" level=error a\)"),
              R"(time=2026-11-16T04:42:52.007Z level=warn context=c1 actor=alice message="x\\\" level=error a\\")");
    EXPECT_EQ(render({.format = Format::logfmt}, Level::warn, log_test_time, "c1", R"(a\)", "\x1b[31mred"),
              R"(time=2026-11-16T04:42:52.007Z level=warn context=c1 actor="a\\" message="\u001b[31mred")");
}

TEST(Log, JsonIsOneObject) {
    EXPECT_EQ(render({.format = Format::json}, Level::info, log_test_time, "c1", "alice", "a\nb"),
              R"({"time":"2026-11-16T04:42:52.007Z","level":"info","context":"c1","actor":"alice","message":"a\nb"})");
}

TEST(Log, HumanFormEscapesTerminalControl) {
    EXPECT_EQ(render({.format = Format::human}, Level::info, log_test_time, "c1", "alice", "\x1b[31mred"),
              "04:42:52.007 info  \\x1b[31mred  [alice c1]");
}

TEST(LogHistory, FindsLinesByContextLevelAndTimeInTheirOrder) {
    History kept;
    kept.add(Level::info, log_test_time, "a", "alice", "one");
    kept.add(Level::info, log_test_time, "b", "bob", "of another");
    kept.add(Level::warn, log_test_time + std::chrono::seconds(1), "a", "alice", "two");
    const auto all = kept.find({.context = "a"});
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].message, "one");
    EXPECT_EQ(all[1].message, "two");
    EXPECT_LT(all[0].number, all[1].number);
    EXPECT_EQ(kept.find({.context = "a", .level = Level::warn}).size(), 1u);
    EXPECT_EQ(kept.find({.since = log_test_time + std::chrono::seconds(1)}).size(), 1u);
    EXPECT_EQ(kept.find({.limit = 1}).at(0).message, "two");
    EXPECT_FALSE(kept.complete_since());
}

TEST(LogHistory, IsBoundedByLinesAndBytesAndReportsSinceWhenItIsComplete) {
    History kept;
    for (std::size_t i = 0; i <= History::max_lines; ++i)
        kept.add(Level::info, log_test_time + std::chrono::milliseconds(i), "a", "alice", "x");
    EXPECT_LE(kept.find({.limit = 2 * History::max_lines}).size(), History::max_lines);
    EXPECT_GT(kept.complete_since().value(), log_test_time);
    History long_lines;
    for (int i = 0; i < 4000; ++i) long_lines.add(Level::info, log_test_time, "a", "alice", std::string(100'000, 'x'));
    const auto left = long_lines.find({.limit = 4000});
    EXPECT_LT(left.size(), 2100u);
    EXPECT_EQ(left.front().message.size(), History::max_message);
}

} // namespace orrery::log
