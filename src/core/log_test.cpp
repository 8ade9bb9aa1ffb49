#include "core/log.h"

#include <gtest/gtest.h>

namespace orrery::log {

namespace {
const WallTime log_test_time = *from_rfc3339("2026-11-16T04:42:52.007Z");
}

TEST(Log, LogfmtQuotesAndKeepsOneLine) {
    EXPECT_EQ(render({.format = Format::logfmt}, Level::warn, log_test_time, "c1", "alice", "two\nlines \"q\""),
              R"(time=2026-11-16T04:42:52.007Z level=warn context=c1 actor=alice message="two\nlines \"q\"")");
}

TEST(Log, JsonIsOneObject) {
    EXPECT_EQ(render({.format = Format::json}, Level::info, log_test_time, "c1", "alice", "a\nb"),
              R"({"time":"2026-11-16T04:42:52.007Z","level":"info","context":"c1","actor":"alice","message":"a\nb"})");
}

TEST(Log, HumanFormEscapesTerminalControl) {
    EXPECT_EQ(render({.format = Format::human}, Level::info, log_test_time, "c1", "alice", "\x1b[31mred"),
              "04:42:52.007 info  \\x1b[31mred  [alice c1]");
}

} // namespace orrery::log
