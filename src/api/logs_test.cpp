#include "api/server_fixture.h"

#include <gmock/gmock.h>

/// One timeline out of all layers, and explanations, as users meet them over HTTP.
namespace orrery::api::testing {

namespace {
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto logged_job = R"({"name":"%","spec":{"tasks":[{"name":"a","on":"web","run":{"fake":{}}}]}})";

std::string job_called(std::string name) {
    std::string out = logged_job;
    return out.replace(out.find('%'), 1, name);
}

} // namespace

CO_SERVER_TEST(Logs, ShowAllLayersOfOneContextInChronologicalOrder) {
    std::ignore = co_await server.put("/v1/nodes/n1", R"({"labels":{"role":"web"},"spec":{"address":"10.0.0.1"}})");
    server.executor_of_jobs->script = [](const jobs::Attempt& attempt) {
        jobs::FakeExecutor::Script script;
        script.out = "hello from " + attempt.job + "\nno newline at its end";
        return script;
    };
    for (const std::string name : {"one", "two"}) {
        auto made =
            co_await server.call("POST", "/v1/jobs", job_called(name), server.admin_token, {{"X-Request-Id", "trace-" + name}});
        EXPECT_EQ(made.status, 201) << made.text;
    }
    Answer shown;
    for (int i = 0; i < 300; ++i) {
        shown = co_await server.get("/v1/logs?context=trace-one");
        if (shown.text.find("Job/one succeeded") != std::string::npos && shown.text.find("no newline") != std::string::npos) break;
        std::ignore = co_await real_clock().sleep(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(shown.status, 200);
    EXPECT_THAT(shown.text, HasSubstr("Job/one created"));
    EXPECT_THAT(shown.text, HasSubstr("attempt 1 started"));
    EXPECT_THAT(shown.text, HasSubstr("hello from one\""));
    EXPECT_THAT(shown.text, HasSubstr("\"no newline at its end\""));
    EXPECT_THAT(shown.text, HasSubstr("job state changed job=one state=succeeded"));
    EXPECT_THAT(shown.text, Not(HasSubstr("two")));
    std::string last;
    for (const auto& item : shown.body.at("items").as_array()) {
        const std::string time(item.at("time").as_string());
        EXPECT_LE(last, time);
        last = time;
    }
    EXPECT_EQ(shown.body.at("server").as_string(), "test");
    auto errors = co_await server.get("/v1/logs?context=trace-one&level=error");
    EXPECT_TRUE(errors.body.at("items").as_array().empty()) << errors.text;
    auto newest = co_await server.get("/v1/logs?limit=1");
    EXPECT_EQ(newest.body.at("items").as_array().size(), 1u);
    EXPECT_TRUE(newest.body.at("truncated").as_bool());
    auto wrong = co_await server.get("/v1/logs?context=a%22b&level=loud&since=never&limit=0");
    EXPECT_EQ(wrong.status, 400);
    EXPECT_THAT(wrong.text, HasSubstr("?context"));
    EXPECT_THAT(wrong.text, HasSubstr("?level"));
    EXPECT_THAT(wrong.text, HasSubstr("?since"));
    EXPECT_THAT(wrong.text, HasSubstr("?limit"));
}

CO_SERVER_TEST(Why, ExplainsANodeWithItsWaitingTasksAndRefusesOtherKinds) {
    std::ignore = co_await server.put(
        "/v1/nodes/n1",
        R"({"labels":{"role":"web"},"spec":{"address":"10.0.0.1","maintenance":{"enabled":true,"reason":"disk"}}})");
    std::ignore = co_await server.post("/v1/jobs", job_called("one"));
    Answer shown;
    for (int i = 0; i < 300; ++i) {
        shown = co_await server.get("/v1/why/node/n1");
        if (shown.text.find("waits_for") != std::string::npos) break;
        std::ignore = co_await real_clock().sleep(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(shown.status, 200) << shown.text;
    EXPECT_THAT(shown.text, HasSubstr("node n1 is in maintenance: disk"));
    EXPECT_THAT(shown.text, HasSubstr("a@n1"));
    auto task = co_await server.get("/v1/why/Job/one?task=a@n1");
    EXPECT_THAT(task.text, HasSubstr("a@n1 is waiting"));
    auto job = co_await server.get("/v1/why/jobs/one");
    EXPECT_THAT(job.text, HasSubstr("job one is running"));
    auto history = co_await server.get("/v1/why/node/n1?at=2026-11-16T04:42:52Z");
    EXPECT_EQ(history.status, 400) << history.text;
    EXPECT_THAT(history.text, HasSubstr("LoadBalancer"));
    auto unknown = co_await server.get("/v1/why/node/n2");
    EXPECT_EQ(unknown.status, 404) << unknown.text;
    auto wrong = co_await server.get("/v1/why/node/n1?task=a&at=never");
    EXPECT_EQ(wrong.status, 400) << wrong.text;
    auto no_kind = co_await server.get("/v1/why/nods/n1");
    EXPECT_THAT(no_kind.text, HasSubstr("did you mean nodes"));
}

} // namespace orrery::api::testing
