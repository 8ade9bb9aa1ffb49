#include "health/verdict.h"

#include <gtest/gtest.h>

namespace orrery::health {

namespace {

/// Feeds '+' (good), '-' (bad), 'w' (warning), '?' (no evidence) and writes the standing after each: U up, D down, G degraded, ?
/// unknown.
std::string after(Verdict verdict, std::string_view results) {
    std::string out;
    for (const char c : results) {
        Observation seen;
        seen.outcome = c == '+' ? Outcome::ok : c == 'w' ? Outcome::warning : c == '-' ? Outcome::refused : Outcome::local_error;
        verdict.take(seen);
        switch (verdict.standing()) {
        case Standing::unknown: out += '?'; break;
        case Standing::up: out += 'U'; break;
        case Standing::degraded: out += 'G'; break;
        case Standing::down: out += 'D'; break;
        }
    }
    return out;
}

} // namespace

TEST(Verdict, TheFirstEvidenceDecidesThenItTakesSome) {
    const Thresholds usual{.rise = 2, .fall = 3, .forgive = 1};
    EXPECT_EQ(after(Verdict(usual), "+"), "U");
    EXPECT_EQ(after(Verdict(usual), "-"), "D");
    EXPECT_EQ(after(Verdict(usual), "??+"), "??U");
    EXPECT_EQ(after(Verdict(usual), "+--+---"), "UUUUUUD");
    EXPECT_EQ(after(Verdict(usual), "+---+-++"), "UUUDDDDU");
    EXPECT_EQ(after(Verdict(usual), "+w+"), "UGU");
    EXPECT_EQ(after(Verdict(usual), "-ww"), "DDG");
}

TEST(Verdict, ForgivesOnlyAfterSoManyGoodOnes) {
    // gdnsd's rule: ten failures not separated by ok_thresh successes.
    EXPECT_EQ(after(Verdict({.rise = 1, .fall = 3, .forgive = 2}), "+-+-+-"), "UUUUUD");
    EXPECT_EQ(after(Verdict({.rise = 1, .fall = 3, .forgive = 1}), "+-+-+-"), "UUUUUU");
}

TEST(Verdict, WhatIsNoEvidenceChangesNothing) {
    EXPECT_EQ(after(Verdict({.rise = 2, .fall = 2}), "+-?-"), "UUUD");
    EXPECT_EQ(after(Verdict({.rise = 2, .fall = 2}), "+????????"), "UUUUUUUUU");
}

TEST(Verdict, StandsOverARestartUntilThereIsEvidence) {
    auto verdict = Verdict::remembered({.rise = 2, .fall = 3}, Standing::up);
    EXPECT_TRUE(verdict.stale());
    EXPECT_EQ(verdict.until_change(), 3);
    Observation none{.outcome = Outcome::local_error};
    EXPECT_FALSE(verdict.take(none));
    EXPECT_TRUE(verdict.stale());
    Observation bad{.outcome = Outcome::timeout_connect};
    EXPECT_FALSE(verdict.take(bad));
    EXPECT_FALSE(verdict.stale());
    EXPECT_TRUE(verdict.is_up());
    EXPECT_EQ(verdict.until_change(), 2);
    EXPECT_TRUE(verdict.in_transition());
}

} // namespace orrery::health
