#include "api/server_fixture.h"

#include <gmock/gmock.h>

/// Jobs as their users meet them: over HTTP.
namespace orrery::api::testing {

namespace {
using ::testing::HasSubstr;

asio::awaitable<std::string> wait_for_state(ServerFixture& server, std::string name, std::string wanted) {
    std::string state;
    for (int i = 0; i < 300; ++i) {
        auto answer = co_await server.get("/v1/jobs/" + name + "/progress");
        if (answer.status == 200) state = std::string(answer.body.at("state").as_string());
        if (state == wanted) break;
        std::ignore = co_await real_clock().sleep(std::chrono::milliseconds(10));
    }
    co_return state;
}

} // namespace

CO_SERVER_TEST(Jobs, AreRefusedAsAWholeOrRunAndCanBeExplained) {
    std::ignore = co_await server.put("/v1/nodes/n1", R"({"labels":{"role":"web"},"spec":{"address":"10.0.0.1"}})");
    auto refused = co_await server.post(
        "/v1/jobs",
        R"({"name":"j","spec":{"tasks":[{"name":"a","on":"web","after":"b","run":{"fake":{}}},{"name":"b","on":"web","after":"a","wait":"nobody"}]}})");
    EXPECT_GE(refused.status, 400);
    EXPECT_LT(refused.status, 500);
    EXPECT_THAT(refused.text, HasSubstr("waits for itself"));
    const auto* body = R"({"name":"j","spec":{"tasks":[{"name":"a","on":"web","run":{"fake":{}},"provides":"web"},
        {"name":"b","on":"web","after":"a","wait":{"service":"web","count":1},"with":{"m":"${service.web.addresses}"},"run":{"fake":{}}}]}})";
    auto plan = co_await server.post("/v1/job-plans?preview=true", body);
    EXPECT_EQ(plan.status, 200) << plan.text;
    EXPECT_EQ(plan.body.at("total").as_int64(), 2);
    EXPECT_EQ(plan.body.at("simulation").at("end").as_string(), "succeeded");
    EXPECT_EQ(plan.body.at("previews").as_array().size(), 2u);
    auto made = co_await server.post("/v1/jobs", body);
    EXPECT_EQ(made.status, 201) << made.text;
    for (int i = 0; i < 300; ++i) {
        auto why = co_await server.get("/v1/jobs/j/why?task=b@n1");
        if (why.text.find("web passing") != std::string::npos && why.text.find("\"waiting\"") != std::string::npos) break;
        std::ignore = co_await real_clock().sleep(std::chrono::milliseconds(10));
    }
    auto why = co_await server.get("/v1/jobs/j/why?task=b@n1");
    EXPECT_THAT(why.text, HasSubstr("it waits for 1 of web passing (0 of 1 seen)"));
    auto missing = co_await server.get("/v1/jobs/j/missing");
    EXPECT_THAT(missing.text, HasSubstr("b@n1"));
    EXPECT_FALSE(missing.body.at("done").as_bool());
    auto paused = co_await server.post("/v1/jobs/j/pause", R"({"reason":"lunch"})");
    EXPECT_EQ(paused.status, 202) << paused.text;
    server.membership.pass("web", "n1");
    auto again = co_await server.post("/v1/jobs/j/resume", "{}");
    EXPECT_EQ(again.status, 202) << again.text;
    const auto state = co_await wait_for_state(server, "j", "succeeded");
    EXPECT_EQ(state, "succeeded");
    auto tasks = co_await server.get("/v1/jobs/j/tasks?state=succeeded&limit=1");
    EXPECT_EQ(tasks.body.at("tasks").as_array().size(), 1u) << tasks.text;
    EXPECT_EQ(tasks.body.at("continue").as_string(), "1");
    auto picture = co_await server.get("/v1/jobs/j/graph?form=svg");
    EXPECT_THAT(picture.text, HasSubstr("</svg>"));
    auto dot = co_await server.get("/v1/jobs/j/graph?form=dot");
    EXPECT_THAT(dot.text, HasSubstr("t0 -> t1"));
    auto output = co_await server.get("/v1/jobs/j/output?task=a@n1");
    EXPECT_EQ(output.status, 200) << output.text;
    auto none = co_await server.get("/v1/jobs/j/why?task=nobody@n1");
    EXPECT_EQ(none.status, 404);
    auto over = co_await server.post("/v1/jobs/j/cancel", "{}");
    EXPECT_EQ(over.status, 409) << over.text;
}

