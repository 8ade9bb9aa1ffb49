#include "jobs/templates/schedule.h"

#include <boost/json/parse.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace orrery::jobs {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Schedule hourly(std::string_view more) {
    std::vector<FieldError> errors;
    const auto spec = json::parse(std::string(R"({"schedules":[{"name":"s","cron":"0 * * * *")") + std::string(more) + "}]}");
    auto read = read_schedules(spec.get_object(), errors);
    EXPECT_TRUE(errors.empty()) << errors.front().path << errors.front().message;
    return read.at(0);
}

WallTime hour(int hours, Duration more = {}) {
    return *from_rfc3339("2026-11-17T00:00:00Z") + std::chrono::hours(hours) +
           std::chrono::duration_cast<std::chrono::milliseconds>(more);
}

ScheduleDecision evaluate(const Schedule& schedule, ScheduleState state, WallTime now, bool busy = false,
                          std::set<WallTime> started = {}) {
    return evaluate_schedule(schedule, std::move(state), now, busy, [&](WallTime due) { return started.contains(due); });
}

TEST(Schedule, ADueRunStartsOnceAndTheNextIsKnown) {
    const auto schedule = hourly("");
    auto decision = evaluate(schedule, {hour(0), {}}, hour(0, 59min));
    EXPECT_THAT(decision.start, IsEmpty());
    EXPECT_EQ(decision.next_due, hour(1));
    decision = evaluate(schedule, decision.state, hour(1, 2s));
    EXPECT_THAT(decision.start, ElementsAre(hour(1)));
    EXPECT_THAT(evaluate(schedule, decision.state, hour(1, 3s)).start, IsEmpty());
    // Killed before the state was stored: the run exists, and is neither started again nor missed.
    decision = evaluate(schedule, {hour(0), {}}, hour(1, 30min), true, {hour(1)});
    EXPECT_THAT(decision.start, IsEmpty());
    EXPECT_EQ(decision.missed, 0u);
    EXPECT_EQ(decision.state.evaluated_until, hour(1));
}

TEST(Schedule, MissedRunsFollowThePolicy) {
    const ScheduleState before{hour(0), {}};
    auto decision = evaluate(hourly(R"(,"missed":"skip")"), before, hour(3, 30min));
    EXPECT_THAT(decision.start, IsEmpty());
    EXPECT_EQ(decision.missed, 3u);
    EXPECT_EQ(decision.last_missed, hour(3));
    EXPECT_EQ(decision.state.evaluated_until, hour(3));
    decision = evaluate(hourly(R"(,"missed":"run-once")"), before, hour(3, 30min));
    EXPECT_THAT(decision.start, ElementsAre(hour(3)));
    EXPECT_EQ(decision.missed, 2u);
    decision = evaluate(hourly(R"(,"missed":"run-all","overlap":"allow")"), before, hour(3, 30min));
    EXPECT_THAT(decision.start, ElementsAre(hour(1), hour(2), hour(3)));
    decision = evaluate(hourly(R"(,"missed":"run-all","overlap":"allow")"), before, hour(200));
    EXPECT_EQ(decision.start.size(), max_missed_runs);
    EXPECT_EQ(decision.start.back(), hour(200));
    EXPECT_EQ(decision.missed, 190u);
}

TEST(Schedule, NothingStartsAfterItsDeadline) {
    const ScheduleState before{hour(0), {}};
    EXPECT_THAT(evaluate(hourly(R"(,"start_deadline":"40m")"), before, hour(1, 30min)).start, ElementsAre(hour(1)));
    EXPECT_THAT(evaluate(hourly(R"(,"start_deadline":"20m")"), before, hour(1, 30min)).start, IsEmpty());
    EXPECT_THAT(evaluate(hourly(R"(,"missed":"run-once","start_deadline":"20m")"), before, hour(1, 30min)).start, IsEmpty());
    const auto all = evaluate(hourly(R"(,"missed":"run-all","overlap":"allow","start_deadline":"100m")"), before, hour(3, 30min));
    EXPECT_THAT(all.start, ElementsAre(hour(2), hour(3)));
}

TEST(Schedule, OverlapsAreForbiddenAllowedOrQueued) {
    const ScheduleState before{hour(0), {}};
    auto decision = evaluate(hourly(""), before, hour(1), true);
    EXPECT_THAT(decision.start, IsEmpty());
    EXPECT_THAT(decision.overlapped, ElementsAre(hour(1)));
    EXPECT_THAT(evaluate(hourly(R"(,"overlap":"allow")"), before, hour(1), true).start, ElementsAre(hour(1)));
    const auto queue = hourly(R"(,"overlap":"queue")");
    decision = evaluate(queue, before, hour(1), true);
    EXPECT_THAT(decision.state.queued, ElementsAre(hour(1)));
    // The one that waits is replaced by a later one; when the run ends it starts, however late.
    decision = evaluate(queue, decision.state, hour(2), true);
    EXPECT_THAT(decision.state.queued, ElementsAre(hour(2)));
    EXPECT_THAT(decision.overlapped, ElementsAre(hour(1)));
    decision = evaluate(queue, decision.state, hour(2, 45min), false);
    EXPECT_THAT(decision.start, ElementsAre(hour(2)));
    EXPECT_THAT(decision.state.queued, IsEmpty());
    // With run-all each waits its turn.
    const auto all = hourly(R"(,"overlap":"queue","missed":"run-all")");
    decision = evaluate(all, before, hour(3), false);
    EXPECT_THAT(decision.start, ElementsAre(hour(1)));
    EXPECT_THAT(decision.state.queued, ElementsAre(hour(2), hour(3)));
}

TEST(Schedule, ASuspendedOneStartsNothingAndHasNoNextRun) {
    const auto decision = evaluate(hourly(R"(,"suspended":true)"), {hour(0), {hour(0)}}, hour(5));
    EXPECT_THAT(decision.start, IsEmpty());
    EXPECT_THAT(decision.state.queued, IsEmpty());
    EXPECT_FALSE(decision.next_due);
    EXPECT_EQ(decision.missed, 0u);
}

TEST(Schedule, AClockThatIsSetBackStartsNothingTwice) {
    EXPECT_THAT(evaluate(hourly(""), {hour(5), {}}, hour(4)).start, IsEmpty());
}

} // namespace
} // namespace orrery::jobs
