#include "drivers/puppet/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::drivers::report_test {

namespace {
using jobs::ErrorClass;
using jobs::Outcome;
using ::testing::HasSubstr;

// As Puppet 7.23 writes it, cut to what matters.
constexpr auto recorded = R"(--- !ruby/object:Puppet::Transaction::Report
host: n1
time: '2026-11-16T08:52:39.115203471+00:00'
report_format: 12
status: failed
transaction_completed: true
noop: false
noop_pending: false
logs:
- level: err
  message: "'/bin/false' returned 1 instead of one of [0]"
  source: Puppet
- level: err
  message: 'change from ''notrun'' to [''0''] failed: ''/bin/false'' returned 1 instead
    of one of [0]'
  source: "/Stage[main]/Main/Exec[bad]/returns"
resource_statuses:
  File[/srv/out.txt]:
    title: "/srv/out.txt"
    evaluation_time: 0.5
    failed: false
    changed: true
    out_of_sync: true
    skipped: false
    events:
    - audited: false
      property: ensure
      previous_value: !ruby/sym absent
      desired_value: file
      message: defined content as '{sha256}5891'
      status: success
      redacted:
  Exec[bad]:
    failed: true
    changed: false
    skipped: false
    events:
    - property: returns
      previous_value: notrun
      desired_value:
      - '0'
      message: it failed
      status: failure
  Notify[after bad]:
    failed: false
    skipped: true
    events: []
  Package[bash]:
    failed: false
    changed: false
    out_of_sync: false
    skipped: false
    events: []
)";
} // namespace

TEST(PuppetReport, IsParsedWithoutRubyTags) {
    const auto report = read_puppet_report(recorded);
    ASSERT_TRUE(report.ok()) << report.error().text();
    EXPECT_EQ(report->status, "failed");
    ASSERT_EQ(report->resources.size(), 3u);
    EXPECT_EQ(report->resources[0].name, "File[/srv/out.txt]");
    EXPECT_TRUE(report->resources[0].changed);
    EXPECT_EQ(report->resources[0].took, std::chrono::milliseconds(500));
    EXPECT_EQ(report->resources[0].differences[0].before, "absent");
    EXPECT_EQ(report->resources[1].message, "it failed");
    EXPECT_TRUE(report->resources[2].skipped);
    EXPECT_THAT(report->first_error, HasSubstr("Exec[bad]/returns: change from"));
}

TEST(PuppetReport, EveryTruncationIsHandled) {
    const std::string_view text(recorded);
    for (std::size_t size = 0; size < text.size(); size += 7) std::ignore = read_puppet_report(text.substr(0, size));
    EXPECT_EQ(read_puppet_report("status: x").error().code, Code::invalid);
    EXPECT_EQ(read_puppet_report(std::string(5u << 20, ' ')).error().code, Code::too_large);
}

TEST(PuppetOutcome, FollowsTheDetailedExitCodes) {
    const Result<PuppetReport> none = Error{Code::not_found, "the run left no report"};
    EXPECT_EQ(puppet_outcome(none, 0, "").ended, Outcome::Ended::succeeded);
    EXPECT_EQ(puppet_outcome(none, 0, "").change, Outcome::Change::unchanged);
    EXPECT_EQ(puppet_outcome(none, 2, "").ended, Outcome::Ended::succeeded);
    EXPECT_EQ(puppet_outcome(none, 2, "").change, Outcome::Change::changed);
    EXPECT_EQ(puppet_outcome(none, 1, "Could not parse").error, ErrorClass::refused);
    EXPECT_EQ(puppet_outcome(none, 4, "").error, ErrorClass::failed);
    EXPECT_EQ(puppet_outcome(none, 4, "").change, Outcome::Change::unchanged);
    EXPECT_EQ(puppet_outcome(none, 6, "").error, ErrorClass::failed);
    EXPECT_EQ(puppet_outcome(none, 6, "").change, Outcome::Change::changed);
    EXPECT_EQ(puppet_outcome(none, 127, "").error, ErrorClass::refused);
    EXPECT_EQ(puppet_outcome(none, 137, "").error, ErrorClass::failed);
    const auto report = read_puppet_report(recorded);
    EXPECT_EQ(puppet_outcome(report, 0, "").error, ErrorClass::failed); // it says more than the exit code
    EXPECT_THAT(puppet_outcome(report, 6, "").message, HasSubstr("1 resource failed: /Stage[main]/Main/Exec[bad]"));
}

} // namespace orrery::drivers::report_test
