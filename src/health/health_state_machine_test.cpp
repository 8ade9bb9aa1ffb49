#include "health/health_state_machine.h"

#include <gtest/gtest.h>

namespace orrery::health {

TEST(EvidenceText, IsOnePrintableLineCutBetweenCharacters) {
    EXPECT_EQ(evidence_text("plain"), "plain");
    EXPECT_EQ(evidence_text(" a\r\n\tb\x7f\x1b c "), "a b c");
    EXPECT_EQ(evidence_text("Gr\xc3\xbc\xc3\x9f"
                            "e"),
              "Gr\xc3\xbc\xc3\x9f"
              "e");
    EXPECT_EQ(evidence_text("bad \xff\xc3 bytes \xed\xa0\x80"), "bad bytes");
    const auto cut = evidence_text(std::string(200, 'x') + std::string(100, '\xc3'));
    EXPECT_EQ(cut, std::string(200, 'x'));
    std::string umlauts;
    for (int i = 0; i < 300; ++i) umlauts += "\xc3\xbc";
    const auto longest = evidence_text(umlauts);
    EXPECT_LE(longest.size(), 256U);
    EXPECT_TRUE(longest.ends_with("\xc3\xbc..."));
}

namespace {

/// Feeds '+' (good), '-' (bad), 'w' (warning), '?' (no evidence) and writes the standing after each: U up, D down, G degraded, ?
/// unknown.
std::string after(HealthStateMachine verdict, std::string_view results) {
    std::string out;
    for (const char c : results) {
        Observation seen;
        seen.outcome = c == '+' ? Outcome::ok : c == 'w' ? Outcome::warning : c == '-' ? Outcome::refused : Outcome::local_error;
        verdict.update(seen);
        switch (verdict.state()) {
        case HealthState::unknown: out += '?'; break;
        case HealthState::up: out += 'U'; break;
        case HealthState::degraded: out += 'G'; break;
        case HealthState::down: out += 'D'; break;
        }
    }
    return out;
}

} // namespace

TEST(HealthStateMachine, TheFirstEvidenceDecidesThenThresholdsApply) {
    const Thresholds usual{.rise = 2, .fall = 3, .forgive = 1};
    EXPECT_EQ(after(HealthStateMachine(usual), "+"), "U");
    EXPECT_EQ(after(HealthStateMachine(usual), "-"), "D");
    EXPECT_EQ(after(HealthStateMachine(usual), "??+"), "??U");
    EXPECT_EQ(after(HealthStateMachine(usual), "+--+---"), "UUUUUUD");
    EXPECT_EQ(after(HealthStateMachine(usual), "+---+-++"), "UUUDDDDU");
    EXPECT_EQ(after(HealthStateMachine(usual), "+w+"), "UGU");
    EXPECT_EQ(after(HealthStateMachine(usual), "-ww"), "DDG");
}

TEST(HealthStateMachine, ForgivesAfterTheThresholdOfGoodResults) {
    // gdnsd's rule: ten failures not separated by ok_thresh successes.
    EXPECT_EQ(after(HealthStateMachine({.rise = 1, .fall = 3, .forgive = 2}), "+-+-+-"), "UUUUUD");
    EXPECT_EQ(after(HealthStateMachine({.rise = 1, .fall = 3, .forgive = 1}), "+-+-+-"), "UUUUUU");
}

TEST(HealthStateMachine, NoEvidenceChangesNothing) {
    EXPECT_EQ(after(HealthStateMachine({.rise = 2, .fall = 2}), "+-?-"), "UUUD");
    EXPECT_EQ(after(HealthStateMachine({.rise = 2, .fall = 2}), "+????????"), "UUUUUUUUU");
}

TEST(HealthStateMachine, KeepsTheRememberedStateUntilThereIsEvidence) {
    auto verdict = HealthStateMachine::remembered({.rise = 2, .fall = 3}, HealthState::up);
    EXPECT_TRUE(verdict.stale());
    EXPECT_EQ(verdict.until_change(), 3);
    Observation none{.outcome = Outcome::local_error};
    EXPECT_FALSE(verdict.update(none));
    EXPECT_TRUE(verdict.stale());
    Observation bad{.outcome = Outcome::timeout_connect};
    EXPECT_FALSE(verdict.update(bad));
    EXPECT_FALSE(verdict.stale());
    EXPECT_TRUE(verdict.is_up());
    EXPECT_EQ(verdict.until_change(), 2);
    EXPECT_TRUE(verdict.in_transition());
}

} // namespace orrery::health
