#include "core/text.h"
#include "gslb/observe/health_source.h"

#include <gmock/gmock.h>

namespace orrery::gslb {

using namespace std::chrono_literals;

TEST(PushedStatus, IsParsedWithItsTime) {
    const auto pushed = parse_pushed_status(*parse_json(R"({"state":"degraded","message":"disk nearly full","ttl":"30s"})"), 1min);
    ASSERT_TRUE(pushed.ok()) << pushed.error().text();
    EXPECT_EQ(pushed->outcome, health::Outcome::warning);
    EXPECT_EQ(pushed->ttl, 30s);
    EXPECT_EQ(parse_pushed_status(*parse_json(R"({"state":"up"})"), 1min)->ttl, 1min);
    for (const auto& [body, field] : {std::pair{R"({})", "state"},
                                      {R"({"state":"well"})", "state"},
                                      {R"({"state":1})", "state"},
                                      {R"({"state":"up","ttl":"0s"})", "ttl"},
                                      {R"({"state":"up","ttl":"2d"})", "ttl"},
                                      {R"({"state":"up","message":"a\nb"})", "message"},
                                      {R"({"state":"up","more":"x"})", "more"},
                                      {R"([])", "(body)"}}) {
        const auto wrong = parse_pushed_status(*parse_json(body), 1min);
        ASSERT_FALSE(wrong.ok()) << body;
        EXPECT_EQ(wrong.error().fields.at(0).path, field) << body;
    }
    EXPECT_EQ(report_name("m", "said"), "m.said");
    EXPECT_THAT(report_name(std::string(250, 'm'), "said"), ::testing::StartsWith("report-"));
}

} // namespace orrery::gslb
