#include "core/text.h"
#include "drivers/ssh/ssh.h"
#include "drivers/ssh/ssh_fixture.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

namespace orrery::drivers::untrusted_folders_test {

namespace {

using jobs::Outcome;
using net::testing::TestSshd;
using testing::attempt_on;
using testing::FakeLogins;
using ::testing::HasSubstr;
using testing::StoredOutput;

constexpr uid_t other_user = 65534;

/// A node on which root manages files in a folder that belongs to another user.
struct NodeWithOtherUser {
    explicit NodeWithOtherUser(asio::io_context& loop)
        : logins(sshd), ssh(loop.get_executor()), runner(ssh, logins), remote(runner), executor(ssh_executor(remote, pool, {})) {
        std::filesystem::create_directory(theirs());
        std::filesystem::create_directory(sshd.folder() / "etc");
        own(theirs());
        std::ofstream(victim()) << "untouched";
    }
    std::filesystem::path theirs() const { return sshd.folder() / "theirs"; }
    std::filesystem::path victim() const { return sshd.folder() / "etc/victim"; }
    static void own(const std::filesystem::path& path) { EXPECT_EQ(::lchown(path.c_str(), other_user, other_user), 0); }
    void their_link(const std::string& name, const std::filesystem::path& target) {
        std::filesystem::create_symlink(target, theirs() / name);
        own(theirs() / name);
    }
    static std::string content(const std::filesystem::path& path) {
        std::ifstream stream(path);
        return {std::istreambuf_iterator<char>(stream), {}};
    }
    Task<Outcome> run(std::string id, const std::string& body) {
        StoredOutput output;
        co_return co_await executor->start(Context::background().with_timeout(std::chrono::seconds(30)),
                                           attempt_on(std::move(id), parse_yaml(body)->front().value), output);
    }

