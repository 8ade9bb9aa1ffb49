#include "catalog/check.h"
#include "catalog/kinds.h"
#include "health/probe_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::catalog {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

namespace {
std::vector<std::string> wrong(json::object check) {
    json::object spec{{"checks", json::array{std::move(check)}}};
    std::vector<FieldError> errors;
    check_checks(spec, "spec", false, errors);
    std::vector<std::string> out;
    for (const auto& error : errors) out.push_back(error.path);
    return out;
}
} // namespace

TEST(Check, AcceptsOnlyTheFieldsOfItsKind) {
    EXPECT_THAT(wrong({{"kind", "tcp"}}), IsEmpty());
    EXPECT_THAT(wrong({{"kind", "ttl"}}), ElementsAre("spec.checks[0].ttl"));
    EXPECT_THAT(wrong({{"kind", "command"}}), ElementsAre("spec.checks[0].command"));
    EXPECT_THAT(wrong({{"kind", "tcp"}, {"path", "/"}}), ElementsAre("spec.checks[0].path"));
    EXPECT_THAT(wrong({{"kind", "ttl"}, {"ttl", "10s"}, {"interval", "5s"}}), ElementsAre("spec.checks[0].interval"));
    EXPECT_THAT(wrong({{"kind", "http"}, {"interval", "2s"}, {"timeout", "3s"}}), ElementsAre("spec.checks[0].timeout"));
    EXPECT_THAT(wrong({{"kind", "http"}, {"url", "http://x/"}, {"port", 80}}), ElementsAre("spec.checks[0].port"));
    EXPECT_THAT(wrong({{"kind", "http"}, {"expect", "200-299,abc"}}), ElementsAre("spec.checks[0].expect"));
}

TEST(Check, SurvivesARoundTripThroughItsSpec) {
    Check check;
    check.id = "c";
    check.kind = Check::Kind::http;
    check.url = "http://192.0.2.1/";
    check.headers = {{"Host", "x"}};
    check.interval = 3s;
    check.timeout = 1s;
    check.rise = check.fall = 1;
    check.remove_after = 90s;
    EXPECT_EQ(Check::from(check.to_json()), check);
    Check ttl;
    ttl.kind = Check::Kind::ttl;
    ttl.ttl = 1500ms;
    ttl.initial = CheckStatus::passing;
    EXPECT_EQ(Check::from(ttl.to_json()), ttl);
}

TEST(Codes, AreParsedAsRanges) {
    EXPECT_THAT(*health::parse_status_codes("200-299,301"), ElementsAre(Pair(200, 299), Pair(301, 301)));
    for (const auto* bad : {"", "x", "200-", "299-200", "99", "600", "200,"})
        EXPECT_FALSE(health::parse_status_codes(bad).ok()) << bad;
}

TEST(Wanted, IsANumberOrASumOfRoles) {
    EXPECT_EQ(Wanted::parse(3)->text(), "3");
    EXPECT_EQ(Wanted::parse("hosts(oc) + hosts(ocdb)")->text(), "hosts(oc)+hosts(ocdb)");
    EXPECT_EQ(Wanted::parse("2+hosts(oc)+1")->text(), "hosts(oc)+3");
    for (const json::value& bad : {json::value("hosts()"), json::value("hosts(a"), json::value(-1), json::value(""),
                                   json::value("a"), json::value(true), json::value("1+")})
        EXPECT_FALSE(Wanted::parse(bad).ok()) << bad;
}

} // namespace orrery::catalog
