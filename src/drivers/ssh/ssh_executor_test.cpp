#include "core/text.h"
#include "drivers/ssh/ssh.h"
#include "drivers/ssh/ssh_fixture.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

namespace orrery::drivers::ssh_executor_test {

namespace {

using namespace std::chrono_literals;
using jobs::ErrorClass;
using jobs::Outcome;
using jobs::Reattached;
using net::testing::TestSshd;
using testing::attempt_on;
using testing::FakeLogins;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::StoredOutput;

boost::json::value body_of(const std::string& text) { return parse_yaml(text)->front().value; }

/// The executor of a server, and the node.
struct Bench {
    explicit Bench(asio::io_context& loop)
        : logins(sshd), ssh(loop.get_executor()), runner(ssh, logins), remote(runner), executor(ssh_executor(remote, pool, {})) {}
    asio::awaitable<void> stop() { return ssh.stop(); }
    std::filesystem::path attempts() const { return sshd.folder() / ".orrery/attempts"; }
    std::string file(const std::string& name) const {
        std::ifstream stream(sshd.folder() / name);
        return {std::istreambuf_iterator<char>(stream), {}};
    }
    std::string path(const std::string& name) const { return (sshd.folder() / name).string(); }

    TestSshd sshd;
    FakeLogins logins;
    Pool pool{1};
    net::Ssh ssh;
    SshRunner runner;
    RemoteAttempts remote;
    std::unique_ptr<jobs::Executor> executor;
};

asio::awaitable<void> a_while(Duration time) {
    asio::steady_timer timer(co_await asio::this_coro::executor, time);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

Context ctx() { return Context::background().with_timeout(30s); }

#define CO_NEEDS_SSHD()                                                                                                            \
    if (!TestSshd::is_installed()) {                                                                                               \
        []() { GTEST_SKIP() << "sshd is not installed (Debian package openssh-server)"; }();                                       \
        co_return;                                                                                                                 \
    }

} // namespace

CO_TEST(SshExecutor, ACommandStreamsItsOutputAndReportsItsResult) {
    CO_NEEDS_SSHD();
    Bench bench(loop);
    StoredOutput output, other, third;
    auto ran = co_await bench.executor->start(
        ctx(), attempt_on("a1", body_of("command: [sh, -c, \"echo out $ORRERY_JOB; echo bad >&2; exit 3\"]")), output);
    auto good =
        co_await bench.executor->start(ctx(), attempt_on("a2", body_of("{command: [sh, -c, \"exit 3\"], success: [3]}")), other);
    auto none = co_await bench.executor->start(ctx(), attempt_on("a3", body_of("command: [no-such-program]")), third);
    co_await bench.stop();
    CO_ASSERT_OK(ran);
    EXPECT_EQ(ran->ended, Outcome::Ended::failed);
    EXPECT_EQ(ran->error, ErrorClass::failed);
    EXPECT_EQ(ran->exit_code, 3);
    EXPECT_EQ(ran->message, "exit code 3: bad");
    EXPECT_EQ(output.out, "out j\n");
    EXPECT_EQ(output.err, "bad\n");
    CO_ASSERT_OK(good);
    EXPECT_EQ(good->ended, Outcome::Ended::succeeded);
    CO_ASSERT_OK(none);
    EXPECT_EQ(none->exit_code, 127);
}

CO_TEST(SshExecutor, AScriptHasArgumentsInputAndAConfigurableShell) {
    CO_NEEDS_SSHD();
    Bench bench(loop);
    StoredOutput first, second;
    auto body = body_of("{arguments: [\"a b\", \"'\"], input: \"in\\nput\"}");
    body.get_object()["script"] = "printf '%s|' \"$@\"\ncat\nexit 0\n";
    auto plain = co_await bench.executor->start(ctx(), attempt_on("s1", body), first);
    body.get_object()["script"] = "import sys\nprint(sys.argv[1:], sys.stdin.read())\n";
    body.get_object()["shell"] = "python3";
    auto python = co_await bench.executor->start(ctx(), attempt_on("s2", body), second);
    co_await bench.stop();
    CO_ASSERT_OK(plain);
    CO_ASSERT_OK(python);
    EXPECT_EQ(first.out, "a b|'|in\nput");
    EXPECT_EQ(second.out, "['a b', \"'\"] in\nput\n");
}

CO_TEST(SshExecutor, EnvironmentVariablesMayHaveTheNamesOfVariablesOfTheRunner) {
    CO_NEEDS_SSHD();
    Bench bench(loop);
    const std::vector<std::string> names = {"attempt_dir", "body", "error", "field", "folder", "i",     "input",   "kind",
                                            "me",          "name", "owner", "path",  "shell",  "token", "variable"};
    std::string expected;
    for (const auto& name : names) expected += name + "=value of " + name + "\n";
    const auto with_names = [&](std::string id, json::value body) {
        auto attempt = attempt_on(std::move(id), std::move(body));
        for (const auto& name : names) attempt.environment[name] = "value of " + name;
        return attempt;
    };
    const auto program =
        "python3 -c 'import os; [print(n + \"=\" + v) for n, v in sorted(os.environ.items()) if v.startswith(\"value of\")]'";
    StoredOutput script, command, blocks;
    const json::array argv{"sh", "-c", program};
    auto first = co_await bench.executor->start(ctx(), with_names("e1", json::object{{"script", program}}), script);
    auto second = co_await bench.executor->start(ctx(), with_names("e2", json::object{{"command", argv}}), command);
    auto third = co_await bench.executor->start(
        ctx(), with_names("e3", json::object{{"blocks", json::array{json::object{{"command", json::object{{"argv", argv}}}}}}}),
        blocks);
    co_await bench.stop();
    CO_ASSERT_OK(first);
    CO_ASSERT_OK(second);
    CO_ASSERT_OK(third);
    EXPECT_EQ(script.out, expected);
    EXPECT_EQ(command.out, expected);
    EXPECT_THAT(blocks.out, HasSubstr("| shell=value of shell\n"));
    EXPECT_THAT(blocks.out, HasSubstr("| path=value of path\n"));
}

CO_TEST(SshExecutor, SecretsAreInNoArgumentAndNoFileOfTheAttempt) {
    CO_NEEDS_SSHD();
    Bench bench(loop);
    StoredOutput output;
    auto attempt = attempt_on("secret", body_of("{input: \"canary-4711\"}"));
    attempt.secrets = {{"db.password", "canary-4711"}};
    attempt.environment["PASSWORD"] = "canary-4711";
    // Reads the arguments of all processes and the files of its own attempt.
    attempt.body.get_object()["script"] =
        "word=canary; word=$word-4711 # canary-4711\n"
        "[ \"$PASSWORD\" = $word ] && [ \"$(cat)\" = $word ] && echo given\n"
        "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null; echo; done | sed -n \"/[c]anary-4711/{s/.*/seen in "
        "arguments/;p;}\"\n"
        "find ~/.orrery -type f | while read f; do sed -n \"/[c]anary-4711/{s/.*/seen in file/;p;}\" <$f; done\n"
        "echo looked\n";
    auto ran = co_await bench.executor->start(ctx(), attempt, output);
    attempt.id = "shown";
    attempt.body = body_of("{command: [echo, \"canary-4711\"]}");
    auto shown = co_await bench.executor->start(ctx(), attempt, output);
    attempt.body = body_of("{blocks: [{command: {argv: [echo, \"xcanary-4711\"]}}]}");
    auto shown_by_block = co_await bench.executor->start(ctx(), attempt, output);
    co_await bench.stop();
    CO_ASSERT_OK(ran);
    EXPECT_EQ(output.out, "given\nlooked\n") << output.err;
    EXPECT_EQ(shown.error().code, Code::invalid);
    EXPECT_THAT(shown_by_block.error().message, HasSubstr("blocks[0] holds a secret"));
}

CO_TEST(SshExecutor, AnotherServerContinuesToReadTheOutputAfterACrash) {
    CO_NEEDS_SSHD();
    Bench bench(loop);
    StoredOutput output;
    const auto attempt = attempt_on(
        "follow", body_of("command: [sh, -c, \"echo run >>$HOME/count; echo one; sleep 0.8; echo two; echo late >&2\"]"));
    asio::cancellation_signal cancel;
    bool ended = false;
    asio::co_spawn(loop, bench.executor->start(ctx(), attempt, output),
                   asio::bind_cancellation_slot(cancel.slot(), [&ended](std::exception_ptr, Result<Outcome>) { ended = true; }));
    while (output.out.empty()) co_await a_while(5ms);
    cancel.emit(asio::cancellation_type::terminal);
    while (!ended) co_await a_while(2ms);
    RemoteAttempts next_remote(bench.runner);
    auto next = ssh_executor(next_remote, bench.pool, {});
    auto found = co_await next->reattach(ctx(), attempt, output.offsets(), output);
    auto again = co_await next->reattach(ctx(), attempt, output.offsets(), output);
    auto cleaned = co_await next->clean_up(ctx(), attempt);
    co_await bench.stop();
    CO_ASSERT_OK(found);
    EXPECT_EQ(found->state, Reattached::State::ended);
    EXPECT_EQ(found->outcome.ended, Outcome::Ended::succeeded);
    EXPECT_EQ(output.out, "one\ntwo\n");
    EXPECT_EQ(output.err, "late\n");
    EXPECT_FALSE(output.gaps);
    CO_ASSERT_OK(again);
    EXPECT_EQ(again->state, Reattached::State::ended);
    EXPECT_EQ(bench.file("count"), "run\n");
    CO_ASSERT_OK(cleaned);
    EXPECT_FALSE(std::filesystem::exists(bench.attempts() / "follow"));
}

CO_TEST(SshExecutor, AStepIsReportedIfItsLineArrivesInTwoParts) {
    CO_NEEDS_SSHD();
    for (const auto* first : {"= 1 chan", "= 1 changed file /x: new\\\\n"}) { // in the middle of a line, and at its end
        Bench bench(loop);
        StoredOutput output;
        const bool whole = std::string_view(first).ends_with("\\\\n");
        const auto attempt =
            attempt_on("half", body_of(fmt::format("command: [sh, -c, \"printf '{}'; sleep 0.8; printf '{}= 2 ok file /y\\\\n'\"]",
                                                   first, whole ? "" : "ged file /x: new\\\\n")));
        asio::cancellation_signal cancel;
        bool ended = false;
        asio::co_spawn(
            loop, bench.executor->start(ctx(), attempt, output),
            asio::bind_cancellation_slot(cancel.slot(), [&ended](std::exception_ptr, Result<Outcome>) { ended = true; }));
        while (output.out.empty()) co_await a_while(5ms);
        cancel.emit(asio::cancellation_type::terminal);
        while (!ended) co_await a_while(2ms);
        const auto before = output.steps.size();
        RemoteAttempts next_remote(bench.runner);
        auto next = ssh_executor(next_remote, bench.pool, {});
        auto found = co_await next->reattach(ctx(), attempt, output.offsets(), output);
        co_await bench.stop();
        CO_ASSERT_OK(found);
        EXPECT_EQ(before, whole ? 1u : 0u);
        CO_ASSERT(output.steps.size() == 2u);
        EXPECT_EQ(output.steps[0].name, "file /x");
        EXPECT_EQ(output.steps[1].name, "file /y");
    }
}

CO_TEST(SshExecutor, ReattachesAfterABrokenConnection) {
    CO_NEEDS_SSHD();
    Bench bench(loop);
    StoredOutput output;
    std::optional<Result<Outcome>> ended;
    const auto attempt = attempt_on("cut", body_of("command: [sh, -c, \"echo run >>$HOME/count; echo one; sleep 0.5; echo two\"]"));
    asio::co_spawn(loop, bench.executor->start(ctx(), attempt, output),
                   [&ended](std::exception_ptr, Result<Outcome> outcome) { ended = std::move(outcome); });
    while (output.out.empty()) co_await a_while(5ms);
    bench.sshd.cut_off();
    while (!ended) co_await a_while(5ms);
    co_await bench.stop();
    CO_ASSERT_OK(*ended);
    EXPECT_EQ((*ended)->ended, Outcome::Ended::succeeded);
    EXPECT_EQ(output.out, "one\ntwo\n");
    EXPECT_EQ(bench.file("count"), "run\n");
}

namespace {
/// A host that is unreachable from the first command on, or from the second.
class VanishingHost final : public HostRunner {
public:
    explicit VanishingHost(bool reachable) : reachable_(reachable) {}
    Task<net::SshResult> run(Context, resource::Node, HostCommand command) override {
        if (reachable_) *command.begun = true;
        reachable_ = false;
        co_return Error{Code::unavailable, "no route to host"};
    }

private:
    bool reachable_;
};
} // namespace

CO_TEST(SshExecutor, AHostThatVanishesAfterTheStartIsLostAndNotOnlyUnreachable) {
    Pool pool(1);
    auto attempt = attempt_on("vanished", body_of("command: [reboot]"));
    attempt.timeout = 1ms;
    StoredOutput output;
    VanishingHost vanishing(true), unreachable(false);
    RemoteAttempts vanishing_remote(vanishing), unreachable_remote(unreachable);
    auto lost = co_await ssh_executor(vanishing_remote, pool, {})->start(ctx(), attempt, output);
    auto away = co_await ssh_executor(unreachable_remote, pool, {})->start(ctx(), attempt, output);
    CO_ASSERT_OK(lost);
    EXPECT_EQ(lost->ended, Outcome::Ended::lost); // or a retry would run it a second time
    EXPECT_THAT(lost->message, HasSubstr("cannot be asked for the outcome"));
    CO_ASSERT_OK(away);
    EXPECT_EQ(away->error, ErrorClass::connect);
}

CO_TEST(SshExecutor, AnAttemptThatNeverStartedIsFencedAndStartedAgainByTheCaller) {
    CO_NEEDS_SSHD();
    Bench bench(loop);
    StoredOutput output, late_output;
    const auto attempt = attempt_on("never", body_of("command: [sh, -c, \"echo run >>$HOME/count\"]"));
    auto found = co_await bench.executor->reattach(ctx(), attempt, {}, output);
    RemoteAttempts old_remote(bench.runner); // a server that was away, and whose start arrives only now
    auto old = ssh_executor(old_remote, bench.pool, {});
    auto late = co_await old->start(ctx(), attempt, late_output);
    const auto after_late = bench.file("count");
    auto begun = co_await bench.executor->start(ctx(), attempt, output);
    RemoteAttempts third_remote(bench.runner);
    auto third = ssh_executor(third_remote, bench.pool, {});
    auto seen = co_await third->reattach(ctx(), attempt, {}, output);
    co_await bench.stop();
    CO_ASSERT_OK(found);
    EXPECT_EQ(found->state, Reattached::State::not_started);
    CO_ASSERT_OK(late);
    EXPECT_EQ(late->error, ErrorClass::connect);
    EXPECT_EQ(after_late, "");
    CO_ASSERT_OK(begun);
    EXPECT_EQ(begun->ended, Outcome::Ended::succeeded);
    CO_ASSERT_OK(seen);
    EXPECT_EQ(seen->state, Reattached::State::ended);
    EXPECT_EQ(bench.file("count"), "run\n");
}

CO_TEST(SshExecutor, CancelEndsTheWholeProcessGroup) {
    CO_NEEDS_SSHD();
    Bench bench(loop);
    StoredOutput output;
    const auto attempt = attempt_on("cancel", body_of("command: [sh, -c, \"sleep 300 & echo $!; exec sleep 300\"]"));
    std::optional<Result<Outcome>> ended;
    asio::co_spawn(loop, bench.executor->start(ctx(), attempt, output),
                   [&ended](std::exception_ptr, Result<Outcome> outcome) { ended = std::move(outcome); });
    while (output.out.find('\n') == std::string::npos) co_await a_while(5ms);
    auto cancelled = co_await bench.executor->cancel(ctx(), attempt);
    while (!ended) co_await a_while(5ms);
    auto twice = co_await bench.executor->cancel(ctx(), attempt);
    auto unknown = co_await bench.executor->cancel(ctx(), attempt_on("unknown", body_of("command: [\"true\"]")));
    co_await bench.stop();
    CO_ASSERT_OK(cancelled);
    CO_ASSERT_OK(twice);
    CO_ASSERT_OK(unknown);
    CO_ASSERT_OK(*ended);
    EXPECT_EQ((*ended)->error, ErrorClass::cancelled);
    std::ifstream stat("/proc/" + std::to_string(std::stoi(output.out)) + "/stat");
    std::string line;
    std::getline(stat, line);
    EXPECT_TRUE(line.empty() || line.find(") Z") != std::string::npos) << line;
}

CO_TEST(SshExecutor, AnAttemptThatWasKilledOrRebootedIsLost) {
    CO_NEEDS_SSHD();
    Bench bench(loop);
    StoredOutput output, silent_output, rebooted_output;
    auto killed = co_await bench.executor->start(
        ctx(), attempt_on("killed", body_of("command: [sh, -c, \"echo x; sleep 0.1; kill -9 0\"]")), output);
    auto silent =
        co_await bench.executor->start(ctx(), attempt_on("silent", body_of("command: [sh, -c, \"kill -9 0\"]")), silent_output);
    // A reboot: another boot id than the one that was noted.
    const auto attempt = attempt_on("rebooted", body_of("command: [sleep, \"300\"]"));
    asio::cancellation_signal cancel;
    bool ended = false;
    asio::co_spawn(loop, bench.executor->start(ctx(), attempt, rebooted_output),
                   asio::bind_cancellation_slot(cancel.slot(), [&ended](std::exception_ptr, Result<Outcome>) { ended = true; }));
    const auto pid = bench.attempts() / "rebooted/pid";
    while (!std::filesystem::exists(bench.attempts() / "rebooted/claim")) co_await a_while(5ms);
    cancel.emit(asio::cancellation_type::terminal);
    while (!ended) co_await a_while(2ms);
    int leader = 0;
    std::ifstream(pid) >> leader;
    std::ofstream(pid) << leader << " 1 00000000-0000-0000-0000-000000000000 ok\n";
    auto found = co_await bench.executor->reattach(ctx(), attempt, {}, rebooted_output);
    ::kill(-leader, SIGKILL);
    co_await bench.stop();
    CO_ASSERT_OK(killed);
    EXPECT_EQ(killed->ended, Outcome::Ended::lost);
    EXPECT_EQ(output.out, "x\n");
    CO_ASSERT_OK(silent);
    EXPECT_EQ(silent->ended, Outcome::Ended::lost);
    CO_ASSERT_OK(found);
    EXPECT_EQ(found->state, Reattached::State::unknown);
    EXPECT_THAT(found->message, HasSubstr("rebooted"));
}

CO_TEST(SshExecutor, AFileIsPushedAtomicallyAndOnlyOnce) {
    CO_NEEDS_SSHD();
    Bench bench(loop);
    StoredOutput output;
    std::string content(2'000'000, 'x');
    for (std::size_t i = 0; i < content.size(); i += 97) content[i] = "\n 'é\"$"[i % 7];
    auto attempt =
        attempt_on("p1", boost::json::object{{"push", {{"to", bench.path("it's")}, {"content", content}, {"mode", "0640"}}}});
    auto preview = co_await bench.executor->plan(ctx(), attempt);
    auto first = co_await bench.executor->start(ctx(), attempt, output);
    attempt.id = "p2";
    auto second = co_await bench.executor->start(ctx(), attempt, output);
    auto after = co_await bench.executor->plan(ctx(), attempt);
    attempt.body = boost::json::object{{"push", {{"to", bench.path("no/such/folder")}, {"content", "x"}}}};
    attempt.id = "p3";
    auto nowhere = co_await bench.executor->start(ctx(), attempt, output);
    co_await bench.stop();
    CO_ASSERT_OK(preview);
    EXPECT_EQ(preview->change, Outcome::Change::changed);
    CO_ASSERT_OK(first);
    EXPECT_EQ(first->ended, Outcome::Ended::succeeded) << first->message << output.err;
    EXPECT_EQ(first->change, Outcome::Change::changed);
    EXPECT_TRUE(bench.file("it's") == content);
    EXPECT_EQ(std::filesystem::status(bench.path("it's")).permissions(), std::filesystem::perms(0640));
    CO_ASSERT_OK(second);
    EXPECT_EQ(second->change, Outcome::Change::unchanged);
    CO_ASSERT_OK(after);
    EXPECT_EQ(after->change, Outcome::Change::unchanged);
    CO_ASSERT_OK(nowhere);
    EXPECT_EQ(nowhere->ended, Outcome::Ended::failed);
    for (const auto& entry : std::filesystem::directory_iterator(bench.sshd.folder()))
        EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(".orrery-")));
}

