#include "fleet/facts/fact.h"
#include "fleet/facts/match_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::fleet {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const std::vector<Fact> blade = {{"system", "kernel", "arch", "x86_64"},     {"cpu", "logical", "number", "32"},
                                 {"memory", "total", "size", "68719476736"}, {"disk", "sda", "size", "480"},
                                 {"disk", "sda", "model", "INTEL(R) SSD"},   {"disk", "sdb", "size", "4000"},
                                 {"disk", "logical", "count", "2"},          {"network", "eth0", "serial", "52:54:00:4e:3d:30"},
                                 {"network", "eth0", "ipv4", "192.0.2.17"},  {"network", "eth1", "serial", "00:11:22:33:44:55"},
                                 {"network", "eth1", "ipv4", "2001:db8::17"}};

MatchOutcome matched(std::string_view spec) {
    const auto parsed = MatchSpec::parse(spec);
    if (!parsed.ok()) {
        ADD_FAILURE() << parsed.error().text();
        return {};
    }
    return parsed->match(blade);
}

std::string first_failure(std::string_view spec) {
    const auto outcome = matched(spec);
    return outcome.failures.empty() ? "" : outcome.failures.front().message;
}

std::string parse_errors(std::string_view spec) {
    const auto parsed = MatchSpec::parse(spec);
    std::string out;
    if (!parsed.ok())
        for (const auto& field : parsed.error().fields) out += field.path + ": " + field.message + "\n";
    return out;
}

} // namespace

TEST(MatchSpec, ReadsTheFilesOfAhcMatch) {
    const auto outcome = matched(R"(# control machines
[ ('disk', '$disk', 'size', 'gt(4)'),
  ('network', '$eth', 'ipv4', 'network(192.0.2.0/24)'),
  ("network", '$eth', 'serial', '$$mac=regexp(^52:54)'),
  (u'memory', 'total', 'size', 'ge(4294967296)'), ]
)");
    EXPECT_TRUE(outcome.matches);
    EXPECT_THAT(outcome.variables, ElementsAre(Pair("disk", "sda"), Pair("eth", "eth0"), Pair("mac", "52:54:00:4e:3d:30")));
}

TEST(MatchSpec, EachFactSatisfiesOneEntry) {
    EXPECT_TRUE(matched("[('disk','$a','size','gt(100)'),('disk','$b','size','gt(100)')]").matches);
    EXPECT_THAT(first_failure("[('disk','$a','size','gt(100)'),('disk','$b','size','gt(100)'),('disk','$c','size','gt(100)')]"),
                HasSubstr("no further fact satisfies ('disk', '$c', 'size', 'gt(100)') with $a="));
}

TEST(MatchSpec, BacktracksWhenALaterEntryNeedsAnotherBinding) {
    // sda comes first, but only sdb is large enough for both.
    const auto outcome = matched("[('disk','$d','size','gt(4)'),('disk','$d','size','ge(4)')]");
    EXPECT_FALSE(outcome.matches) << "each disk has one size";
    EXPECT_THAT(matched("[('network','$e','serial','regexp(.)'),('network','$e','ipv4','network(2001:db8::/32)')]").variables,
                ElementsAre(Pair("e", "eth1")));
}

TEST(MatchSpec, NamesTheNearestFactOfEveryFailedEntry) {
    const auto outcome =
        matched("[('memory','total','size','ge(128GiB)'),('disk','$d','size','gt(9000)'),('cpu','logical','number','le(8)')]");
    ASSERT_EQ(outcome.failures.size(), 3U);
    EXPECT_EQ(
        outcome.failures[0].message,
        "no fact satisfies ('memory', 'total', 'size', 'ge(128GiB)'); the nearest is ('memory', 'total', 'size', '68719476736')");
    EXPECT_THAT(outcome.failures[1].message, HasSubstr("the nearest is ('disk', 'sdb', 'size', '4000')"));
    EXPECT_THAT(outcome.failures[2].message, HasSubstr("'number', '32'"));
}

