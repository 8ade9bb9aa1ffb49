#include "cli/cli_fixture.h"

namespace orrery::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Fleet : public CliTest {
protected:
    Fleet() {
        api.intercept = [this](const net::Request& request, const std::string& body) -> std::optional<net::Response> {
            const auto found = fleet_answers.find(request.method + " " + request.target.path);
            if (found == fleet_answers.end()) return {};
            last_body = body;
            return net::Response{200, {{"Content-Type", "application/json"}}, found->second};
        };
    }
    std::map<std::string, std::string> fleet_answers;
    std::string last_body;
};

TEST_F(Fleet, ImportSendsTheFileAndReportsWhatIsNotInIt) {
    fleet_answers["POST /v1/fleet/import"] =
        R"({"machines":[{"machine":"ctl-0","outcome":"created","position":"[0]"},{"machine":"old","outcome":"updated","position":"[1]","name_in_file":"new\u001b"}],
        "absent":["gone-1","gone-2"],"created":1,"updated":1,"unchanged":0,"dry_run":true})";
    const auto path = file("rack.csv", "ipmi,10.0.0.8,admin,x\n");
    EXPECT_EQ(run({"fleet", "import", path, "--dry-run", "--reason", "rack 12"}), 0) << err;
    EXPECT_EQ(out, "machine/ctl-0 created\nmachine/old updated (new\\x1b in the file)\n1 created, 1 updated, 0 unchanged (dry run: "
                   "nothing was changed)\n"
                   "in the inventory but not in the file: gone-1, gone-2\n");
    EXPECT_EQ(last_body, R"({"file":"ipmi,10.0.0.8,admin,x\n"})");
    EXPECT_THAT(api.lines().back(), HasSubstr("dry_run=true"));
    EXPECT_NE(run({"fleet", "import", "/no/such/file"}), 0);
}

TEST_F(Fleet, WhyHasNoEmptyLineForAGroupOfMachines) {
    fleet_answers["GET /v1/why/nodes/cloud"] =
        R"({"message":"cloud is not feasible","rejected":[{"machines":["m1","m2"],"reasons":[{"message":"too small"}]}]})";
    EXPECT_EQ(run({"why", "node/cloud"}), 0) << err;
    EXPECT_EQ(out, "cloud is not feasible\n  rejected:\n    machines: m1,m2\n    reasons:\n      too small\n");
}

TEST_F(Fleet, ImportShowsAllErrorsOfTheFile) {
    api.intercept = [](const net::Request& request, const std::string&) -> std::optional<net::Response> {
        if (request.target.path != "/v1/fleet/import") return {};
        return FakeApi::problem(400, "invalid", "the import file has 2 errors", "correct them",
                                {json::object{{"path", "line 1"}, {"message", "pm_user is missing"}},
                                 json::object{{"path", "line 7"}, {"message", "pm_addr is missing"}}});
    };
    const auto path = file("rack.csv", "ipmi,a\n");
    EXPECT_EQ(run({"fleet", "import", path}), 7);
    EXPECT_THAT(err, HasSubstr("error: " + path + ": the import file has 2 errors\n"));
    EXPECT_THAT(err, HasSubstr("line 1: pm_user is missing"));
    EXPECT_THAT(err, HasSubstr("line 7: pm_addr is missing"));
}

TEST_F(Fleet, PreviewShowsMachinesByRoleAndRejectedOnesWithReasons) {
    fleet_answers["POST /v1/plans/cloud/preview"] =
        R"({"plan":"cloud","feasible":true,"message":"plan cloud is feasible: 1 machines keep their role, 1 are added, 0 are moved, 1 are released","digest":"abc",
        "problems":[],"warnings":["role control has no image"],
        "roles":[{"role":"control","version":2,"flavor":"big","count":2,"assigned":2,"missing":0,"suitable":3,"machines":[
          {"machine":"a","change":"keep","failure_domain":"r1","cost":{"surplus":0,"scarcity":1,"benchmark":0,"total":1}},
          {"machine":"b","change":"move","from":"web","pinned":true,"cost":{"surplus":500,"scarcity":1,"benchmark":0,"total":501}}]}],
        "released":[{"machine":"z","role":"control"}],"spare":["s1","s2"],
        "rejected":[{"machines":["c","d"],"reasons":[{"role":"control","message":"cpus is 4; at least 8 is needed"}]},{"machines":["e"],"reasons":[{"message":"it is in maintenance"}]}]})";
    EXPECT_EQ(run({"plan", "preview", "cloud"}), 0) << err;
    EXPECT_EQ(out, "plan cloud is feasible: 1 machines keep their role, 1 are added, 0 are moved, 1 are released\n"
                   "warning: role control has no image\n"
                   "\n"
                   "role control (version 2, flavor big): 2 of 2 machines\n"
                   "MACHINE  CHANGE                  DOMAIN  COST  SURPLUS  SCARCITY  BENCHMARK\n"
                   "a        keep                    r1      1     0        1         0\n"
                   "b        move from web (pinned)          501   500      1         0\n"
                   "\n"
                   "released: z from role control\n"
                   "\n"
                   "spare: s1, s2\n"
                   "\n"
                   "rejected:\n"
                   "  c, d\n"
                   "    role control: cpus is 4; at least 8 is needed\n"
                   "  e\n"
                   "    it is in maintenance\n"
                   "\n"
                   "digest abc\n");
    EXPECT_EQ(run({"plan", "preview", "cloud", "-o", "json"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("\"digest\": \"abc\""));
}

TEST_F(Fleet, AnInfeasiblePlanEndsWithOne) {
    fleet_answers["POST /v1/plans/cloud/preview"] =
        R"({"plan":"cloud","feasible":false,"message":"m","digest":"abc","problems":["role control needs 3 machines, but no machine fits it; 3 are missing"],"warnings":[],
        "roles":[],"released":[],"spare":[],"rejected":[]})";
    EXPECT_EQ(run({"plan", "preview", "cloud"}), 1);
    EXPECT_THAT(out,
                HasSubstr("plan cloud is infeasible\n  role control needs 3 machines, but no machine fits it; 3 are missing\n"));
}

TEST_F(Fleet, FlavorsAndOutliersAreTables) {
    fleet_answers["GET /v1/fleet/flavor-suggestions"] =
        R"({"flavors":[{"name":"flavor-8cpu","spec":{"cpus":8,"memory_mb":1024,"local_gb":40,"cpu_arch":"x86_64","mode":"exact"},"machines":["a","b"]}],"not_introspected":["c"]})";
    EXPECT_EQ(run({"fleet", "flavors"}), 0) << err;
    EXPECT_EQ(out, "FLAVOR       CPUS  MEMORY_MB  LOCAL_GB  ARCH    MACHINES\n"
                   "flavor-8cpu  8     1024       40        x86_64  a, b\n"
                   "not introspected: c\n");
    EXPECT_EQ(run({"fleet", "flavors", "-o", "yaml"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("kind: Flavor\nname: flavor-8cpu\nspec:\n  cpus: 8\n"));
    EXPECT_THAT(out, Not(HasSubstr("machines")));
    fleet_answers["GET /v1/fleet/outliers"] =
        R"({"machines":[{"machine":"b","verdict":"slow","message":"memory is slow"}],"measured":19,"compared":19})";
    EXPECT_EQ(run({"fleet", "outliers"}), 0) << err;
    EXPECT_EQ(out, "MACHINE  VERDICT  EVIDENCE\nb        slow     memory is slow\n19 machines measured, 19 compared, 1 deviate\n");
}

} // namespace
} // namespace orrery::cli
