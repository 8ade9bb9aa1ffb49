#include "cli/cli_fixture.h"
#include "core/test_fixture.h"

#include <boost/json/serialize.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace orrery::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

net::Response good(int status, std::string body) { return {status, {{"Content-Type", "application/json"}}, std::move(body)}; }

class Job : public CliTest {
protected:
    Job() {
        api.intercept = [this](const net::Request& request, const std::string&) -> std::optional<net::Response> {
            const auto found = answers_of.find(request.method + " " + request.target.path);
            if (found == answers_of.end()) return {};
            return found->second;
        };
    }
    std::map<std::string, net::Response> answers_of;
};

TEST_F(Job, WhyShowsTheConditionAndTheInstances) {
    answers_of["GET /v1/jobs/up/why"] =
        good(200, R"x({"task":"web@w1","state":"waiting","message":"web@w1 is waiting: it waits for 2 of db passing (1 of 2 seen)",
        "barriers":[{"barrier":"2 of db passing","wanted":2,"met":false,"instances":[{"node":"d1","state":"passing"},{"node":"d2","state":"registered","message":"refused\u001b[2J"}]}]})x");
    EXPECT_EQ(run({"job", "why", "up", "web@w1"}), 0) << err;
    EXPECT_EQ(out, "web@w1 is waiting: it waits for 2 of db passing (1 of 2 seen)\n"
                   "  barrier 2 of db passing: not met\n"
                   "    d1 is passing\n"
                   "    d2 is registered: refused\\x1b[2J\n");
}

TEST_F(Job, ErrorsNameTheOptionInPlaceOfTheQueryParameter) {
    answers_of["GET /v1/jobs/up/output"] = FakeApi::problem(
        400, "invalid", "invalid query", {}, {json::object{{"path", "?attempt"}, {"message", "must be an integer, got \"x\""}}});
    EXPECT_EQ(run({"job", "logs", "up", "a", "--attempt", "x"}), exit_code::invalid);
    EXPECT_EQ(err, "error: invalid query\n  --attempt: must be an integer, got \"x\"\n");
    answers_of["POST /v1/job-plans"] = FakeApi::problem(
        400, "invalid", "invalid query", {},
        {json::object{{"path", "?unknown"}, {"message", "\"3\" is not a duration; write it with units, as in 30s"}},
         json::object{{"path", "?dry_run"}, {"message", "must be true or false"}}});
    EXPECT_EQ(run({"job", "plan", "-f", file("j.yaml", "{kind: Job, name: up, spec: {tasks: [{name: a}]}}"), "--unknown", "3"}),
              exit_code::invalid);
    EXPECT_EQ(err, "error: invalid query\n  --unknown: \"3\" is not a duration; write it with units, as in 30s\n"
                   "  --dry-run: must be true or false\n");
}

TEST_F(Job, ShowRefusesAStateThatDoesNotExist) {
    EXPECT_EQ(run({"job", "show", "up", "--state", "foo"}), exit_code::usage);
    EXPECT_THAT(err,
                HasSubstr("--state must be one of pending, waiting, ready, running, succeeded, failed, lost, cancelled, skipped, "
                          "undone, undo_failed, not \"foo\""));
    EXPECT_THAT(api.lines(), ElementsAre());
    EXPECT_EQ(run({"job", "list", "--state", "foo"}), exit_code::usage);
    EXPECT_THAT(err, HasSubstr("--state must be one of planned, running,"));
}

TEST_F(Job, SubmitShowsThePlanAndItsWarnings) {
    answers_of["POST /v1/jobs"] = good(
        201,
        R"x({"object":{"status":{"tasks":{"total":1},"nodes":2,"digest":"12ab"}},"once":{"warnings":["n2 is in maintenance"]}})x");
    input = "{kind: Job, name: up, spec: {tasks: [{name: a}]}}";
    EXPECT_EQ(run({"job", "submit", "-f", "-"}), 0) << err;
    EXPECT_EQ(out, "job up submitted: 1 task on 2 nodes, plan 12ab\n");
    EXPECT_EQ(err, "warning: n2 is in maintenance\n");
}

TEST_F(Job, WatchAlignsStatesWithoutCuttingThem) {
    answers_of["GET /v1/jobs/up/progress"] = {
        200,
        {{"Content-Type", "text/event-stream"}},
        "event: progress\ndata: {\"name\":\"up\",\"state\":\"undo_failed\",\"progress\":\"2/2\",\"message\":\"the undo of 1 task "
        "failed\","
        "\"failed\":[{\"task\":\"a\",\"state\":\"undo_failed\",\"message\":\"exit code "
        "3\"},{\"task\":\"b\",\"state\":\"lost\"}]}\n\n"};
    EXPECT_EQ(run({"job", "watch", "up"}), 1) << err;
    EXPECT_EQ(out, "job up undo_failed  2/2  \n  the undo of 1 task failed\n  undo_failed a  exit code 3\n  lost        b\n");
}

TEST_F(Job, WaitNowListsWhatIsMissing) {
    answers_of["GET /v1/jobs/up/missing"] = good(
        200,
        R"x({"job":"up","state":"running","done":false,"missing":[{"name":"a@n1","message":"running"},{"name":"db","message":"2 of db passing: 1 of 2 seen"}]})x");
    EXPECT_EQ(run({"job", "wait", "up", "--now"}), 1);
    EXPECT_EQ(out, "missing: a@n1: running\nmissing: db: 2 of db passing: 1 of 2 seen\n");
    answers_of["GET /v1/jobs/up/missing"] = good(200, R"x({"job":"up","state":"succeeded","done":true,"missing":[]})x");
    EXPECT_EQ(run({"job", "wait", "up", "--now"}), 0);
    EXPECT_EQ(out, "");
}

