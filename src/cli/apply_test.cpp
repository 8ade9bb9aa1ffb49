#include "cli/cli_fixture.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

namespace orrery::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class Apply : public CliTest {
protected:
    static json::object node(std::string_view name, int port = 22) {
        return {{"kind", "Node"},
                {"name", name},
                {"labels", json::object{{"role", "compute"}}},
                {"spec", json::object{{"address", "192.0.2.1"}, {"ssh", json::object{{"port", port}}}}}};
    }
    static constexpr std::string_view site = "kind: Node\nname: n1\nspec:\n  address: 192.0.2.1\n  ssh: {port: 22, key: k1}\n---\n"
                                             "kind: secret\nname: k1\nspec:\n  values: {private_key: hunter2}\n";
};

TEST_F(Apply, CreatesReferencedResourcesFirst) {
    EXPECT_EQ(run({"apply", "-f", file("site.yaml", site)}), 0) << err;
    EXPECT_EQ(out, "secret/k1 created\nnode/n1 created\n");
    EXPECT_EQ(err, "2 resources: 2 created\n");
    EXPECT_THAT(api.lines(), ElementsAre("GET /v1/secrets/k1", "PUT /v1/secrets/k1", "GET /v1/nodes/n1", "PUT /v1/nodes/n1"));
    EXPECT_EQ(api.seen()[2].headers.get("If-None-Match"), "*");
}

TEST_F(Apply, PrintsWhatChangedAndWhatDidNot) {
    api.put("nodes", node("n1"));
    api.put("nodes", node("n2"));
    const auto path = file(
        "nodes.yaml", "kind: Node\nname: n1\nlabels: {role: compute, zone: a}\nspec: {address: 192.0.2.1, ssh: {port: 2222}}\n---\n"
                      "kind: Node\nname: n2\nlabels: {role: compute}\nspec: {address: 192.0.2.1, ssh: {port: 22}}\n");
    EXPECT_EQ(run({"apply", "-f", path, "--reason", "new port & zone"}), 0) << err;
    EXPECT_EQ(out, "node/n1 updated (labels.zone: a added, spec.ssh.port: 22 → 2222)\nnode/n2 unchanged\n");
    EXPECT_THAT(api.lines()[1], "PUT /v1/nodes/n1?reason=new port & zone");
    EXPECT_EQ(api.seen()[2].headers.get("If-Match"), "\"11-store1\"");
    EXPECT_EQ(json::serialize(api.stored("nodes", "n1")["spec"]), R"({"address":"192.0.2.1","ssh":{"port":2222}})");
}

TEST_F(Apply, TriesAgainAfterAConcurrentWrite) {
    api.put("nodes", node("n1"));
    int refused = 0;
    api.intercept = [&](const net::Request& request, const std::string&) -> std::optional<net::Response> {
        if (request.method == "PUT" && ++refused <= 2) return FakeApi::problem(412, "conflict", "it was changed by another client");
        return {};
    };
    const auto path = file("n.yaml", "kind: Node\nname: n1\nspec: {address: 192.0.2.9}\n");
    EXPECT_EQ(run({"apply", "-f", path}), 0) << err;
    EXPECT_EQ(refused, 3);
    refused = -100;
    EXPECT_EQ(run({"apply", "-f", path}), exit_code::conflict);
    EXPECT_EQ(refused, -95); // five attempts, then it gives up
    EXPECT_THAT(err, HasSubstr("error: node/n1 (" + path + ":1): it was changed by another client\n"));
}

TEST_F(Apply, ContinuesAfterAnErrorAndNamesItsLocation) {
    api.intercept = [](const net::Request& request, const std::string&) -> std::optional<net::Response> {
        if (request.method != "PUT" || request.target.path != "/v1/nodes/bad") return {};
        return FakeApi::problem(400, "invalid", "Node bad is not right", "see \"orrery explain node\"",
                                {json::object{{"path", "spec.ssh.port"}, {"message", "must be between 1 and 65535, got 70000"}}});
    };
    const auto path =
        file("n.yaml",
             "kind: Node\nname: bad\nspec: {address: x, ssh: {port: 70000}}\n---\nkind: Node\nname: good\nspec: {address: x}\n");
    EXPECT_EQ(run({"apply", "-f", path}), exit_code::invalid);
    EXPECT_EQ(out, "node/good created\n");
    EXPECT_EQ(err, "error: node/bad (" + path +
                       ":1): Node bad is not right\n"
                       "  " +
                       path +
                       ":3: spec.ssh.port: must be between 1 and 65535, got 70000\n"
                       "remedy: see \"orrery explain node\"\n"
                       "2 resources: 1 created, 1 failed\n");
}

