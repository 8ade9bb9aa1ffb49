#include "cli/cli_fixture.h"

#include <fmt/format.h>

namespace orrery::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Get : public CliTest {
protected:
    Get() {
        api.put("nodes", {{"kind", "Node"},
                          {"name", "n1"},
                          {"labels", json::object{{"role", "compute"}, {"zone", "a"}}},
                          {"spec", json::object{{"address", "192.0.2.11"}, {"ssh", json::object{{"port", 22}}}}},
                          {"status", json::object{{"state", "up"}}}});
        api.put("nodes", {{"kind", "Node"},
                          {"name", "n2"},
                          {"labels", json::object{}},
                          {"spec", json::object{{"address", "192.0.2.2"}, {"ssh", json::object{{"port", 2222}}}}},
                          {"status", json::object{}},
                          {"created_at", "2026-11-10T12:00:00.000Z"}});
    }
};

TEST_F(Get, ShowsATable) {
    EXPECT_EQ(run({"get", "nodes"}), 0) << err;
    EXPECT_EQ(out, "NAME  ADDRESS     LABELS               AGE\n"
                   "n1    192.0.2.11  role=compute,zone=a  60m\n"
                   "n2    192.0.2.2   -                    6d\n");
    EXPECT_EQ(run({"get", "no", "-o", "wide"}), 0) << err;
    EXPECT_EQ(out, "NAME  ADDRESS     LABELS               AGE  PORT\n"
                   "n1    192.0.2.11  role=compute,zone=a  60m  22\n"
                   "n2    192.0.2.2   -                    6d   2222\n");
    terminal = true;
    width = 34;
    environment.emplace_back("NO_COLOR", "1");
    EXPECT_EQ(run({"get", "nodes"}), 0) << err;
    EXPECT_EQ(out, "NAME  ADDRESS     LABELS       AGE\n"
                   "n1    192.0.2.11  role=compu…  60m\n"
                   "n2    192.0.2.2   -            6d\n");
}

TEST_F(Get, AddsNameAndAgeColumns) {
    api.put("users", {{"kind", "User"}, {"name", "alice"}, {"spec", json::object{{"role", "admin"}, {"disabled", false}}}});
    EXPECT_EQ(run({"user", "list"}), 0) << err;
    EXPECT_EQ(out, "NAME   ROLE   DISABLED  AGE\nalice  admin  false     60m\n");
}

TEST_F(Get, ShowsOneOrSeveralAsYamlThatAppliesAgain) {
    EXPECT_EQ(run({"get", "node", "n2", "-o", "yaml"}), 0) << err;
    EXPECT_EQ(out, "kind: Node\nname: n2\nspec:\n  address: 192.0.2.2\n  ssh:\n    port: 2222\nrevision: 12\n"
                   "created_at: 2026-11-10T12:00:00.000Z\nupdated_at: 2026-11-16T11:30:00.000Z\n");
    EXPECT_EQ(run({"get", "node/n1", "n2", "-o", "yaml"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("\n---\nkind: Node\nname: n2\n"));
    input = out;
    EXPECT_EQ(run({"apply", "-f", "-"}), 0) << err;
    EXPECT_EQ(out, "node/n1 unchanged\nnode/n2 unchanged\n");
}

TEST_F(Get, ShowsJsonAndNames) {
    EXPECT_EQ(run({"get", "nodes", "-o", "name"}), 0);
    EXPECT_EQ(out, "node/n1\nnode/n2\n");
    EXPECT_EQ(run({"get", "node", "n1", "-o", "json"}), 0);
    EXPECT_THAT(out, ::testing::StartsWith("{\n  \"kind\": \"Node\",\n  \"name\": \"n1\""));
    EXPECT_EQ(run({"get", "node", "-o", "json"}), 0);
    EXPECT_THAT(out, ::testing::StartsWith("{\n  \"kind\": \"NodeList\",\n  \"items\": ["));
}

TEST_F(Get, SelectsByLabelAndField) {
    EXPECT_EQ(run({"get", "nodes", "-l", "role=compute", "-o", "name"}), 0);
    EXPECT_EQ(out, "node/n1\n");
    EXPECT_EQ(api.lines().back(), "GET /v1/nodes?limit=500&labels=role=compute");
    EXPECT_EQ(run({"get", "nodes", "--field", "address=192.0.2.2", "-o", "name"}), 0);
    EXPECT_EQ(out, "node/n2\n");
    EXPECT_EQ(run({"get", "nodes", "--field", "colour=red"}), exit_code::invalid);
    EXPECT_THAT(err, HasSubstr("remedy: give FIELD=VALUE with one of address"));
    EXPECT_EQ(run({"get", "nodes", "-l", "role=none"}), 0);
    EXPECT_EQ(out, "");
    EXPECT_EQ(err, "no nodes\n");
}

TEST_F(Get, SortsByAnyField) {
    EXPECT_EQ(run({"get", "nodes", "--sort", "-spec.ssh.port", "-o", "name"}), 0) << err;
    EXPECT_EQ(out, "node/n2\nnode/n1\n");
    EXPECT_EQ(run({"get", "nodes", "--sort", "age", "-o", "name"}), 0) << err;
    EXPECT_EQ(out, "node/n1\nnode/n2\n");
    EXPECT_EQ(run({"get", "nodes", "--sort=-age", "-o", "name"}), 0) << err;
    EXPECT_EQ(out, "node/n2\nnode/n1\n");
}

TEST_F(Get, ReadsAllPages) {
    for (int i = 0; i < 1203; ++i)
        api.put("secrets", {{"kind", "Secret"}, {"name", fmt::format("s{:04}", i)}, {"spec", json::object{}}});
    EXPECT_EQ(run({"get", "secrets", "-o", "name"}), 0) << err;
    EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1203);
    EXPECT_THAT(api.lines(), ElementsAre("GET /v1/secrets?limit=500", "GET /v1/secrets?limit=500&continue=s0499",
                                         "GET /v1/secrets?limit=500&continue=s0999"));
    EXPECT_EQ(run({"get", "secrets"}), 0);
    EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1001); // people get a thousand rows and a word
    EXPECT_EQ(err, "only the first 1000 are shown; --all shows all, -l and --limit select\n");
    EXPECT_EQ(run({"get", "secrets", "--all"}), 0);
    EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1204);
    EXPECT_EQ(run({"get", "secrets", "--limit", "3", "-o", "name"}), 0);
    EXPECT_EQ(out, "secret/s0000\nsecret/s0001\nsecret/s0002\n");
    EXPECT_EQ(run({"get", "secrets", "--limit", "none"}), exit_code::usage);
}