CO_TEST(SshExecutor, ALineIsComparedAsText) {
    CO_NEEDS_SSHD();
    Bench bench(loop);
    StoredOutput output;
    std::ofstream(bench.path("list")) << "1.0\n1e3\n";
    std::ofstream(bench.path("last")) << "a\n01\n";
    auto ended = co_await bench.executor->start(
        ctx(),
        attempt_on("t1", body_of("blocks: [{line: {path: " + bench.path("list") + ", line: \"1\"}}, {line: {path: " +
                                 bench.path("list") + ", line: \"1000\", state: absent}}, {line: {path: " + bench.path("last") +
                                 ", line: \"1\", match: \"^0\"}}]")),
        output);
    co_await bench.stop();
    CO_ASSERT_OK(ended);
    EXPECT_EQ(ended->ended, Outcome::Ended::succeeded) << ended->message << output.err;
    EXPECT_EQ(bench.file("list"), "1.0\n1e3\n1\n");
    EXPECT_EQ(bench.file("last"), "a\n1\n");
}

CO_TEST(SshExecutor, BlocksChangeAFileOnceAndReportIt) {
    CO_NEEDS_SSHD();
    Bench bench(loop);
    StoredOutput first_output, second_output, failed_output;
    const auto blocks = [&](const std::string& content) {
        return boost::json::object{
            {"blocks",
             {{{"file", {{"path", bench.path("d")}, {"state", "directory"}, {"mode", "0750"}}}},
              {{"template", {{"path", bench.path("d/conf")}, {"content", content}, {"mode", "0600"}}}},
              {{"line", {{"path", bench.path("d/list")}, {"line", "a=2 \\ $x 'é"}, {"match", "^a="}, {"create", true}}}},
              {{"command",
                {{"argv", {"sh", "-c", "echo \"= 9 changed x\"; touch \"$1\"", "x", bench.path("d/made")}},
                 {"creates", bench.path("d/made")}}}},
              {{"package", {{"name", "coreutils"}}}}}}};
    };
    auto attempt = attempt_on("b1", blocks("members {{ join(members, \",\") }}\npass canary-4711\n"));
    attempt.values = {{"members", {"10.0.0.1", "10.0.0.2"}}};
    attempt.secrets = {{"s.p", "canary-4711"}};
    auto before = co_await bench.executor->plan(ctx(), attempt);
    auto first = co_await bench.executor->start(ctx(), attempt, first_output);
    attempt.id = "b2";
    auto second = co_await bench.executor->start(ctx(), attempt, second_output);
    attempt.body = blocks("other canary-4711\n");
    auto difference = co_await bench.executor->plan(ctx(), attempt);
    attempt.id = "b3";
    attempt.body =
        body_of("blocks: [{command: {argv: [sh, -c, \"echo oh; exit 4\"]}}, {file: {path: " + bench.path("never") + "}}]");
    auto failed = co_await bench.executor->start(ctx(), attempt, failed_output);
    auto none = co_await bench.executor->plan(ctx(), attempt_on("b4", body_of("command: [\"true\"]")));
    co_await bench.stop();
    CO_ASSERT_OK(before);
    EXPECT_EQ(before->change, Outcome::Change::changed);
    CO_ASSERT_OK(first);
    EXPECT_EQ(first->ended, Outcome::Ended::succeeded) << first->message << first_output.out << first_output.err;
    EXPECT_EQ(first->change, Outcome::Change::changed);
    EXPECT_EQ(bench.file("d/conf"), "members 10.0.0.1,10.0.0.2\npass canary-4711\n");
    EXPECT_EQ(bench.file("d/list"), "a=2 \\ $x 'é\n");
    CO_ASSERT(first_output.steps.size() == 5);
    EXPECT_EQ(first_output.steps[1].result, jobs::Step::Result::changed);
    EXPECT_EQ(first_output.steps[4].result, jobs::Step::Result::ok);
    EXPECT_THAT(first_output.out + first_output.err, Not(HasSubstr("canary")));
    CO_ASSERT_OK(second);
    EXPECT_EQ(second->change, Outcome::Change::unchanged) << second_output.out;
    CO_ASSERT_OK(difference);
    CO_ASSERT(difference->differences.size() == 1);
    // The existing content may contain an earlier value of the secret, which cannot be masked.
    EXPECT_EQ(difference->differences[0].before, "(holds a secret: not shown)");
    EXPECT_EQ(difference->differences[0].after, "(holds a secret: not shown)");
    CO_ASSERT_OK(failed);
    EXPECT_EQ(failed->ended, Outcome::Ended::failed);
    EXPECT_THAT(failed->message, HasSubstr("exit code 4"));
    EXPECT_THAT(failed_output.out, HasSubstr("| oh\n"));
    EXPECT_FALSE(std::filesystem::exists(bench.path("never")));
    EXPECT_EQ(none.error().code, Code::unsupported);
}

CO_TEST(SshExecutor, AnUnreachableHostIsReported) {
    CO_NEEDS_SSHD();
    Bench bench(loop);
    StoredOutput output;
    bench.logins.target.port = 1;
    auto attempt = attempt_on("gone", body_of("command: [\"true\"]"));
    attempt.timeout = 1s;
    auto started = co_await bench.executor->start(ctx(), attempt, output);
    auto found = co_await bench.executor->reattach(ctx(), attempt, {}, output);
    auto cancelled = co_await bench.executor->cancel(ctx(), attempt);
    bench.logins.target.port = bench.sshd.port();
    bench.logins.target.host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
    auto changed = co_await bench.executor->start(ctx(), attempt, output);
    co_await bench.stop();
    CO_ASSERT_OK(started);
    EXPECT_EQ(started->error, ErrorClass::connect);
    CO_ASSERT_OK(found);
    EXPECT_EQ(found->state, Reattached::State::unknown);
    EXPECT_FALSE(cancelled.ok());
    CO_ASSERT_OK(changed);
    EXPECT_EQ(changed->error, ErrorClass::refused);
    EXPECT_THAT(changed->message, HasSubstr("host key"));
}

} // namespace orrery::drivers::ssh_executor_test