CO_SERVER_TEST(Jobs, OutputOfAnAttemptOrPhaseThatNeverRanIsNotFound) {
    std::ignore = co_await server.put("/v1/nodes/n1", R"({"labels":{"role":"web"},"spec":{"address":"10.0.0.1"}})");
    auto made = co_await server.post(
        "/v1/jobs", R"({"name":"j","spec":{"tasks":[{"name":"a","on":"web","run":{"fake":{}},"undo":{"fake":{}}}]}})");
    EXPECT_EQ(made.status, 201) << made.text;
    const auto state = co_await wait_for_state(server, "j", "succeeded");
    EXPECT_EQ(state, "succeeded");
    for (const auto* good : {"", "&attempt=1", "&phase=run", "&attempt=1&phase=run"}) {
        auto output = co_await server.get(std::string("/v1/jobs/j/output?task=a@n1") + good);
        EXPECT_EQ(output.status, 200) << output.text;
    }
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"&attempt=7", "a@n1 has no attempt 7: its last is attempt 1"},
        {"&attempt=7&follow=true", "a@n1 has no attempt 7: its last is attempt 1"},
        {"&phase=undo", "the undo of a@n1 never ran in attempt 1: the task is succeeded"},
        {"&phase=verify", "a@n1 has no verify, so this phase never ran"}};
    for (const auto& [query, message] : cases) {
        auto none = co_await server.get("/v1/jobs/j/output?task=a@n1" + query);
        EXPECT_EQ(none.status, 404) << none.text;
        EXPECT_THAT(none.text, HasSubstr(message));
    }
}

CO_SERVER_TEST(Jobs, ListsTasksOnlyByStatesThatExist) {
    std::ignore = co_await server.put("/v1/nodes/n1", R"({"labels":{"role":"web"},"spec":{"address":"10.0.0.1"}})");
    auto made = co_await server.post("/v1/jobs", R"({"name":"j","spec":{"tasks":[{"name":"a","on":"web","run":{"fake":{}}}]}})");
    EXPECT_EQ(made.status, 201) << made.text;
    EXPECT_EQ((co_await server.get("/v1/jobs/j/tasks?state=undo_failed")).status, 200);
    auto refused = co_await server.get("/v1/jobs/j/tasks?state=foo");
    EXPECT_EQ(refused.status, 400) << refused.text;
    EXPECT_THAT(refused.text, HasSubstr("must be one of pending, waiting, ready, running, succeeded, failed, lost, cancelled"));
}

CO_SERVER_TEST(Jobs, APlanNamesTheFormOfADuration) {
    auto refused = co_await server.post("/v1/job-plans?unknown=3", R"({"name":"j","spec":{"tasks":[{"name":"a"}]}})");
    EXPECT_EQ(refused.status, 400) << refused.text;
    EXPECT_EQ(refused.body.at("fields").at(0).at("path").as_string(), "?unknown");
    EXPECT_THAT(std::string(refused.body.at("fields").at(0).at("message").as_string()),
                HasSubstr("\"3\" is not a duration; write it with units, as in 250ms, 30s"));
}

CO_SERVER_TEST(Jobs, OnlyUsersWhoMayRunJobsReadArtefacts) {
    std::ignore = co_await server.put("/v1/nodes/n1", R"({"labels":{"role":"web"},"spec":{"address":"10.0.0.1"}})");
    server.artefact_fetcher.files["n1:/var/log/big"] = std::string(600'000, 'x') + "end";
    auto made = co_await server.post(
        "/v1/jobs",
        R"({"name":"j","spec":{"tasks":[{"name":"a","on":"web","run":{"fake":{}},"artefacts":["/none","/var/log/big"]}]}})");
    EXPECT_EQ(made.status, 201) << made.text;
    const auto state = co_await wait_for_state(server, "j", "succeeded");
    EXPECT_EQ(state, "succeeded");
    auto list = co_await server.get("/v1/jobs/j/artefacts?task=a@n1");
    EXPECT_EQ(list.status, 200) << list.text;
    EXPECT_EQ(list.body.at("artefacts").as_array().size(), 2u) << list.text;
    EXPECT_EQ(list.body.at("artefacts").at(0).at("message").as_string(), "is not there");
    EXPECT_EQ(list.body.at("artefacts").at(1).at("size").to_number<int>(), 600'003);
    auto bytes = co_await server.get("/v1/jobs/j/artefact?task=a@n1&number=1");
    EXPECT_EQ(bytes.status, 200);
    EXPECT_EQ(bytes.text, server.artefact_fetcher.files["n1:/var/log/big"]);
    auto none = co_await server.get("/v1/jobs/j/artefact?task=a@n1&number=0");
    EXPECT_EQ(none.status, 404);
    EXPECT_THAT(none.text, HasSubstr("/none of n1 is not there"));
    auto beyond = co_await server.get("/v1/jobs/j/artefact?task=a@n1&number=7");
    EXPECT_EQ(beyond.status, 404);
    auto earlier = co_await server.get("/v1/jobs/j/artefacts?task=a@n1&attempt=9");
    EXPECT_EQ(earlier.body.at("artefacts").as_array().size(), 0u);
}

} // namespace orrery::api::testing