    TestSshd sshd;
    FakeLogins logins;
    Pool pool{1};
    net::Ssh ssh;
    SshRunner runner;
    RemoteAttempts remote;
    std::unique_ptr<jobs::Executor> executor;
};

std::string block(const std::string& fields) { return "blocks: [" + fields + "]"; }

#define CO_NEEDS_ROOT_AND_SSHD()                                                                                                   \
    if (::geteuid() != 0 || !TestSshd::is_installed()) {                                                                           \
        []() { GTEST_SKIP() << "needs root and sshd (Debian package openssh-server)"; }();                                         \
        co_return;                                                                                                                 \
    }

} // namespace

CO_TEST(FilesInAFolderOfAnotherUser, ALinkAtThePathIsAnErrorAndIsNotFollowed) {
    CO_NEEDS_ROOT_AND_SSHD();
    NodeWithOtherUser node(loop);
    node.their_link("app.conf", node.victim());
    const auto path = (node.theirs() / "app.conf").string();
    auto file = co_await node.run("a1", block("{file: {path: " + path + ", content: secret, mode: \"0600\"}}"));
    auto line = co_await node.run("a2", block("{line: {path: " + path + ", line: secret}}"));
    auto push = co_await node.run("a3", "push: {to: " + path + ", content: secret}");
    auto asked = co_await node.run("a4", "push: {to: " + path + ", content: followed, follow: true}");
    co_await node.ssh.stop();
    for (const auto* outcome : {&file, &line, &push}) {
        CO_ASSERT_OK(*outcome);
        EXPECT_EQ((*outcome)->ended, Outcome::Ended::failed);
    }
    EXPECT_THAT(file->message, HasSubstr("is a symbolic link; with follow: true"));
    CO_ASSERT_OK(asked);
    EXPECT_EQ(asked->ended, Outcome::Ended::succeeded);
    EXPECT_EQ(NodeWithOtherUser::content(node.victim()), "followed");
}

CO_TEST(FilesInAFolderOfAnotherUser, AFolderThatIsALinkOfThatUserIsNotEntered) {
    CO_NEEDS_ROOT_AND_SSHD();
    NodeWithOtherUser node(loop);
    node.their_link("conf", node.sshd.folder() / "etc");
    std::filesystem::create_symlink(node.sshd.folder() / "etc", node.sshd.folder() / "by-root");
    auto theirs = co_await node.run("b1", block("{file: {path: " + (node.theirs() / "conf/victim").string() + ", content: x}}"));
    auto made = co_await node.run("b2", block("{file: {path: " + (node.theirs() / "conf/d").string() + ", state: directory}}"));
    auto of_root =
        co_await node.run("b3", block("{file: {path: " + (node.sshd.folder() / "by-root/new").string() + ", content: x}}"));
    co_await node.ssh.stop();
    CO_ASSERT_OK(theirs);
    CO_ASSERT_OK(made);
    CO_ASSERT_OK(of_root);
    EXPECT_THAT(theirs->message, HasSubstr("is a symbolic link that belongs to user 65534"));
    EXPECT_EQ(made->ended, Outcome::Ended::failed);
    EXPECT_EQ(NodeWithOtherUser::content(node.victim()), "untouched");
    EXPECT_FALSE(std::filesystem::exists(node.sshd.folder() / "etc/d"));
    EXPECT_EQ(of_root->ended, Outcome::Ended::succeeded) << "a link that root made is part of the layout of the node";
}

CO_TEST(FilesInAFolderOfAnotherUser, PreparedNamesOfTemporaryFilesAreNotUsed) {
    CO_NEEDS_ROOT_AND_SSHD();
    NodeWithOtherUser node(loop);
    // Every name that a process number or the attempt could give.
    for (int pid = 1; pid < 40000; ++pid) node.their_link(".orrery." + std::to_string(pid), node.victim());
    node.their_link(".orrery-c2", node.victim());
    const auto path = (node.theirs() / "app.conf").string();
    auto file = co_await node.run("c1", block("{file: {path: " + path + ", content: secret, owner: nobody, mode: \"0600\"}}"));
    auto push = co_await node.run("c2", "push: {to: " + path + ", content: pushed, owner: root}");
    co_await node.ssh.stop();
    CO_ASSERT_OK(file);
    CO_ASSERT_OK(push);
    EXPECT_EQ(file->ended, Outcome::Ended::succeeded) << file->message;
    EXPECT_EQ(push->ended, Outcome::Ended::succeeded) << push->message;
    EXPECT_EQ(NodeWithOtherUser::content(node.victim()), "untouched");
    EXPECT_EQ(NodeWithOtherUser::content(path), "pushed");
}

CO_TEST(FilesInAFolderOfAnotherUser, AnArtefactIsNotReadThroughALinkOfThatUser) {
    CO_NEEDS_ROOT_AND_SSHD();
    NodeWithOtherUser node(loop);
    std::ofstream(node.theirs() / "plain") << "theirs";
    node.their_link("link", node.victim());
    node.their_link("folder", node.victim().parent_path());
    std::filesystem::create_hard_link(node.victim(), node.theirs() / "second-name");
    std::filesystem::create_symlink(node.victim(), node.sshd.folder() / "etc/own-link");
    const auto fetcher = ssh_artefact_fetcher(node.remote);
    const auto attempt = attempt_on("a1", {});
    std::map<std::string, jobs::ArtefactFetcher::Found> found;
    for (const auto* name : {"theirs/plain", "theirs/link", "theirs/folder/victim", "theirs/second-name", "etc/own-link",
                             "etc/victim", "etc/none", "none/x", "etc/victim\n9"}) {
        auto one = co_await fetcher->fetch(Context::background().with_timeout(std::chrono::seconds(30)), attempt,
                                           attempt.targets.front(), (node.sshd.folder() / name).string(), 1000);
        CO_ASSERT_OK(one);
        found[name] = *one;
    }
    co_await node.ssh.stop();
    EXPECT_EQ(found["theirs/plain"].bytes, "theirs");
    EXPECT_EQ(found["etc/own-link"].bytes, "untouched");
    EXPECT_EQ(found["etc/victim"].bytes, "untouched");
    for (const auto* name : {"theirs/link", "theirs/folder/victim"})
        EXPECT_THAT(found[name].message, HasSubstr("symbolic link that belongs to user 65534")) << name;
    EXPECT_THAT(found["theirs/second-name"].message, HasSubstr("not a plain file with one name"));
    for (const auto* name : {"etc/none", "none/x"}) EXPECT_EQ(found[name].message, "is not there") << name;
    EXPECT_THAT(found["etc/victim\n9"].message, HasSubstr("on one line"));
}

CO_TEST(FilesInAFolderOfAnotherUser, AttributesAreNotSetOnAFileWithASecondName) {
    CO_NEEDS_ROOT_AND_SSHD();
    NodeWithOtherUser node(loop);
    std::filesystem::create_hard_link(node.victim(), node.theirs() / "app.conf");
    auto ran = co_await node.run("d1", block("{file: {path: " + (node.theirs() / "app.conf").string() + ", owner: nobody}}"));
    co_await node.ssh.stop();
    CO_ASSERT_OK(ran);
    EXPECT_EQ(ran->ended, Outcome::Ended::failed);
    struct stat now{};
    CO_ASSERT(::stat(node.victim().c_str(), &now) == 0);
    EXPECT_EQ(now.st_uid, 0u);
}

CO_TEST(FilesInAFolderOfAnotherUser, AnAttemptFolderOfAnotherUserIsRefused) {
    CO_NEEDS_ROOT_AND_SSHD();
    NodeWithOtherUser node(loop);
    std::filesystem::create_directory(node.theirs() / "attempts");
    std::filesystem::create_symlink(node.theirs(), node.sshd.folder() / ".orrery");
    auto ran = co_await node.run("e1", "command: [\"true\"]");
    co_await node.ssh.stop();
    EXPECT_TRUE(!ran.ok() || ran->ended != Outcome::Ended::succeeded);
    EXPECT_TRUE(std::filesystem::is_empty(node.theirs() / "attempts"));
}

} // namespace orrery::drivers::untrusted_folders_test