TEST_F(Apply, NamesTheLineOfTheOnlyInvalidField) {
    api.intercept = [](const net::Request& request, const std::string&) -> std::optional<net::Response> {
        if (request.method == "GET") return {};
        return FakeApi::problem(400, "invalid", "it is not valid: spec.ssh.port must be between 1 and 65535, got 70000", {},
                                {json::object{{"path", "spec.ssh.port"}, {"message", "must be between 1 and 65535, got 70000"}}});
    };
    const auto path = file("one.yaml", "kind: Node\nname: bad\nspec:\n  address: x\n  ssh:\n    port: 70000\n");
    EXPECT_EQ(run({"apply", "-f", path}), exit_code::invalid);
    EXPECT_EQ(err, "error: node/bad (" + path + ":6): it is not valid: spec.ssh.port must be between 1 and 65535, got 70000\n");
}

TEST_F(Apply, ReadsFoldersStandardInputAndLists) {
    file("site/b.yml", "kind: Node\nname: b\nspec: {address: x}\n");
    file(
        "site/deep/a.json",
        R"({"kind":"NodeList","items":[{"kind":"Node","name":"a1","spec":{"address":"x"}},{"kind":"Node","name":"a2","spec":{"address":"x"}}]})");
    file("site/readme.txt", "not a document");
    file("site/.hidden/c.yaml", "kind: Node\nname: c\nspec: {address: x}\n");
    input = "kind: Node\nname: piped\nspec: {address: x}\n";
    EXPECT_EQ(run({"apply", "-f", home / "site", "-f", "-"}), 0) << err;
    EXPECT_EQ(out, "node/b created\nnode/a1 created\nnode/a2 created\nnode/piped created\n");
}

TEST_F(Apply, ReportsEveryInvalidDocument) {
    file("site/a.yaml", "kind: Noed\nname: x\n---\nname: x\n---\nkind: Node\n---\n- 1\n---\nkind: Node\nname: ok\nspec: {address: "
                        "x}\n---\nkind: Node\nname: ok\n");
    file("site/b.yaml", "kind: [\n");
    EXPECT_EQ(run({"apply", "-f", home / "site"}), exit_code::invalid);
    EXPECT_EQ(out, "node/ok created\n");
    EXPECT_THAT(err, HasSubstr("a.yaml:1: there is no kind \"Noed\"\nremedy: did you mean node?"));
    EXPECT_THAT(err, HasSubstr("a.yaml:3 has no kind\nremedy: add a line such as \"kind: Node\""));
    EXPECT_THAT(err, HasSubstr("is a Node without a name"));
    EXPECT_THAT(err, HasSubstr("is not a map with kind, name and spec"));
    EXPECT_THAT(err, HasSubstr("repeats node/ok, which is in"));
    EXPECT_THAT(err, HasSubstr("b.yaml: "));
    EXPECT_THAT(err, HasSubstr("7 resources: 1 created, 6 failed"));
    EXPECT_EQ(run({"apply", "-f", home / "nowhere"}), exit_code::invalid);
    EXPECT_THAT(err, HasSubstr("nowhere cannot be read: No such file or directory"));
}

TEST_F(Apply, DryRunChangesNothingAndAcceptsReferencesWithinTheRun) {
    EXPECT_EQ(run({"apply", "--dry-run", "-f", file("site.yaml", site)}), 0) << err;
    EXPECT_EQ(out, "secret/k1 created (dry run)\nnode/n1 created (dry run)\n");
    EXPECT_EQ(err, "2 resources: 2 created (dry run)\n");
    EXPECT_FALSE(api.has("secrets", "k1"));
    EXPECT_FALSE(api.has("nodes", "n1"));
}

TEST_F(Apply, TheSummaryOfADryRunNamesIt) {
    api.put("nodes", node("n1"));
    api.put("nodes", node("n2"));
    EXPECT_EQ(run({"delete", "--dry-run", "node", "n1", "n2"}), 0) << err;
    EXPECT_EQ(err, "2 resources: 2 removed (dry run)\n");
    EXPECT_EQ(run({"delete", "node", "n1", "n2"}), 0) << err;
    EXPECT_EQ(err, "2 resources: 2 removed\n");
}

TEST_F(Apply, StopsAtAnErrorThatStopsAll) {
    save_session(api.url(), "orr_old");
    environment.emplace_back("ORRERY_TOKEN_FILE", file("token", "orr_old\n"));
    EXPECT_EQ(run({"apply", "-f", file("site.yaml", site)}), exit_code::denied);
    EXPECT_THAT(err, HasSubstr("error: the token is invalid: it is unknown or was revoked\nremedy: "));
    EXPECT_THAT(err, StartsWith("warning: ")); // all users can read the file
}

