#include "drivers/ansible/playbook_outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::drivers::events_test {

namespace {
using jobs::ErrorClass;
using jobs::Outcome;
using jobs::Step;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Received {
    AnsibleEvents events;
    std::vector<Step> steps;
    std::string text;
    Received() {
        events.on_step = [this](Step step) { steps.push_back(std::move(step)); };
        events.on_text = [this](std::string_view piece) { text += piece; };
    }
    Received& line(std::string_view text_) {
        events.line(text_);
        return *this;
    }
};

Outcome outcome_of_stats(const std::string& hosts, int exit_code) {
    Received received;
    received.line(R"({"event":"stats","hosts":)" + hosts + "}");
    return playbook_outcome(received.events, exit_code, 2, "");
}
} // namespace

TEST(AnsibleEvents, BecomeStepsAndLines) {
    Received received;
    received.line(R"({"event":"play","name":"web servers"})")
        .line(R"({"event":"task","id":"u1","name":"install"})")
        .line(R"({"event":"start","host":"h1","id":"u1","name":"install"})")
        .line(R"({"event":"ok","host":"h1","id":"u1","name":"install","changed":true,"seconds":1.5})")
        .line(
            R"({"event":"failed","host":"h2","id":"u1","name":"install","msg":"non-zero return code","stderr":"no\nsuch","rc":2})")
        .line(R"({"event":"failed","host":"h3","id":"u1","name":"install","msg":"never mind","ignored":true})")
        .line(R"({"event":"unreachable","host":"h4","id":"u1","name":"install","msg":"Failed to connect"})")
        .line(R"({"event":"skipped","host":"h5","id":"u1","name":"install","skip_reason":"Conditional result was False"})");
    ASSERT_EQ(received.steps.size(), 6u);
    EXPECT_EQ(received.steps[0].result, Step::Result::running);
    EXPECT_EQ(received.steps[1].result, Step::Result::changed);
    EXPECT_EQ(received.steps[1].took, std::chrono::milliseconds(1500));
    EXPECT_EQ(received.steps[1].key, "u1");
    EXPECT_EQ(received.steps[2].result, Step::Result::failed);
    EXPECT_EQ(received.steps[2].message, "non-zero return code: no such");
    EXPECT_EQ(received.steps[3].result, Step::Result::ok);
    EXPECT_EQ(received.steps[4].result, Step::Result::unreachable);
    EXPECT_EQ(received.steps[5].result, Step::Result::skipped);
    EXPECT_EQ(received.events.first_failure(), "h2: install: non-zero return code: no such");
    EXPECT_THAT(received.text, AllOf(HasSubstr("PLAY web servers\nTASK install\n"), HasSubstr("  h1: changed\n"),
                                     HasSubstr("h3: failed (ignored)")));
}

TEST(AnsibleEvents, MessagesAndOutputAreShownOnceBelowTheirHost) {
    Received received;
    received.line(R"({"event":"ok","host":"h1","name":"greet","msg":"hello"})")
        .line(R"({"event":"ok","host":"h2","name":"list","changed":true,"stdout":"one\n  two\n","stderr":"careful","rc":0})")
        .line(
            R"({"event":"failed","host":"h3","name":"list","msg":"non-zero return code","stderr":"no such","stdout":"half","rc":2})")
        .line(R"({"event":"ok","host":"h4","name":"loop","items":[{"item":"a","msg":"x"},)"
              R"({"item":"b","failed":true,"stdout":"y\nz"},7]})")
        .line(R"({"event":"ok","host":"h5","name":"quiet","censored":true,"msg":"never"})");
    EXPECT_EQ(received.text, "  h1: ok\n    hello\n"
                             "  h2: changed\n    one\n      two\n    stderr: careful\n"
                             "  h3: failed: non-zero return code: no such\n    half\n"
                             "  h4: ok\n    a: x\n    b (failed): y\n    b (failed): z\n"
                             "  h5: ok\n");
}

TEST(AnsibleEvents, LinesThatAreNotEventsArePassedOn) {
    Received received;
    for (const auto* line : {"[WARNING]: odd", "{", "{}", "[]", R"({"event":7})", R"({"event":"stats"})",
                             R"({"event":"stats","hosts":[1]})", R"({"event":"stats","hosts":{"h":3}})", R"({"event":"ok"})",
                             R"({"event":"ok","host":[],"seconds":-1e300})", R"({"event":"unknown"})", ""})
        received.line(line);
    EXPECT_THAT(received.text, HasSubstr("[WARNING]: odd\n"));
    EXPECT_TRUE(received.events.has_stats());
    EXPECT_TRUE(received.events.stats().empty());
}

TEST(AnsibleOutcome, TheStatisticsDecide) {
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"ok":2,"changed":1},"h2":{"ok":1}})", 0).change, Outcome::Change::changed);
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"ok":2}})", 0).ended, Outcome::Ended::succeeded);
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"ok":2}})", 0).change, Outcome::Change::unchanged);
    const auto failed = outcome_of_stats(R"({"h1":{"ok":2},"h2":{"failures":1}})", 2);
    EXPECT_EQ(failed.error, ErrorClass::failed);
    EXPECT_THAT(failed.message, HasSubstr("failed on h2"));
    // A failure that the exit code does not show counts, too.
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"failures":1}})", 0).error, ErrorClass::failed);
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"unreachable":1}})", 4).error, ErrorClass::connect);
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"unreachable":1},"h2":{"ok":1}})", 4).error, ErrorClass::failed);
    const auto both = outcome_of_stats(R"({"h1":{"unreachable":1},"h2":{"failures":1}})", 4);
    EXPECT_EQ(both.error, ErrorClass::failed);
    EXPECT_THAT(both.message, AllOf(HasSubstr("failed on h2"), HasSubstr("could not reach h1")));
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"ok":1}})", 250).error, ErrorClass::failed);
    EXPECT_EQ(outcome_of_stats("{}", 0).error, ErrorClass::refused);
    EXPECT_EQ(outcome_of_stats(R"({"h1":{"ok":1,"rescued":1,"ignored":2}})", 0).ended, Outcome::Ended::succeeded);
}

TEST(AnsibleOutcome, WithoutStatisticsNothingIsASuccess) {
    const AnsibleEvents none;
    EXPECT_EQ(playbook_outcome(none, 0, 1, "").ended, Outcome::Ended::failed);
    const auto missing = playbook_outcome(none, 1, 1, "the playbook: x.yml could not be found");
    EXPECT_EQ(missing.error, ErrorClass::refused);
    EXPECT_THAT(missing.message, HasSubstr("could not be found"));
    EXPECT_EQ(playbook_outcome(none, 4, 1, "").error, ErrorClass::refused);
    EXPECT_EQ(playbook_outcome(none, 250, 1, "").error, ErrorClass::failed);
}

} // namespace orrery::drivers::events_test
