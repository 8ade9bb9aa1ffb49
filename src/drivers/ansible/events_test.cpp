#include "drivers/ansible/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::drivers::events_test {

namespace {
using jobs::ErrorClass;
using jobs::Outcome;
using jobs::Step;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Heard {
    AnsibleEvents events;
    std::vector<Step> steps;
    std::string text;
    Heard() {
        events.on_step = [this](Step step) { steps.push_back(std::move(step)); };
        events.on_text = [this](std::string_view piece) { text += piece; };
    }
    Heard& line(std::string_view text_) {
        events.line(text_);
        return *this;
    }
};

Outcome outcome_of_stats(const std::string& hosts, int exit_code) {
    Heard heard;
    heard.line(R"({"event":"stats","hosts":)" + hosts + "}");
    return ansible_outcome(heard.events, exit_code, 2, "");
}
} // namespace

TEST(AnsibleEvents, BecomeStepsAndLines) {
    Heard heard;
    heard.line(R"({"event":"play","name":"web servers"})")
        .line(R"({"event":"task","id":"u1","name":"install"})")
        .line(R"({"event":"start","host":"h1","id":"u1","name":"install"})")
        .line(R"({"event":"ok","host":"h1","id":"u1","name":"install","changed":true,"seconds":1.5})")
        .line(
            R"({"event":"failed","host":"h2","id":"u1","name":"install","msg":"non-zero return code","stderr":"no\nsuch","rc":2})")
        .line(R"({"event":"failed","host":"h3","id":"u1","name":"install","msg":"never mind","ignored":true})")
        .line(R"({"event":"unreachable","host":"h4","id":"u1","name":"install","msg":"Failed to connect"})")
        .line(R"({"event":"skipped","host":"h5","id":"u1","name":"install","skip_reason":"Conditional result was False"})");
    ASSERT_EQ(heard.steps.size(), 6u);
    EXPECT_EQ(heard.steps[0].result, Step::Result::running);
    EXPECT_EQ(heard.steps[1].result, Step::Result::changed);
    EXPECT_EQ(heard.steps[1].took, std::chrono::milliseconds(1500));
    EXPECT_EQ(heard.steps[1].key, "u1");
    EXPECT_EQ(heard.steps[2].result, Step::Result::failed);
    EXPECT_EQ(heard.steps[2].words, "non-zero return code: no such");
    EXPECT_EQ(heard.steps[3].result, Step::Result::ok);
    EXPECT_EQ(heard.steps[4].result, Step::Result::unreachable);
    EXPECT_EQ(heard.steps[5].result, Step::Result::skipped);
    EXPECT_EQ(heard.events.first_failure(), "h2: install: non-zero return code: no such");
    EXPECT_THAT(heard.text, AllOf(HasSubstr("PLAY web servers\nTASK install\n"), HasSubstr("  h1: changed\n"),
                                  HasSubstr("h3: failed (ignored)")));
}

TEST(AnsibleEvents, WhatIsNoEventIsPassedOnAndNothingElseHappens) {
    Heard heard;
    for (const auto* line : {"[WARNING]: odd", "{", "{}", "[]", R"({"event":7})", R"({"event":"stats"})",
                             R"({"event":"stats","hosts":[1]})", R"({"event":"stats","hosts":{"h":3}})", R"({"event":"ok"})",
                             R"({"event":"ok","host":[],"seconds":-1e300})", R"({"event":"unknown"})", ""})
        heard.line(line);
    EXPECT_THAT(heard.text, HasSubstr("[WARNING]: odd\n"));
    EXPECT_TRUE(heard.events.has_stats());
    EXPECT_TRUE(heard.events.stats().empty());
}

TEST(AnsibleOutcome, TheStatisticsDecide) {
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"ok":2,"changed":1},"h2":{"ok":1}})", 0).change, Outcome::Change::changed);
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"ok":2}})", 0).ended, Outcome::Ended::succeeded);
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"ok":2}})", 0).change, Outcome::Change::unchanged);
    const auto failed = outcome_of_stats(R"({"h1":{"ok":2},"h2":{"failures":1}})", 2);
    EXPECT_EQ(failed.error, ErrorClass::failed);
    EXPECT_THAT(failed.words, HasSubstr("failed on h2"));
    // A failure that the exit code does not show counts all the same.
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"failures":1}})", 0).error, ErrorClass::failed);
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"unreachable":1}})", 4).error, ErrorClass::connect);
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"unreachable":1},"h2":{"ok":1}})", 4).error, ErrorClass::failed);
    const auto both = outcome_of_stats(R"({"h1":{"unreachable":1},"h2":{"failures":1}})", 4);
    EXPECT_EQ(both.error, ErrorClass::failed);
    EXPECT_THAT(both.words, AllOf(HasSubstr("failed on h2"), HasSubstr("could not reach h1")));
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"ok":1}})", 250).error, ErrorClass::failed);
    EXPECT_EQ(outcome_of_stats("{}", 0).error, ErrorClass::refused);
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"ok":1,"rescued":1,"ignored":2}})", 0).ended, Outcome::Ended::succeeded);
}

TEST(AnsibleOutcome, WithoutStatisticsNothingIsASuccess) {
    const AnsibleEvents none;
    EXPECT_EQ(ansible_outcome(none, 0, 1, "").ended, Outcome::Ended::failed);
    const auto missing = ansible_outcome(none, 1, 1, "the playbook: x.yml could not be found");
    EXPECT_EQ(missing.error, ErrorClass::refused);
    EXPECT_THAT(missing.words, HasSubstr("could not be found"));
    EXPECT_EQ(ansible_outcome(none, 4, 1, "").error, ErrorClass::refused);
    EXPECT_EQ(ansible_outcome(none, 250, 1, "").error, ErrorClass::failed);
}

} // namespace orrery::drivers::events_test