TEST_F(Apply, QuietPrintsOnlyErrors) {
    EXPECT_EQ(run({"-q", "apply", "-f", file("site.yaml", site)}), 0);
    EXPECT_EQ(out + err, "");
}

TEST_F(Apply, PrintsValuesThatAreShownOnce) {
    EXPECT_EQ(run({"apply", "-f", file("t.yaml", "kind: Token\nname: t1\nspec: {user: admin}\n")}), 0) << err;
    EXPECT_EQ(out, "token/t1 created\norr_fresh\n");
}

TEST_F(Apply, DiffListsChangesAndEndsWithTen) {
    api.put("nodes", node("n1"));
    const auto path =
        file("site.yaml", std::string(site) + "---\nkind: Node\nname: n2\nlabels: {zone: a}\nspec: {address: 192.0.2.2}\n");
    EXPECT_EQ(run({"diff", "-f", path}), exit_code::differences);
    EXPECT_EQ(out, "secret/k1 would be created\n"
                   "  + spec.values.private_key: (secret)\n"
                   "node/n1 would be updated\n"
                   "  + spec.address: 192.0.2.1\n"
                   "  + spec.ssh.port: 22\n"
                   "  + spec.ssh.key: k1\n"
                   "node/n2 would be created\n"
                   "  + labels.zone: a\n"
                   "  + spec.address: 192.0.2.2\n");
    EXPECT_THAT(out + err, Not(HasSubstr("hunter2")));
    terminal = true;
    const auto changed = file("n1.yaml", "kind: Node\nname: n1\nspec: {address: 192.0.2.1, ssh: {port: 23}}\n");
    EXPECT_EQ(run({"diff", "-f", changed}), exit_code::differences);
    EXPECT_EQ(out, "\x1b[1mnode/n1\x1b[0m would be \x1b[33mupdated\x1b[0m\n"
                   "\x1b[31m  - labels.role: compute\x1b[0m\n"
                   "\x1b[33m  ~ spec.ssh.port: 22 → 23\x1b[0m\n");
    environment.emplace_back("NO_COLOR", "1");
    EXPECT_EQ(run({"diff", "-f", changed}), exit_code::differences);
    EXPECT_THAT(out, Not(HasSubstr("\x1b")));
    const auto same =
        file("same.yaml", "kind: Node\nname: n1\nlabels: {role: compute}\nspec: {address: 192.0.2.1, ssh: {port: 22}}\n");
    EXPECT_EQ(run({"diff", "-f", same}), 0);
    EXPECT_EQ(out, "");
}

TEST_F(Apply, DeletesByNameByPathAndByFile) {
    for (const auto* name : {"n1", "n2", "n3"}) api.put("nodes", node(name));
    EXPECT_EQ(run({"delete", "node", "n1", "--because", "sold"}), 0) << err;
    EXPECT_EQ(out, "node/n1 removed\n");
    EXPECT_EQ(api.lines().back(), "DELETE /v1/nodes/n1?reason=sold");
    EXPECT_EQ(run({"delete", "no/n2", "--dry-run"}), 0) << err;
    EXPECT_EQ(out, "node/n2 removed (dry run)\n");
    EXPECT_TRUE(api.has("nodes", "n2"));
    EXPECT_EQ(run({"delete", "nodes", "n2", "nowhere"}), exit_code::not_found);
    EXPECT_EQ(out, "node/n2 removed\n");
    EXPECT_EQ(err, "error: node/nowhere: there is no nodes nowhere\n2 resources: 1 removed, 1 failed\n");
    EXPECT_EQ(run({"delete", "-f", file("n3.yaml", "kind: Node\nname: n3\n---\nkind: Node\nname: gone\n")}), 0) << err;
    EXPECT_EQ(out, "node/gone does not exist\nnode/n3 removed\n");
    EXPECT_EQ(run({"delete"}), exit_code::usage);
    EXPECT_EQ(run({"delete", "node"}), exit_code::usage);
}

TEST_F(Apply, DeletesReferringResourcesFirst) {
    const auto path = file("site.yaml", site);
    ASSERT_EQ(run({"apply", "-f", path}), 0) << err;
    EXPECT_EQ(run({"delete", "secret", "k1"}), exit_code::conflict);
    EXPECT_EQ(err, "error: secret/k1: Secret k1 is referred to by Node/n1 (spec.ssh.key)\nremedy: change or remove those first\n");
    EXPECT_EQ(run({"delete", "-f", path}), 0) << err;
    EXPECT_EQ(out, "node/n1 removed\nsecret/k1 removed\n");
}

