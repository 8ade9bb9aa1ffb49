#include "health/vantages/quorum.h"

#include <gtest/gtest.h>

namespace orrery::health {

using namespace std::chrono_literals;

namespace {

const WallTime quorum_now{1'700'000'000'000ms};

/// 'U' up, 'D' down, 'G' degraded, '?' no evidence, 's' down but stale, 'o' down but old, 'x' down but quarantined.
std::vector<Report> reports_of(std::string_view letters) {
    std::vector<Report> out;
    for (const char c : letters) {
        Report one{.vantage = "dc" + std::to_string(out.size() + 1), .at = quorum_now - 1s};
        one.state = c == 'U'   ? HealthState::up
                    : c == 'G' ? HealthState::degraded
                    : c == '?' ? HealthState::unknown
                               : HealthState::down;
        one.last = c == 'U' ? Outcome::ok : c == 'G' ? Outcome::warning : c == '?' ? Outcome::local_error : Outcome::refused;
        one.stale = c == 's';
        one.trusted = c != 'x';
        if (c == 'x') one.untrusted_reason = "2 of 2 canaries fail";
        if (c == 'o') one.at = quorum_now - 5min;
        out.push_back(one);
    }
    return out;
}

} // namespace

TEST(Quorum, GoesDownOnlyWithEnoughReports) {
    struct Case {
        std::string_view reports;
        int need;
        HealthState before, after;
        bool withheld;
    };
    const std::vector<Case> cases{
        {"UUU", 0, HealthState::up, HealthState::up, false},
        {"DDU", 0, HealthState::up, HealthState::down, false},
        {"DUU", 0, HealthState::up, HealthState::up, true},
        {"DU", 0, HealthState::up, HealthState::up, true},     // half is not more than half
        {"D", 0, HealthState::up, HealthState::down, false},   // alone, it is all there is
        {"D", 2, HealthState::up, HealthState::up, true},      // one voice where two are needed
        {"D", 2, HealthState::down, HealthState::down, false}, // and no vantage reports it up
        {"DU", 2, HealthState::down, HealthState::up, true},
        {"Dxx", 0, HealthState::up, HealthState::down, false}, // quarantined vantages do not count
        {"Uxx", 0, HealthState::up, HealthState::up, false},
        {"xxx", 0, HealthState::up, HealthState::up, false}, // no vantage counts: as before
        {"sso", 0, HealthState::up, HealthState::up, false},
        {"???", 0, HealthState::down, HealthState::down, false},
        {"", 0, HealthState::unknown, HealthState::unknown, false},
        {"D", 2, HealthState::unknown, HealthState::unknown, true},
        {"GGU", 0, HealthState::up, HealthState::up, false},
        {"GGD", 0, HealthState::up, HealthState::degraded, true},
    };
    for (const auto& one : cases) {
        const auto decision = decide(reports_of(one.reports), {.need = one.need, .fresh = 60s}, one.before, quorum_now);
        EXPECT_EQ(decision.state, one.after) << one.reports << " " << decision.message;
        EXPECT_EQ(decision.withheld, one.withheld) << one.reports << " " << decision.message;
        EXPECT_EQ(decision.evidence.size(), one.reports.size());
    }
}

TEST(Quorum, ExplainsItsDecision) {
    auto reports = reports_of("DDUx");
    reports[0].failures = 3;
    reports[0].took = 1000ms;
    const auto decision = decide(reports, {.need = 2}, HealthState::up, quorum_now);
    EXPECT_EQ(decision.message, "2 of 3 down, need 2; 1 of 4 vantages left out, 1 of them would report down");
    EXPECT_EQ(to_json_text(decision.evidence[0]), R"({"vantage":"dc1","class":"refused","ms":1000,"n_fail":3,"state":"down"})");
    EXPECT_EQ(
        to_json_text(decision.evidence[3]),
        R"({"vantage":"dc4","class":"refused","ms":0,"excluded":"2 of 2 canaries fail","quarantined":true,"ignored_state":"down"})");
    EXPECT_EQ(decide(reports_of("o"), {}, HealthState::up, quorum_now).message, "no vantage has fresh evidence");
    EXPECT_EQ(decide({}, {}, HealthState::up, quorum_now).message, "no vantage checks it");
}

} // namespace orrery::health
