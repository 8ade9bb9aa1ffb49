#include "jobs/templates/cron.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::jobs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

WallTime time_at(std::string_view text) {
    const auto read = from_rfc3339(text);
    EXPECT_TRUE(read.ok()) << text;
    return *read;
}

/// The next `count` due times after `after`.
std::vector<std::string> due_times(std::string_view cron, std::string_view zone, std::string_view after, int count) {
    const auto expression = CronExpression::parse(cron);
    const auto where = TimeZone::load(zone);
    EXPECT_TRUE(expression.ok() && where.ok()) << cron << " " << zone;
    std::vector<std::string> out;
    auto at = std::optional(time_at(after));
    for (int i = 0; i < count && at; ++i) {
        at = expression->next_after(*at, *where);
        out.push_back(at ? to_rfc3339(*at).substr(0, 16) : "never");
    }
    return out;
}

TEST(Cron, FieldsListsRangesStepsAndNames) {
    EXPECT_THAT(due_times("*/20 9-10 * * *", "UTC", "2026-03-01T09:20:00Z", 4),
                ElementsAre("2026-03-01T09:40", "2026-03-01T10:00", "2026-03-01T10:20", "2026-03-01T10:40"));
    EXPECT_THAT(due_times("30 2 * * mon-fri", "UTC", "2026-11-13T02:30:00Z", 2),
                ElementsAre("2026-11-16T02:30", "2026-11-17T02:30"));
    EXPECT_THAT(due_times("0 0 1 JAN,jul *", "UTC", "2026-01-01T00:00:00Z", 2),
                ElementsAre("2026-07-01T00:00", "2027-01-01T00:00"));
    EXPECT_THAT(due_times("0 12 * * 7", "UTC", "2026-11-17T00:00:00Z", 1), ElementsAre("2026-11-22T12:00"));
    EXPECT_THAT(due_times("5/20 * * * *", "UTC", "2026-11-17T10:06:00Z", 2), ElementsAre("2026-11-17T10:25", "2026-11-17T10:45"));
    EXPECT_THAT(due_times("@weekly", "UTC", "2026-11-17T00:00:00Z", 1), ElementsAre("2026-11-22T00:00"));
    EXPECT_THAT(due_times("@hourly", "UTC", "2026-11-17T10:00:00.001Z", 1), ElementsAre("2026-11-17T11:00"));
    // Two kinds of days that are both restricted: either is enough.
    EXPECT_THAT(due_times("0 0 13 * fri", "UTC", "2026-11-12T12:00:00Z", 3),
                ElementsAre("2026-11-13T00:00", "2026-11-20T00:00", "2026-11-27T00:00"));
}