TEST_F(Apply, HonoursTheRevisionOfTheFile) {
    api.put("nodes", node("n1", 22));
    EXPECT_EQ(run({"get", "node", "n1", "-o", "yaml"}), 0);
    const auto old = file("old.yaml", out);
    api.put("nodes", node("n1", 2022)); // another client
    api.put("events", {{"kind", "Event"}, {"name", "e1"}, {"spec", json::object{{"subject", "Node/n1"}, {"action", "updated"}}}});
    for (const std::string mode : {"--dry-run", "--quiet"}) {
        EXPECT_EQ(run({"apply", "-f", old, mode}), exit_code::conflict);
        EXPECT_THAT(err, HasSubstr("error: node/n1 (" + old + ":1): changed since revision 11 and is at revision 12"));
        EXPECT_THAT(err, HasSubstr("old.yaml:8: spec.ssh.port: 2022 → 22\n"));
        EXPECT_THAT(err, HasSubstr("remedy: read it again with \"orrery get node n1 -o yaml\", or remove `revision`"));
    }
    EXPECT_EQ(api.stored("nodes", "n1").at("spec").at("ssh").at("port").as_int64(), 2022);
    // Nothing would be lost: the same text, or a resource that is not there any more.
    EXPECT_EQ(
        run({"apply", "-f",
             file("same.yaml",
                  "kind: Node\nname: n1\nrevision: 3\nlabels: {role: compute}\nspec: {address: 192.0.2.1, ssh: {port: 2022}}\n")}),
        0)
        << err;
    EXPECT_EQ(out, "node/n1 unchanged\n");
    EXPECT_EQ(run({"delete", "node", "n1"}), 0);
    EXPECT_EQ(run({"apply", "-f", old}), 0) << err;
    EXPECT_EQ(out, "node/n1 created\n");
}

TEST_F(Apply, StatusWritesDoNotConflictWithAFile) {
    api.put("nodes", node("n1", 22));
    api.put("events", {{"kind", "Event"}, {"name", "e1"}, {"spec", json::object{{"subject", "Node/n1"}, {"action", "created"}}}});
    api.put("events", {{"kind", "Event"}, {"name", "e2"}, {"spec", json::object{{"subject", "Node/n1"}, {"action", "went-down"}}}});
    api.put("nodes", node("n1", 22)); // a new status: a new revision, and no event
    const auto changed = file("n.yaml", "kind: Node\nname: n1\nrevision: 12\nspec: {address: 192.0.2.1, ssh: {port: 23}}\n");
    EXPECT_EQ(run({"apply", "-f", changed}), 0) << err;
    EXPECT_THAT(out, HasSubstr("spec.ssh.port: 22 → 23"));
}

TEST_F(Apply, StopsWhenTheStoreIsFullOrUnavailable) {
    for (const bool full : {true, false}) {
        api.intercept = [full](const net::Request& request, const std::string&) -> std::optional<net::Response> {
            if (request.method != "PUT") return {};
            return full ? FakeApi::problem(507, "no_space", "no room") : FakeApi::problem(503, "unavailable", "not now");
        };
        std::string many;
        for (int i = 0; i < 20; ++i) many += fmt::format("kind: Node\nname: n{}\nspec: {{address: x}}\n---\n", i);
        EXPECT_EQ(run({"apply", "-f", file("many.yaml", many)}), exit_code::unavailable);
        EXPECT_THAT(err, HasSubstr("20 resources: 1 failed, 19 not tried"));
    }
}

TEST_F(Apply, DeletesByLabelAfterConfirmation) {
    api.put("nodes", node("n1"));
    api.put("nodes", node("n2"));
    EXPECT_EQ(run({"delete", "nodes", "-l", "role=compute"}), exit_code::invalid);
    EXPECT_THAT(err, HasSubstr("selects 2 nodes, and there is no terminal for the confirmation"));
    answers = {"at a terminal"};
    input = "n\n";
    EXPECT_EQ(run({"delete", "nodes", "-l", "role=compute"}), exit_code::interrupted);
    EXPECT_THAT(err, HasSubstr("  node/n1\n  node/n2\ndelete 2 nodes? [y/N] nothing was deleted"));
    EXPECT_TRUE(api.has("nodes", "n1"));
    input = "y\n";
    EXPECT_EQ(run({"delete", "nodes", "-l", "role=compute"}), 0) << err;
    EXPECT_FALSE(api.has("nodes", "n1"));
    answers.clear();
    api.put("nodes", node("n3"));
    EXPECT_EQ(run({"delete", "nodes", "-l", "role=compute", "--yes"}), 0) << err;
    EXPECT_EQ(out, "node/n3 removed\n");
    EXPECT_EQ(run({"delete", "nodes", "n1", "-l", "role=compute"}), exit_code::usage);
}

} // namespace
} // namespace orrery::cli