TEST(MatchSpec, ComparesByType) {
    EXPECT_TRUE(matched("[('memory','total','size','gt(60G)')]").matches);
    EXPECT_TRUE(matched("[('memory','total','size','le(64GiB)')]").matches);
    EXPECT_TRUE(matched("[('cpu','logical','number','gt(31.5)')]").matches);
    EXPECT_FALSE(matched("[('disk','sda','model','gt(4)')]").matches) << "a text is not a number, and no error";
    EXPECT_TRUE(matched("[('cpu','logical','number','and(ge(16), not(in(64, 128)))')]").matches);
    EXPECT_TRUE(matched("[('cpu','logical','number','or(in(a,b),in(31,32))')]").matches);
    EXPECT_TRUE(matched("[('disk','sda','model','INTEL(R) SSD')]").matches) << "not a call";
    EXPECT_FALSE(matched("[('network','eth0','ipv4','network(10.0.0.0/8)')]").matches);
}

TEST(MatchSpec, AnEmptySpecMatchesAll) { EXPECT_TRUE(matched("[]").matches); }

TEST(MatchSpec, ReportsAllErrorsWithTheirLines) {
    const auto errors = parse_errors(
        "[ ('disk', '$d', 'size', 'greater(4)'),\n  ('disk', '$', 'size', 'gt(x)'),\n  ('a','b','c','network(nope)') ]");
    EXPECT_THAT(errors, HasSubstr("line 1: there is no function \"greater\""));
    EXPECT_THAT(errors, HasSubstr("line 2: \"$\" does not name a variable"));
    EXPECT_THAT(errors, HasSubstr("line 2: gt needs a number, got \"x\""));
    EXPECT_THAT(errors, HasSubstr("line 3: network needs a network such as 192.0.2.0/24"));
    EXPECT_THAT(parse_errors("[('a','b','c')]"), HasSubstr("an entry needs four texts; after 3 of them comes \")]\""));
    EXPECT_THAT(parse_errors("('a')"), HasSubstr("a list is needed"));
    EXPECT_THAT(parse_errors("[('a','b','c','d)]"), HasSubstr("no closing quote"));
    EXPECT_THAT(parse_errors("[('a','b','c','regexp(()')]"), HasSubstr("regexp needs a regular expression"));
    EXPECT_THAT(parse_errors("[] __import__('os')"), HasSubstr("after the list comes"));
}

TEST(MatchSpec, EveryTruncationIsHandled) {
    const std::string spec = "[ ('disk', '$disk', 'size', 'and(gt(4), lt(5))'), ('a', '$$b=in(x, \"y\")', 'c', 'regexp(^a,b)') ]";
    for (std::size_t size = 0; size < spec.size(); ++size)
        EXPECT_FALSE(MatchSpec::parse(std::string_view(spec).substr(0, size)).ok()) << size;
    EXPECT_TRUE(MatchSpec::parse(spec).ok());
}

TEST(MatchSpec, AHopelessSearchEnds) {
    std::vector<Fact> facts;
    for (int i = 0; i < 200; ++i) facts.push_back({"disk", "d" + std::to_string(i), "size", "100"});
    std::string spec = "[";
    for (int i = 0; i < 20; ++i) spec += "('disk','$v" + std::to_string(i) + "','size','gt(1)'),";
    spec += "('disk','$v0','size','gt(2)')]"; // needs the first disk twice
    const auto outcome = MatchSpec::parse(spec)->match(facts);
    EXPECT_FALSE(outcome.matches);
    EXPECT_THAT(outcome.failures.front().message, HasSubstr("ended after 500000 comparisons"));
}

TEST(Facts, GiveTheFourProperties) {
    const auto properties = properties_of(blade);
    EXPECT_EQ(properties.cpus, 32);
    EXPECT_EQ(properties.memory_mb, 65536);
    EXPECT_EQ(properties.local_gb, 446) << "480 GB are 447 GiB";
    EXPECT_EQ(properties.cpu_arch, "x86_64");
    EXPECT_FALSE(properties_of({{"cpu", "logical", "number", "many"}}).cpus);
}

} // namespace orrery::fleet
