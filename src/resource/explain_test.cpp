#include "resource/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::resource {
namespace {

using ::testing::HasSubstr;

Explain says(std::string message, json::object more = {}) {
    return [message = std::move(message), more = std::move(more)](const ExplainRequest&) -> Result<json::object> {
        auto out = more;
        out["message"] = message;
        return out;
    };
}

Explain knows_nothing() {
    return
        [](const ExplainRequest& request) -> Result<json::object> { return Error{Code::not_found, "there is no " + request.name}; };
}

const Explainers::MayRead reads_all = [](std::string_view) { return true; };

TEST(Explainers, CombineTheExplanationsOfTheOwnerAndOfOthers) {
    Explainers all;
    all.add("Node", Explainers::History::no, says("it is well", {{"maintenance", false}}));
    all.contribute("Node", "Job", says("one task runs", {{"tasks", json::array{"a"}}}));
    const auto answer = all.explain("Node", {.name = "n1", .at = {}}, reads_all);
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(json::value(*answer), json::value({{"kind", "Node"},
                                                 {"name", "n1"},
                                                 {"maintenance", false},
                                                 {"message", "it is well"},
                                                 {"tasks", json::array{"a"}},
                                                 {"notes", json::array{"one task runs"}}}));
}

TEST(Explainers, OmitResourcesThatTheCallerMayNotRead) {
    Explainers all;
    all.add("Node", Explainers::History::no, says("it is well"));
    all.contribute("Node", "Job", says("one task runs"));
    const auto answer = all.explain("Node", {.name = "n1", .at = {}}, [](std::string_view kind) { return kind != "Job"; });
    ASSERT_TRUE(answer.ok());
    EXPECT_FALSE(answer->contains("notes"));
}

TEST(Explainers, AResourceThatItsOwnerDoesNotKnowIsNotFound) {
    Explainers all;
    all.add("Node", Explainers::History::no, knows_nothing());
    all.contribute("Node", "Job", says("no task runs"));
    const auto answer = all.explain("Node", {.name = "n1", .at = {}}, reads_all);
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, Code::not_found);
}

TEST(Explainers, AnEarlierTimeIsRefusedWithoutHistoryAndTheErrorNamesKindsThatHaveIt) {
    Explainers all;
    all.add("Node", Explainers::History::no, says("it is well"));
    all.add("LoadBalancer", Explainers::History::yes, says("it answers"));
    const auto refused = all.explain("Node", {.name = "n1", .at = WallTime{}}, reads_all);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("Node keeps no history"));
    EXPECT_THAT(refused.error().remedy, HasSubstr("LoadBalancer"));
    EXPECT_TRUE(all.explain("LoadBalancer", {.name = "www", .at = WallTime{}}, reads_all).ok());
    EXPECT_THAT(all.explain("Secret", {.name = "s", .at = {}}, reads_all).error().remedy, HasSubstr("LoadBalancer, Node"));
}

} // namespace
} // namespace orrery::resource
