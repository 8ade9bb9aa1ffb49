#include "core/text.h"
#include "gslb/source.h"

#include <gmock/gmock.h>

namespace orrery::gslb {

using namespace std::chrono_literals;

TEST(Said, IsReadWithItsTime) {
    const auto said = read_said(*parse_json(R"({"state":"degraded","text":"disk nearly full","ttl":"30s"})"), 1min);
    ASSERT_TRUE(said.ok()) << said.error().text();
    EXPECT_EQ(said->outcome, health::Outcome::warning);
    EXPECT_EQ(said->ttl, 30s);
    EXPECT_EQ(read_said(*parse_json(R"({"state":"up"})"), 1min)->ttl, 1min);
    for (const auto& [body, field] : {std::pair{R"({})", "state"},
                                      {R"({"state":"well"})", "state"},
                                      {R"({"state":1})", "state"},
                                      {R"({"state":"up","ttl":"0s"})", "ttl"},
                                      {R"({"state":"up","ttl":"2d"})", "ttl"},
                                      {R"({"state":"up","text":"a\nb"})", "text"},
                                      {R"({"state":"up","more":"x"})", "more"},
                                      {R"([])", "(body)"}}) {
        const auto wrong = read_said(*parse_json(body), 1min);
        ASSERT_FALSE(wrong.ok()) << body;
        EXPECT_EQ(wrong.error().fields.at(0).path, field) << body;
    }
    EXPECT_EQ(report_name("m", "said"), "m.said");
    EXPECT_THAT(report_name(std::string(250, 'm'), "said"), ::testing::StartsWith("report-"));
}

} // namespace orrery::gslb
