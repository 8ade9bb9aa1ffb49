#include "cli/cli_fixture.h"

#include <boost/json/serialize.hpp>

namespace orrery::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class EditCommand : public CliTest {
protected:
    EditCommand() {
        put(22);
        edits = [this](const std::string& editor, const std::string& path) -> Result<Unit> {
            editors.push_back(editor);
            auto text = contents(path);
            shown.push_back(text);
            last_path = path;
            if (steps.empty()) return Unit{};
            const auto [from, to] = steps.front();
            steps.pop_front();
            const auto at = text.find(from);
            if (at != std::string::npos) text.replace(at, from.size(), to);
            std::ofstream(path) << text;
            return Unit{};
        };
    }
    void put(int port) {
        api.put("nodes", {{"kind", "Node"},
                          {"name", "n1"},
                          {"labels", json::object{}},
                          {"spec", json::object{{"address", "192.0.2.1"}, {"ssh", json::object{{"port", port}}}}},
                          {"status", json::object{{"state", "up"}}}});
    }
    int port() { return static_cast<int>(api.stored("nodes", "n1").at("spec").at("ssh").at("port").as_int64()); }

    std::deque<std::pair<std::string, std::string>> steps; ///< what each opening of the editor replaces by what
    std::vector<std::string> editors, shown;
    std::string last_path;
};

TEST_F(EditCommand, ReplacesTheRevisionThatWasShown) {
    environment.emplace_back("EDITOR", "ed -s");
    steps = {{"port: 22", "port: 2222"}};
    EXPECT_EQ(run({"edit", "node/n1", "--reason", "new port"}), 0) << err;
    EXPECT_EQ(out, "node/n1 updated (spec.ssh.port: 22 → 2222)\n");
    EXPECT_EQ(port(), 2222);
    EXPECT_THAT(editors, ElementsAre("ed -s"));
    EXPECT_THAT(shown[0], HasSubstr("kind: Node\nname: n1\n"));
    EXPECT_THAT(shown[0], Not(HasSubstr("status")));
    EXPECT_EQ(api.seen().back().headers.get("If-Match"), "\"11-store1\"");
    EXPECT_FALSE(std::filesystem::exists(last_path));
}

TEST_F(EditCommand, AnUnchangedFileWritesNothing) {
    EXPECT_EQ(run({"edit", "node", "n1"}), 0) << err;
    EXPECT_EQ(out, "node/n1 unchanged\n");
    EXPECT_THAT(editors, ElementsAre("vi"));
    EXPECT_THAT(api.lines(), ElementsAre("GET /v1/nodes/n1"));
}

TEST_F(EditCommand, OpensAgainWithTheErrors) {
    api.intercept = [](const net::Request& request, const std::string& body) -> std::optional<net::Response> {
        if (request.method != "PUT" || body.find("70000") == std::string::npos) return {};
        return FakeApi::problem(400, "invalid", "Node n1 is not valid", "correct the fields named",
                                {json::object{{"path", "spec.ssh.port"}, {"message", "must be between 1 and 65535, got 70000"}}});
    };
    steps = {{"port: 22", "port: [22"}, {"port: [22", "port: 70000"}, {"port: 70000", "port: 23"}};
    EXPECT_EQ(run({"edit", "node/n1"}), 0) << err;
    EXPECT_EQ(port(), 23);
    ASSERT_EQ(shown.size(), 3U);
    EXPECT_THAT(shown[1], StartsWith("# error: "));
    EXPECT_THAT(shown[1], HasSubstr("port: [22"));
    EXPECT_THAT(shown[2], StartsWith("# error: Node n1 is not valid\n#   spec.ssh.port: must be between 1 and 65535, got 70000\n"));
    // Giving up: the second opening changes nothing.
    steps = {{"port: 23", "port: 70000"}};
    EXPECT_EQ(run({"edit", "node/n1"}), exit_code::invalid);
    EXPECT_THAT(err, HasSubstr("node/n1 was not changed: Node n1 is not valid"));
    EXPECT_EQ(port(), 23);
    EXPECT_FALSE(std::filesystem::exists(last_path));
}

TEST_F(EditCommand, RefusesALostUpdateAndShowsTheDifference) {
    const auto plain = edits;
    bool other_wrote = false;
    edits = [&](const std::string& editor, const std::string& path) -> Result<Unit> {
        if (!std::exchange(other_wrote, true)) put(2022);
        return plain(editor, path);
    };
    steps = {{"address: 192.0.2.1", "address: 192.0.2.9"}, {"port: 22", "port: 2022"}};
    EXPECT_EQ(run({"edit", "node/n1"}), 0) << err;
    ASSERT_EQ(shown.size(), 2U);
    EXPECT_THAT(shown[1], HasSubstr("# error: another user changed the resource while you edited it"));
    EXPECT_THAT(shown[1], HasSubstr("#   spec.ssh.port: 2022 → 22\n"));
    EXPECT_EQ(port(), 2022);
    EXPECT_EQ(api.stored("nodes", "n1").at("spec").at("address").as_string(), "192.0.2.9");
}

TEST_F(EditCommand, KeepsTheTextIfTheServerIsUnavailable) {
    api.intercept = [](const net::Request& request, const std::string&) -> std::optional<net::Response> {
        if (request.method != "PUT") return {};
        return FakeApi::problem(503, "unavailable", "the store is not there");
    };
    steps = {{"port: 22", "port: 23"}};
    EXPECT_EQ(run({"edit", "node/n1"}), exit_code::unavailable);
    EXPECT_THAT(err, HasSubstr("your text is in " + last_path));
    EXPECT_THAT(contents(last_path), HasSubstr("port: 23"));
    std::filesystem::remove_all(std::filesystem::path(last_path).parent_path());
}

} // namespace
} // namespace orrery::cli