TEST_F(Job, CommandsAreSentWithTheirReason) {
    answers_of["POST /v1/jobs/up/approve"] = good(202, R"x({"name":"up","state":"running"})x");
    EXPECT_EQ(run({"job", "approve", "up", "--digest", "12ab", "--reason", "reviewed"}), 0) << err;
    EXPECT_EQ(out, "approved; job up is running\n");
    EXPECT_EQ(api.seen().back().body, R"({"digest":"12ab","reason":"reviewed"})");
    EXPECT_EQ(run({"job", "approve", "up"}), 2);
    EXPECT_THAT(err, HasSubstr("--digest"));
    EXPECT_THAT(err, HasSubstr("orrery job show up"));
    answers_of["POST /v1/jobs/up/pause"] = good(202, R"x({"name":"up","state":"running","paused":true})x");
    EXPECT_EQ(run({"job", "pause", "up"}), 0) << err;
    EXPECT_EQ(out, "job up is paused: no further task starts, running tasks continue\n");
    answers_of["POST /v1/jobs/up/undo"] = good(202, R"x({"name":"up","state":"undoing"})x");
    EXPECT_EQ(run({"job", "undo", "up"}), 0) << err;
    EXPECT_EQ(out, "job up is undoing; orrery job wait up returns when it is done\n");
    answers_of["POST /v1/jobs/up/cancel"] = good(202, R"x({"name":"up","state":"succeeded"})x");
    EXPECT_EQ(run({"job", "cancel", "up"}), 0) << err;
    EXPECT_EQ(out, "job up succeeded and no longer runs again when its services change\n");
    answers_of["POST /v1/jobs/up/cancel"] = FakeApi::problem(409, "conflict", "job up is over: it succeeded");
    EXPECT_EQ(run({"job", "cancel", "up"}), 5);
    EXPECT_THAT(err, HasSubstr("job up is over"));
}

TEST_F(Job, LogsSeparateStreamsAndEscapeControlCharacters) {
    answers_of["GET /v1/jobs/up/output"] =
        good(200, R"x({"pieces":[{"stream":"out","text":"one\ntwo\u001b[31m\n"},{"stream":"err","text":"bad\n"},
        {"stream":"step","text":"{\"host\":\"n1\",\"name\":\"install\",\"result\":\"changed\",\"words\":\"\"}"}],"next":0})x");
    EXPECT_EQ(run({"job", "logs", "up", "a@n1"}), 0) << err;
    EXPECT_EQ(out, "one\ntwo\\x1b[31m\n") << "steps repeat the text";
    EXPECT_EQ(err, "bad\n");
    EXPECT_EQ(run({"job", "logs", "up", "a@n1", "--steps"}), 0) << err;
    EXPECT_EQ(out, "[n1] install: changed\n");
    EXPECT_EQ(err, "");
}

TEST_F(Job, ATaskWithoutArtefactsIsReported) {
    answers_of["GET /v1/jobs/up/artefacts"] = good(200, R"x({"job":"up","task":"a@n1","attempt":1,"artefacts":[]})x");
    EXPECT_EQ(run({"job", "artefacts", "up", "a@n1"}), 0) << err;
    EXPECT_EQ(out, "");
    EXPECT_EQ(err, "no artefacts\n");
}

TEST_F(Job, ArtefactsAreListedAndSavedWithinTheFolder) {
    answers_of["GET /v1/jobs/up/artefacts"] = good(200, R"x({"job":"up","task":"a@n1","attempt":3,"artefacts":[
        {"node":"n1","path":"/var/log/x","size":4,"sha256":"abcd","number":0},{"node":"n1","path":"/none","message":"is not there","number":1}]})x");
    answers_of["GET /v1/jobs/up/artefact"] = good(200, "text");
    EXPECT_EQ(run({"job", "artefacts", "up", "a@n1"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("/var/log/x"));
    EXPECT_THAT(out, HasSubstr("is not there"));
    orrery::testing::TemporaryFolder folder;
    EXPECT_EQ(run({"job", "artefacts", "up", "a@n1", "--save", folder.path().string()}), 1) << "one is missing";
    EXPECT_THAT(err, HasSubstr("n1:/none is not there"));
    std::ifstream saved(folder.path() / "n1/var/log/x");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(saved), {}), "text");
    EXPECT_THAT(api.seen().back().target, HasSubstr("attempt=3&number=0"));
    for (const auto* wrong : {R"("node":"n1","path":"/../../x")", R"("node":"..","path":"/x")", R"("node":"a/b","path":"/x")",
                              R"("node":"n1","path":"/")"}) {
        answers_of["GET /v1/jobs/up/artefacts"] =
            good(200, std::string(R"x({"attempt":3,"artefacts":[{"number":0,"size":4,)x") + wrong + "}]}");
        EXPECT_NE(run({"job", "artefacts", "up", "a@n1", "--save", folder.path().string()}), 0) << wrong;
    }
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "x"));
}

} // namespace
} // namespace orrery::cli
