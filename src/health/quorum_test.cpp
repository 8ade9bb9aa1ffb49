#include "health/quorum.h"

#include <gtest/gtest.h>

namespace orrery::health {

using namespace std::chrono_literals;

namespace {

const WallTime quorum_now{1'700'000'000'000ms};

/// 'U' up, 'D' down, 'G' degraded, '?' no evidence, 's' down but stale, 'o' down but old, 'x' down but set aside.
std::vector<Report> reports_of(std::string_view letters) {
    std::vector<Report> out;
    for (const char c : letters) {
        Report one{.vantage = "dc" + std::to_string(out.size() + 1), .at = quorum_now - 1s};
        one.standing = c == 'U' ? Standing::up : c == 'G' ? Standing::degraded : c == '?' ? Standing::unknown : Standing::down;
        one.last = c == 'U' ? Outcome::ok : c == 'G' ? Outcome::warning : c == '?' ? Outcome::local_error : Outcome::refused;
        one.stale = c == 's';
        one.fit = c != 'x';
        if (c == 'x') one.unfit_because = "2 of 2 canaries fail";
        if (c == 'o') one.at = quorum_now - 5min;
        out.push_back(one);
    }
    return out;
}

} // namespace

TEST(Quorum, TakesDownOnlyWithEnoughVoices) {
    struct Case {
        std::string_view reports;
        int need;
        Standing before, after;
        bool withheld;
    };
    const std::vector<Case> cases{
        {"UUU", 0, Standing::up, Standing::up, false},
        {"DDU", 0, Standing::up, Standing::down, false},
        {"DUU", 0, Standing::up, Standing::up, true},
        {"DU", 0, Standing::up, Standing::up, true},     // half is not more than half
        {"D", 0, Standing::up, Standing::down, false},   // alone, it is all there is
        {"D", 2, Standing::up, Standing::up, true},      // one voice where two are needed
        {"D", 2, Standing::down, Standing::down, false}, // and nobody says it is back
        {"DU", 2, Standing::down, Standing::up, true},
        {"Dxx", 0, Standing::up, Standing::down, false}, // those set aside have no voice
        {"Uxx", 0, Standing::up, Standing::up, false},
        {"xxx", 0, Standing::up, Standing::up, false}, // nobody can tell: as it was
        {"sso", 0, Standing::up, Standing::up, false},
        {"???", 0, Standing::down, Standing::down, false},
        {"", 0, Standing::unknown, Standing::unknown, false},
        {"D", 2, Standing::unknown, Standing::unknown, true},
        {"GGU", 0, Standing::up, Standing::up, false},
        {"GGD", 0, Standing::up, Standing::degraded, true},
    };
    for (const auto& one : cases) {
        const auto decision = decide(reports_of(one.reports), {.need = one.need, .fresh = 60s}, one.before, quorum_now);
        EXPECT_EQ(decision.standing, one.after) << one.reports << " " << decision.words;
        EXPECT_EQ(decision.withheld, one.withheld) << one.reports << " " << decision.words;
        EXPECT_EQ(decision.evidence.size(), one.reports.size());
    }
}

TEST(Quorum, SaysWhyInWordsAndData) {
    auto reports = reports_of("DDUx");
    reports[0].failures = 3;
    reports[0].took = 1000ms;
    const auto decision = decide(reports, {.need = 2}, Standing::up, quorum_now);
    EXPECT_EQ(decision.words, "2 of 3 down, need 2; 1 of 4 vantages left out, 1 of them would say down");
    EXPECT_EQ(to_json_text(decision.evidence[0]), R"({"vantage":"dc1","class":"refused","ms":1000,"n_fail":3,"says":"down"})");
    EXPECT_EQ(
        to_json_text(decision.evidence[3]),
        R"({"vantage":"dc4","class":"refused","ms":0,"left_out":"2 of 2 canaries fail","set_aside":true,"would_say":"down"})");
    EXPECT_EQ(decide(reports_of("o"), {}, Standing::up, quorum_now).words, "no vantage has fresh evidence");
    EXPECT_EQ(decide({}, {}, Standing::up, quorum_now).words, "no vantage looks at it");
}

} // namespace orrery::health
