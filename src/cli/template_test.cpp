#include "cli/cli_fixture.h"
#include "core/text.h"

namespace orrery::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TemplateCommands : public CliTest {
protected:
    TemplateCommands() {
        api.intercept = [this](const net::Request& request, const std::string&) -> std::optional<net::Response> {
            const auto found = canned.find(request.method + " " + request.target.path);
            if (found == canned.end()) return {};
            return net::Response{200, {{"Content-Type", "application/json"}}, found->second};
        };
        canned["GET /v1/jobtemplates/restart"] =
            R"({"kind":"JobTemplate","name":"restart","spec":{"parameters":[{"name":"role","type":"text"},{"name":"n","type":"integer"},
            {"name":"f","type":"boolean"},{"name":"l","type":"list"},{"name":"x","type":"number"}]}})";
        canned["POST /v1/jobtemplates/restart/run"] =
            R"({"job":"restart.run.1","dry_run":false,"object":{"status":{"tasks":{"total":2},"nodes":2,"digest":"12ab"}}})";
    }
    std::map<std::string, std::string> canned;
};

TEST_F(TemplateCommands, RunSendsValuesOfTheDeclaredTypes) {
    EXPECT_EQ(run({"job", "run", "restart", "-p", "role=a=b", "-p", "n=3", "-p", "f=true", "-p", "l=a,b", "-p", "x=0.5", "--reason",
                   "why not"}),
              0)
        << err;
    EXPECT_EQ(out, "job restart.run.1 submitted: 2 tasks on 2 nodes, plan 12ab\n");
    EXPECT_EQ(*parse_json(api.seen().back().body),
              *parse_json(R"({"parameters":{"role":"a=b","n":3,"f":true,"l":["a","b"],"x":0.5},"reason":"why not"})"));
    EXPECT_EQ(run({"job", "run", "restart", "--dry-run"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("would be accepted"));
    EXPECT_THAT(api.seen().back().target, HasSubstr("dry_run=true"));
}

TEST_F(TemplateCommands, AnInvalidValueIsNamedAndNothingIsSent) {
    for (const auto& [given, message] : std::map<std::string, std::string>{{"n=three", "parameter n must be an integer"},
                                                                           {"f=yes", "parameter f must be true or false"},
                                                                           {"x=", "parameter x must be a number"},
                                                                           {"role", "is not NAME=VALUE"}}) {
        EXPECT_NE(run({"job", "run", "restart", "-p", given}), 0) << given;
        EXPECT_THAT(err, HasSubstr(message));
        EXPECT_THAT(api.seen().back().target, Not(HasSubstr("/run")));
    }
    EXPECT_NE(run({"job", "run", "restart", "-p", "role=a", "-p", "role=b"}), 0);
    EXPECT_THAT(err, HasSubstr("parameter role is given twice"));
}

TEST_F(TemplateCommands, HistoryListsTheNewestRunFirst) {
    canned["GET /v1/jobs"] = R"({"items":[
        {"name":"restart.run.1","created_at":"2026-11-17T01:00:00.000Z","spec":{"parameters":{"role":"web","l":["a"]}},
         "status":{"state":"failed","submitted_by":"alice","started_at":"2026-11-17T01:00:01.000Z","ended_at":"2026-11-17T01:00:31.000Z"}},
        {"name":"restart.weekly.2","created_at":"2026-11-17T02:00:00.000Z","spec":{},"status":{"state":"running","submitted_by":"jobtemplate/restart"}}]})";
    EXPECT_EQ(run({"job", "history", "restart"}), 0) << err;
    EXPECT_LT(out.find("restart.weekly.2"), out.find("restart.run.1"));
    EXPECT_THAT(out, HasSubstr("alice"));
    EXPECT_THAT(out, HasSubstr("30s"));
    EXPECT_THAT(out, HasSubstr("role=web"));
    EXPECT_THAT(api.seen().back().target, HasSubstr("template=restart"));
}

TEST_F(TemplateCommands, PlanOfATemplateTakesItsParameters) {
    canned["POST /v1/jobtemplates/restart/plan"] = R"({"name":"restart.run.1","digest":"12ab","total":1,"nodes":1,"tasks":[]})";
    EXPECT_EQ(run({"job", "plan", "--template", "restart", "-p", "role=web"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("plan 12ab of job restart.run.1"));
}

} // namespace
} // namespace orrery::cli