TEST_F(Get, NamesMissingResourcesAndShowsTheOthers) {
    EXPECT_EQ(run({"get", "node", "n1", "nope", "-o", "name"}), exit_code::not_found);
    EXPECT_EQ(out, "node/n1\n");
    EXPECT_EQ(err, "error: there is no nodes nope\n");
    EXPECT_EQ(run({"get", "noeds"}), exit_code::not_found);
    EXPECT_EQ(err, "error: there is no kind \"noeds\"\nremedy: did you mean nodes? \"orrery kinds\" lists all kinds\n");
}

TEST_F(Get, DescribeSeparatesTheItemsOfAListByCommaAndSpace) {
    api.put("nodes", {{"kind", "Node"},
                      {"name", "n1"},
                      {"spec", json::object{{"address", "192.0.2.1"}}},
                      {"status", json::object{{"messages", json::array{"eu is down", "us takes over"}}}}});
    EXPECT_EQ(run({"describe", "node", "n1"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("eu is down, us takes over\n"));
}

TEST_F(Get, DescribesAllFieldsAndEvents) {
    api.put("events", {{"kind", "Event"},
                       {"name", "e1"},
                       {"spec", json::object{{"subject", "Node/n1"},
                                             {"action", "created"},
                                             {"actor", "admin"},
                                             {"reason", "rack 12 arrived"},
                                             {"at", "2026-11-16T11:00:00.000Z"}}}});
    api.put("events",
            {{"kind", "Event"}, {"name", "e2"}, {"spec", json::object{{"subject", "Node/other"}, {"action", "created"}}}});
    EXPECT_EQ(run({"describe", "node", "n1"}), 0) << err;
    EXPECT_EQ(out, "Node n1\n"
                   "  labels    role=compute,zone=a\n"
                   "  revision  11\n"
                   "  created   2026-11-16T11:00:00.000Z (60m ago)\n"
                   "  updated   2026-11-16T11:30:00.000Z (30m ago)\n"
                   "\nSpec\n"
                   "  address  192.0.2.11\n"
                   "  ssh\n"
                   "    port   22\n"
                   "\nStatus\n"
                   "  state  up\n"
                   "\nEvents\n"
                   "  AGE  ACTION   ACTOR  REASON\n"
                   "  60m  created  admin  rack 12 arrived\n");
    EXPECT_EQ(run({"describe", "node"}), exit_code::usage);
    EXPECT_EQ(run({"describe", "node/nope"}), exit_code::not_found);
}

TEST_F(Get, ExplainsKinds) {
    EXPECT_EQ(run({"explain", "node"}), 0) << err;
    EXPECT_EQ(out, "Node: A machine that orrery manages.\n"
                   "names: node, nodes, no; verbs: create, read, update, remove\n"
                   "indexed fields (--field): address\n"
                   "\nFields\n"
                   "  spec.address  text; required\n      How to reach it.\n"
                   "  spec.ssh  object\n      How to log in.\n"
                   "  spec.ssh.port  integer; default 22\n      The port.\n"
                   "  spec.ssh.key  text; refers to a Secret\n      Private key.\n"
                   "  status.state  text; one of up, down\n      How it is.\n"
                   "\nExample\nkind: Node\nname: n1\nspec:\n  address: 192.0.2.1\n");
    EXPECT_EQ(run({"explain", "node.spec.ssh"}), 0) << err;
    EXPECT_EQ(out, "  spec.ssh  object\n      How to log in.\n  spec.ssh.port  integer; default 22\n      The port.\n  "
                   "spec.ssh.key  text; refers to a Secret\n      Private key.\n");
    EXPECT_EQ(run({"explain", "node.ssh"}), exit_code::not_found);
    EXPECT_EQ(err, "error: Node has no field ssh\nremedy: did you mean node.spec.ssh?\n");
    EXPECT_EQ(run({"explain", "node.spec.sh"}), exit_code::not_found);
    EXPECT_EQ(run({"kinds"}), 0);
    EXPECT_THAT(out, ::testing::StartsWith("KIND    NAMES      VERBS                      DESCRIPTION\nNode    nodes,no   "
                                           "create,read,update,remove  A machine that orrery manages.\n"));
}

TEST_F(Get, TextOfTheServerCannotControlTheTerminal) {
    api.put("nodes", {{"kind", "Node"}, {"name", "evil"}, {"spec", json::object{{"address", "\x1b]0;owned\x07"}}}});
    EXPECT_EQ(run({"get", "node", "evil"}), 0);
    EXPECT_THAT(out, HasSubstr("\\x1b]0;owned\\x07"));
    EXPECT_EQ(run({"describe", "node", "evil"}), 0);
    EXPECT_THAT(out, Not(HasSubstr("\x1b")));
}

TEST_F(Get, SortsAllBeforeItLimits) {
    for (int i = 0; i < 1200; ++i)
        api.put("nodes", {{"kind", "Node"},
                          {"name", fmt::format("z{:04}", i)},
                          {"labels", json::object{}},
                          {"spec", json::object{{"address", "x"}}}});
    EXPECT_EQ(run({"get", "nodes", "--sort", "-name", "--limit", "2", "-o", "name"}), 0) << err;
    EXPECT_EQ(out, "node/z1199\nnode/z1198\n");
    EXPECT_EQ(run({"get", "nodes", "--sort", "-name"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("AGE\nz1199 "));
    EXPECT_THAT(err, HasSubstr("only the first 1000 are shown"));
}

TEST_F(Get, RejectsSortingByAnUnknownField) {
    EXPECT_EQ(run({"get", "nodes", "--sort", "spec.adress"}), exit_code::invalid);
    EXPECT_EQ(err, "error: --sort spec.adress: nodes have no such field\n"
                   "remedy: did you mean spec.address? \"orrery explain node\" lists the fields\n");
    for (const auto* path : {"name", "-age", "labels.role", "spec.ssh.port", "created_at", "revision"})
        EXPECT_EQ(run({"get", "nodes", "--sort", path}), 0) << path << err;
    EXPECT_EQ(run({"get", "secrets", "--sort", "spec.values.key"}), 0) << err;
}

TEST_F(Get, MissingResourcesCanBeIgnored) {
    EXPECT_EQ(run({"get", "node", "n1", "nope", "-o", "name"}), exit_code::not_found);
    EXPECT_EQ(run({"get", "node", "n1", "nope", "-o", "name", "--ignore-not-found"}), 0) << err;
    EXPECT_EQ(out, "node/n1\n");
    EXPECT_EQ(run({"delete", "node", "nope"}), exit_code::not_found);
    EXPECT_EQ(run({"delete", "node", "nope", "--ignore-not-found"}), 0) << err;
}

TEST_F(Get, GetCanWatch) {
    api.streams = {"id: 13\nevent: updated\ndata: {\"object\":{\"kind\":\"Node\",\"name\":\"n1\",\"spec\":{\"address\":\"x\"}}}\n\n"
                   "event: error\ndata: {\"code\":\"denied\",\"detail\":\"enough\"}\n\n"};
    EXPECT_EQ(run({"get", "nodes", "-w", "-o", "name"}), exit_code::denied);
    EXPECT_EQ(out, "node/n1 updated\n");
    EXPECT_EQ(run({"get", "nodes", "-w", "--sort", "name"}), exit_code::usage);
    EXPECT_EQ(run({"get", "node", "n1", "n2", "-w"}), exit_code::usage);
}

} // namespace
} // namespace orrery::cli
