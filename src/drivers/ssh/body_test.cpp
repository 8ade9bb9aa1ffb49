#include "core/test_fixture.h"
#include "core/text.h"
#include "drivers/ssh/body.h"
#include "drivers/ssh/fields.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <unistd.h>

namespace orrery::drivers::body_test {

namespace {
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

boost::json::value yaml(std::string_view text) { return parse_yaml(text)->front().value; }

std::vector<std::string> wrong_in(std::string_view text) {
    std::vector<std::string> out;
    auto checked = check_ssh_body(yaml(text));
    if (!checked.ok())
        for (const auto& field : checked.error().fields) out.push_back(field.path);
    return out;
}
} // namespace

TEST(SshBody, AValidBodyIsAccepted) {
    for (const auto* text : {
             "command: [systemctl, restart, ntp]",
             "{command: [grep, x, /etc/hosts], success: [0, 1], folder: /tmp, input: hello, sudo: true}",
             "{script: \"echo hi\", shell: python3, arguments: [a, b]}",
             "push: {to: /etc/x, content: hello, mode: \"0640\", owner: root}",
             "push: {to: /etc/x, from: haproxy/haproxy.cfg}",
             "blocks: [{file: {path: /srv, state: directory}}, {line: {path: /etc/x, line: a=1, match: ^a=}}, {package: {name: "
             "ntp}},"
             " {package: {names: [a, b], state: absent}}, {service: {name: ntp, state: running, enabled: true}}, {user: {name: "
             "web, groups: [www-data]}},"
             " {command: {argv: [make, it], creates: /x, unless: [test, -e, /y]}}, {template: {path: /etc/y, content: \"{{ a "
             "}}\"}}]",
         })
        EXPECT_TRUE(check_ssh_body(yaml(text)).ok()) << text << check_ssh_body(yaml(text)).error().text();
}

TEST(SshBody, AllErrorsAreReportedAtOnce) {
    EXPECT_THAT(wrong_in("uptime"), ElementsAre(""));
    EXPECT_THAT(wrong_in("command: uptime -p"), ElementsAre("command"));
    EXPECT_THAT(wrong_in("{command: [a], script: b}"), ElementsAre(""));
    EXPECT_THAT(wrong_in("{command: []}"), ElementsAre("command"));
    EXPECT_THAT(wrong_in("{comand: [a]}"), ElementsAre("comand"));
    EXPECT_THAT(wrong_in("push: {to: etc/x, content: a, from: b, mode: \"888\"}"), ElementsAre("push.to", "push.mode", "push"));
    EXPECT_THAT(wrong_in("push: {to: /etc/x, from: ../../etc/shadow}"), ElementsAre("push.from"));
    EXPECT_THAT(wrong_in("push: {to: /etc/x, from: /etc/shadow}"), ElementsAre("push.from"));
    EXPECT_THAT(wrong_in("{command: [a], shell: sh}"), ElementsAre("shell"));
    EXPECT_THAT(
        wrong_in("blocks: [{file: {path: x}}, {}, {file: {path: /a}, line: {path: /a, line: b}}, {template: {path: /t, content: "
                 "\"{% if %}\"}},"
                 " {package: {}}, {service: {name: a}}, {user: {name: -r}}, {file: {path: /a, content: x, state: absent}}]"),
        ElementsAre("blocks[0].file.path", "blocks[1]", "blocks[2]", "blocks[3].template.content", "blocks[4].package",
                    "blocks[5].service", "blocks[6].user.name", "blocks[7].file.content"));
    EXPECT_THAT(wrong_in("blocks: [{file: {path: \"${task.x.values.path}\", mode: \"${mode}\"}}]"), ElementsAre());
}

TEST(SshBody, ANameOfAServiceOrPackageIsNoPathAndNoPattern) {
    const auto bound = [](std::string_view block) {
        const auto read = read_ssh_body(yaml("blocks: [" + std::string(block) + "]"), {}, "");
        return read.ok() ? std::string("accepted") : read.error().fields.at(0).path;
    };
    for (const auto* name : {"../../tmp/x", "/tmp/x.service", "-x"})
        EXPECT_EQ(bound(fmt::format("{{service: {{name: \"{}\", state: running}}}}", name)), "blocks[0].service.name") << name;
    for (const auto* name : {"/tmp/x.deb", "./x", "x.deb", "sudo-", "*", "lib*", "a b", "-x", "$(id)"}) {
        EXPECT_EQ(bound(fmt::format("{{package: {{name: \"{}\"}}}}", name)), "blocks[0].package.name") << name;
        EXPECT_EQ(bound(fmt::format("{{package: {{names: [ok, \"{}\"]}}}}", name)), "blocks[0].package.names") << name;
    }
    for (const auto* name : {"g++", "libstdc++6", "nginx=1.22.1-9+deb12u3", "python3.11", "linux-image-amd64:amd64",
                             "nginx/bookworm-backports", "@development-tools", "kernel-5.14.0_1", "1.2~rc1"})
        EXPECT_EQ(bound(fmt::format("{{package: {{name: \"{}\"}}}}", name)), "accepted") << name;
    EXPECT_EQ(bound("{service: {name: getty@tty1.service, state: running}}"), "accepted");
}

TEST(SshBody, PushedFilesStayBelowTheFolderOfContent) {
    testing::TemporaryFolder folder;
    std::filesystem::create_directories(folder / "content/sub");
    std::ofstream(folder / "secret") << "s";
    std::ofstream(folder / "content/sub/file") << std::string("a\0b", 3);
    std::filesystem::create_symlink(folder / "secret", folder / "content/link");
    const auto read = [&](std::string_view from) {
        return read_ssh_body(yaml("push: {to: /x, from: " + std::string(from) + "}"), {}, folder / "content");
    };
    auto good = read("sub/file");
    ASSERT_TRUE(good.ok()) << good.error().text();
    EXPECT_EQ(good->content, std::string("a\0b", 3));
    EXPECT_EQ(read("sub/none").error().code, Code::not_found);
    EXPECT_EQ(read("sub").error().code, Code::not_found);
    EXPECT_EQ(read("link").error().code, Code::denied);
}

TEST(SshBody, TemplatesAreRenderedFromValues) {
    auto good = read_ssh_body(yaml("blocks: [{template: {path: /etc/x, content: \"port {{ port }}\\n\", mode: \"0600\"}}]"),
                              {{"port", 80}}, "");
    ASSERT_TRUE(good.ok()) << good.error().text();
    EXPECT_THAT(good->blocks[0].fields, ElementsAre("/etc/x", "present", "1", "t", "port 80\n", "600", "", "", "0"));
    auto bad = read_ssh_body(yaml("blocks: [{template: {path: /etc/x, content: \"{{ none }}\"}}]"), {}, "");
    EXPECT_THAT(bad.error().message, HasSubstr("/etc/x"));
}

TEST(Content, IsFoundOnlyBelowItsFolder) {
    const auto top = std::filesystem::temp_directory_path() / fmt::format("orrery-content-{}", ::getpid());
    std::filesystem::remove_all(top);
    std::filesystem::create_directories(top / "content" / "plays");
    std::ofstream(top / "content" / "plays" / "site.yml") << "x";
    std::ofstream(top / "outside") << "x";
    std::filesystem::create_directory_symlink(top / "content", top / "link-to-content");
    std::filesystem::create_symlink(top / "outside", top / "content" / "out.yml");
    std::filesystem::create_directory_symlink(top, top / "content" / "up");
    std::filesystem::create_symlink("plays/site.yml", top / "content" / "in.yml");
    const auto content_of = [&](const std::string& name) {
        const auto found = resolve_content(top / "link-to-content", "playbook", name);
        return found.ok() ? found->filename().string() : found.error().message;
    };
    EXPECT_EQ(content_of("plays/site.yml"), "site.yml");
    EXPECT_EQ(content_of("in.yml"), "site.yml");
    EXPECT_EQ(content_of("plays"), "plays");
    EXPECT_THAT(content_of("out.yml"), HasSubstr("is a link that leads out of the folder of content"));
    EXPECT_THAT(content_of("up/outside"), HasSubstr("leads out of the folder of content"));
    EXPECT_THAT(content_of("none.yml"), HasSubstr("the server has no "));
    EXPECT_THAT(content_of("../outside"), HasSubstr("playbook must be a plain path"));
    EXPECT_THAT(content_of("${x}/../../outside"), HasSubstr("playbook must be a plain path")) << "a bound name has no references";
    EXPECT_THAT(content_of("/etc/passwd"), HasSubstr("playbook must be a path below the folder of content"));
    EXPECT_THAT(content_of(std::string("a\0b", 3)), HasSubstr("playbook must be a path below"));
    std::filesystem::remove_all(top);
}

TEST(Fields, AreLinesIfTheirValuesAllowIt) {
    EXPECT_EQ(Fields().add("a b").add(3).release(), "=a b\n=3\n");
    EXPECT_EQ(Fields().add("a\n").release(), "+3\na\n.\n");
    EXPECT_EQ(Fields().add("").release(), "=\n");
    for (const auto* text : {"", "a", "ab", "abc", "abcd"}) EXPECT_EQ(from_base64(base64(text)), text);
    EXPECT_EQ(from_base64("!!!!"), "");
}

} // namespace orrery::drivers::body_test