TEST(Cron, MonthEndsAndLeapYears) {
    EXPECT_THAT(due_times("0 0 31 * *", "UTC", "2026-01-31T00:00:00Z", 3),
                ElementsAre("2026-03-31T00:00", "2026-05-31T00:00", "2026-07-31T00:00"));
    EXPECT_THAT(due_times("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 2), ElementsAre("2028-02-29T00:00", "2032-02-29T00:00"));
    EXPECT_THAT(due_times("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", 1),
                ElementsAre("2104-02-29T00:00")); // 2100 is not a leap year
    EXPECT_THAT(due_times("59 23 31 12 *", "UTC", "2026-12-31T23:59:00Z", 1), ElementsAre("2027-12-31T23:59"));
}

TEST(Cron, ATimeThatTheClocksSkipIsDueWhenTheySkipIt) {
    // Europe/Berlin, 2027-03-28: 02:00 becomes 03:00 at 01:00 UTC.
    EXPECT_THAT(due_times("30 2 * * *", "Europe/Berlin", "2027-03-27T00:00:00Z", 3),
                ElementsAre("2027-03-27T01:30", "2027-03-28T01:00", "2027-03-29T00:30"));
    EXPECT_THAT(due_times("0 2,3 * * *", "Europe/Berlin", "2027-03-28T00:59:00Z", 2),
                ElementsAre("2027-03-28T01:00", "2027-03-29T00:00"));
    // Every half hour is every half hour: nothing is added for the hour that is not there.
    EXPECT_THAT(due_times("*/30 * * * *", "Europe/Berlin", "2027-03-28T00:20:00Z", 3),
                ElementsAre("2027-03-28T00:30", "2027-03-28T01:00", "2027-03-28T01:30"));
}

TEST(Cron, ATimeThatTheClocksRepeatIsDueOnce) {
    // Europe/Berlin, 2026-10-25: 03:00 becomes 02:00 at 01:00 UTC; 02:30 is at 00:30 and at 01:30 UTC.
    EXPECT_THAT(due_times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
                ElementsAre("2026-10-25T00:30", "2026-10-26T01:30"));
    EXPECT_THAT(due_times("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", 1), ElementsAre("2026-10-26T01:30"));
    EXPECT_THAT(due_times("30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 3),
                ElementsAre("2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"));
    // The other hemisphere, and a change of half an hour.
    EXPECT_THAT(due_times("45 1 * * *", "Australia/Lord_Howe", "2027-04-03T00:00:00Z", 2),
                ElementsAre("2027-04-03T14:45", "2027-04-04T15:15"));
}

TEST(Cron, ZonesBeyondTheNextTransitionAndWithoutAny) {
    EXPECT_THAT(due_times("0 12 1 7 *", "America/New_York", "2036-01-01T00:00:00Z", 1), ElementsAre("2036-07-01T16:00"));
    EXPECT_THAT(due_times("0 12 1 1 *", "America/New_York", "2036-01-02T00:00:00Z", 1), ElementsAre("2037-01-01T17:00"));
    EXPECT_THAT(due_times("15 0 * * *", "Asia/Kathmandu", "2026-11-17T00:00:00Z", 1), ElementsAre("2026-11-17T18:30"));
}

TEST(Cron, EachDueTimeIsAfterTheOneBefore) {
    for (const auto* zone : {"Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia"})
        for (const auto* cron : {"*/7 * * * *", "30 0-3 * * *", "0 2 * * *", "59 23 * * *", "0 0 1 * *"}) {
            const auto expression = CronExpression::parse(cron);
            const auto where = TimeZone::load(zone);
            ASSERT_TRUE(expression.ok() && where.ok());
            auto at = time_at("2026-01-01T00:00:00Z");
            for (int i = 0; i < 500; ++i) {
                const auto next = expression->next_after(at, *where);
                ASSERT_TRUE(next) << zone << " " << cron;
                ASSERT_GT(*next, at) << zone << " " << cron;
                // From any moment in between it is the same one.
                ASSERT_EQ(expression->next_after(at + (*next - at) / 2, *where), next)
                    << zone << " " << cron << " " << to_rfc3339(at);
                at = *next;
            }
        }
}

TEST(Cron, ErrorsNameTheField) {
    const auto message = [](std::string_view text) { return CronExpression::parse(text).error().message; };
    EXPECT_THAT(message("* * * *"), HasSubstr("has 4 fields"));
    EXPECT_THAT(message("60 * * * *"), HasSubstr("minute \"60\""));
    EXPECT_THAT(message("* 5-2 * * *"), HasSubstr("before its beginning"));
    EXPECT_THAT(message("* * * foo *"), HasSubstr("month \"foo\""));
    EXPECT_THAT(message("*/0 * * * *"), HasSubstr("a step"));
    EXPECT_THAT(message("0 0 31 2 *"), HasSubstr("no date"));
    EXPECT_THAT(message("@often"), HasSubstr("has 1 fields"));
    for (const auto* text : {"", " ", ",", "1, * * * *", "-1 * * * *", "1-/ * * * *", "* * * * 8", "99999999999999999999 * * * *"})
        EXPECT_FALSE(CronExpression::parse(text).ok()) << text;
    for (const auto* zone : {"", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "localtime", "Europe/Berlin\n"})
        EXPECT_FALSE(TimeZone::load(zone).ok()) << zone;
}

} // namespace
} // namespace orrery::jobs
