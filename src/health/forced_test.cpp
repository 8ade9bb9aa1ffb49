#include "health/forced.h"

#include <gtest/gtest.h>

namespace orrery::health {

using namespace std::chrono_literals;

namespace {

const WallTime forced_now{1'700'000'000'000ms};

} // namespace

TEST(Forced, StandsAboveProbesUntilItsEnd) {
    const Forced down{Forced::What::down, "anna", "disk is replaced", forced_now + 1h};
    auto holds = effective(down, Standing::up, forced_now);
    EXPECT_EQ(holds.standing, Standing::down);
    EXPECT_TRUE(holds.forced);
    EXPECT_EQ(holds.words, "FORCE_DOWN by anna until 2023-11-14T23:13:20.000Z: disk is replaced");
    holds = effective(down, Standing::up, forced_now + 1h);
    EXPECT_EQ(holds.standing, Standing::up);
    EXPECT_FALSE(holds.forced);
    EXPECT_EQ(effective(Forced{Forced::What::up, "anna", "probe is wrong", {}}, Standing::down, forced_now).standing, Standing::up);
    const auto drained = effective(Forced{Forced::What::drain, "job 7", "upgrade", {}}, Standing::up, forced_now);
    EXPECT_TRUE(drained.drained);
    EXPECT_EQ(drained.standing, Standing::up);
    EXPECT_FALSE(effective(std::nullopt, Standing::degraded, forced_now).forced);
}

TEST(Forced, ReadsWhatItWritesAndRefusesTheRest) {
    const Forced one{Forced::What::drain, "anna", "upgrade", forced_now};
    const auto again = Forced::from_json(one.to_json());
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->to_json(), one.to_json());
    const std::vector<std::pair<json::value, std::string>> bad{
        {1, "object"},
        {json::object{{"state", "SLEEP"}, {"author", "a"}, {"reason", "r"}}, "SLEEP"},
        {json::object{{"state", "DRAIN"}, {"reason", "r"}}, "author"},
        {json::object{{"state", "DRAIN"}, {"author", "a"}}, "reason"},
        {json::object{{"state", "DRAIN"}, {"author", "a"}, {"reason", "r"}, {"until", "tomorrow"}}, "until"},
    };
    for (const auto& [value, word] : bad) {
        const auto read = Forced::from_json(value);
        ASSERT_FALSE(read.ok());
        EXPECT_NE(read.error().message.find(word), std::string::npos) << read.error().message;
    }
}

TEST(Failback, ComesAtOnceLaterOrWhenToldTo) {
    EXPECT_TRUE(may_return({}, forced_now, false, forced_now).back);
    const Failback delayed{Failback::How::delayed, 5min};
    EXPECT_FALSE(may_return(delayed, forced_now, false, forced_now + 4min).back);
    EXPECT_EQ(may_return(delayed, forced_now, false, forced_now).words, "it is up again and returns at 2023-11-14T22:18:20.000Z");
    EXPECT_TRUE(may_return(delayed, forced_now, false, forced_now + 5min).back);
    const Failback manual{Failback::How::manual, {}};
    EXPECT_FALSE(may_return(manual, forced_now, false, forced_now + 24h).back);
    EXPECT_TRUE(may_return(manual, forced_now, true, forced_now).back);
}

TEST(Memory, SurvivesBeingWrittenAndWhateverElseIsRead) {
    const Memory one{Standing::down, forced_now, Outcome::timeout_connect, std::string(1000, 'x')};
    const auto again = Memory::from_json(one.to_json());
    EXPECT_EQ(again.standing, Standing::down);
    EXPECT_EQ(again.since, forced_now);
    EXPECT_EQ(again.last, Outcome::timeout_connect);
    EXPECT_EQ(again.text.size(), 256U);
    for (const json::value& bad :
         {json::value(nullptr), json::value("up"), json::value(json::object{{"standing", 7}, {"since", "x"}})}) {
        const auto read = Memory::from_json(bad);
        EXPECT_EQ(read.standing, Standing::unknown);
        EXPECT_EQ(read.last, Outcome::local_error);
    }
    EXPECT_FALSE(worth_storing(one, Memory{Standing::down, forced_now + 1h, Outcome::refused, "other words"}));
    EXPECT_TRUE(worth_storing(one, Memory{Standing::up, forced_now, Outcome::ok, ""}));
    EXPECT_TRUE(Verdict::remembered({}, again.standing).stale());
}

} // namespace orrery::health
