#include "core/test_fixture.h"
#include "net/process.h"
#include "net/ssh.h"
#include "net/ssh_fixture.h"
#include "net/ssh_quote.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <gmock/gmock.h>

#include <optional>

namespace orrery::net {

namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TestSshd;

/// A coroutine cannot use GTEST_SKIP.
#define CO_NEEDS_SSHD()                                                                                                            \
    if (!TestSshd::is_installed()) {                                                                                               \
        []() { GTEST_SKIP() << "sshd is not installed (Debian package openssh-server)"; }();                                       \
        co_return;                                                                                                                 \
    }

SshTarget target_of(const TestSshd& sshd) {
    SshTarget target;
    target.host = "127.0.0.1";
    target.port = sshd.port();
    target.user = TestSshd::user();
    target.private_key = sshd.private_key();
    target.host_key = sshd.host_key();
    return target;
}

SshCommand in_shell(std::string script, std::string input = {}) {
    SshCommand command;
    command.argv = {"sh", "-c", std::move(script)};
    if (!input.empty()) command.input = std::make_shared<const std::string>(std::move(input));
    return command;
}

asio::awaitable<void> ssh_pause(Duration time) {
    asio::steady_timer timer(co_await asio::this_coro::executor, time);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

Context soon() { return Context::background().with_timeout(20s); }

} // namespace

TEST(ShellQuote, AShellReturnsQuotedTextUnchanged) {
    EXPECT_EQ(shell_command({"ls", "-l", "/tmp"}), "ls -l /tmp");
    EXPECT_EQ(shell_quote(""), "''");
    EXPECT_EQ(shell_quote("it's"), "'it'\\''s'");
    EXPECT_EQ(shell_quote("~"), "'~'");
    EXPECT_EQ(shell_quote("a=b"), "'a=b'");
}

CO_TEST(ShellQuote, NoByteIsSpecialToAShell) {
    std::vector<std::string> words{"printf", "%s\\n"};
    std::string expected;
    for (int byte = 1; byte < 256; ++byte) {
        words.push_back(std::string("x") + static_cast<char>(byte) + "$(id)`id`;" + static_cast<char>(byte));
        expected += words.back() + "\n";
    }
    for (const auto* word : {"", "'", "''", "\\", "\\'", "-n", "*", "$HOME", "a\nb", "${x}", "!!", "#", "&&", "'\\''"}) {
        words.emplace_back(word);
        expected += words.back() + "\n";
    }
    auto ran = co_await run_process(Context::background(), {.argv = {"sh", "-c", shell_command(words)}});
    CO_ASSERT_OK(ran);
    EXPECT_EQ(ran->output, expected);
}

TEST(SshKeys, InvalidKeysAreRefusedWithAMessage) {
    EXPECT_THAT(check_ssh_private_key("hello").error().message, HasSubstr("no private key"));
    EXPECT_THAT(
        check_ssh_private_key("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n").error().message,
        HasSubstr("cannot be read"));
    for (const auto* text :
         {"", "ssh-ed25519", "ssh-ed25519 ", "ssh-ed25519 !!!", "nonsense AAAA", "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAA"})
        EXPECT_EQ(ssh_fingerprint(text).error().code, Code::invalid) << text;
    const auto known = ssh_fingerprint("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl github");
    EXPECT_EQ(known.ok() ? *known : "", "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU");
}

CO_TEST(Ssh, ReturnsOutputErrorsAndExitStatus) {
    CO_NEEDS_SSHD();
    TestSshd sshd;
    Ssh ssh(loop.get_executor());
    auto ran = co_await ssh.run(soon(), target_of(sshd), in_shell("echo out; echo err >&2; exit 3"));
    auto killed = co_await ssh.run(soon(), target_of(sshd), in_shell("kill -9 $$"));
    auto words = co_await ssh.run(soon(), target_of(sshd), {.argv = {"printf", "%s|", "$HOME", "a b", "'", ";true", "", "x\ny"}});
    co_await ssh.stop();
    CO_ASSERT_OK(ran);
    CO_ASSERT_OK(killed);
    CO_ASSERT_OK(words);
    EXPECT_EQ(ran->exit_code, 3);
    EXPECT_EQ(ran->output, "out\n");
    EXPECT_EQ(ran->errors, "err\n");
    EXPECT_EQ(killed->exit_code, -1);
    EXPECT_EQ(killed->signal, "KILL");
    EXPECT_EQ(words->output, "$HOME|a b|'|;true||x\ny|");
    EXPECT_EQ(sshd.connections(), 1);
}

CO_TEST(Ssh, LargeInputAndOutputDoNotDeadlock) {
    CO_NEEDS_SSHD();
    TestSshd sshd;
    Ssh ssh(loop.get_executor());
    std::string input(4 << 20, 'x');
    for (std::size_t at = 0; at < input.size(); at += 79) input[at] = static_cast<char>(at);
    auto command = in_shell("cat; echo done >&2", input);
    command.max_output = 16 << 20;
    auto ran = co_await ssh.run(soon(), target_of(sshd), command);
    command.max_output = 1000;
    auto little = co_await ssh.run(soon(), target_of(sshd), command);
    auto deaf = co_await ssh.run(soon(), target_of(sshd), in_shell("exec <&-; sleep 0.1; echo heard nothing", input));
    co_await ssh.stop();
    CO_ASSERT_OK(ran);
    EXPECT_TRUE(ran->output == input);
    EXPECT_EQ(ran->errors, "done\n");
    CO_ASSERT_OK(little);
    EXPECT_EQ(little->output.size(), 1000u);
    EXPECT_TRUE(little->truncated);
    CO_ASSERT_OK(deaf);
    EXPECT_EQ(deaf->output, "heard nothing\n");
}

CO_TEST(Ssh, OutputIsPassedOnInOrderWithBackpressure) {
    CO_NEEDS_SSHD();
    TestSshd sshd;
    Ssh ssh(loop.get_executor());
    std::string seen;
    int under_way = 0, most = 0;
    auto command = in_shell("head -c 3000000 /dev/zero | tr '\\0' a; echo; echo end");
    command.on_output = [&](int, std::string piece) -> Task<Unit> {
        return [](std::string text, std::string& all, int& now, int& greatest) -> Task<Unit> {
            greatest = std::max(greatest, ++now);
            co_await ssh_pause(1ms);
            all += text;
            --now;
            co_return Unit{};
        }(std::move(piece), seen, under_way, most);
    };
    auto ran = co_await ssh.run(soon(), target_of(sshd), command);
    command.on_output = [](int, std::string) -> Task<Unit> { co_return Error{Code::no_space, "nowhere to put it"}; };
    auto refused = co_await ssh.run(soon(), target_of(sshd), command);
    co_await ssh.stop();
    CO_ASSERT_OK(ran);
    EXPECT_EQ(seen, std::string(3000000, 'a') + "\nend\n");
    EXPECT_EQ(most, 1);
    EXPECT_EQ(refused.error().code, Code::no_space);
}

CO_TEST(Ssh, ConcurrentCommandsShareOneConnectionWithinALimit) {
    CO_NEEDS_SSHD();
    TestSshd sshd("MaxSessions 10");
    Ssh ssh(loop.get_executor());
    TaskGroup group(loop.get_executor());
    int good = 0;
    const auto one = [](Ssh& through, const TestSshd& at, int number, int& counted) -> asio::awaitable<void> {
        auto ran = co_await through.run(soon(), target_of(at), in_shell("echo " + std::to_string(number)));
        if (ran.ok() && ran->output == std::to_string(number) + "\n")
            ++counted;
        else
            ADD_FAILURE() << (ran.ok() ? ran->output : ran.error().text());
    };
    for (int i = 0; i < 40; ++i) group.spawn(one(ssh, sshd, i, good));
    co_await group.join();
    co_await ssh.stop();
    EXPECT_EQ(good, 40);
    EXPECT_EQ(sshd.connections(), 1);
}

CO_TEST(Ssh, CommandsWaitForAFreeSessionOfTheHost) {
    CO_NEEDS_SSHD();
    TestSshd sshd("MaxSessions 2");
    Ssh ssh(loop.get_executor());
    TaskGroup group(loop.get_executor());
    int good = 0;
    const auto one = [](Ssh& through, const TestSshd& at, int& counted) -> asio::awaitable<void> {
        auto ran = co_await through.run(soon(), target_of(at), in_shell("sleep 0.05; echo x"));
        if (ran.ok() && ran->output == "x\n")
            ++counted;
        else
            ADD_FAILURE() << (ran.ok() ? ran->output : ran.error().text());
    };
    for (int i = 0; i < 12; ++i) group.spawn(one(ssh, sshd, good));
    co_await group.join();
    co_await ssh.stop();
    EXPECT_EQ(good, 12);
    EXPECT_EQ(sshd.connections(), 1);
}

CO_TEST(Ssh, AHostThatAllowsNoSessionIsNamed) {
    CO_NEEDS_SSHD();
    TestSshd sshd("MaxSessions 0");
    Ssh ssh(loop.get_executor());
    auto ran = co_await ssh.run(soon(), target_of(sshd), in_shell("true"));
    co_await ssh.stop();
    CO_ASSERT(!ran.ok());
    EXPECT_THAT(ran.error().remedy, HasSubstr("MaxSessions"));
}

CO_TEST(Ssh, AChangedHostKeyIsRefusedWithBothFingerprints) {
    CO_NEEDS_SSHD();
    TestSshd sshd;
    const auto target = target_of(sshd);
    const auto before = *ssh_fingerprint(target.host_key);
    sshd.change_host_key();
    const auto after = *ssh_fingerprint(sshd.host_key());
    Ssh ssh(loop.get_executor());
    auto ran = co_await ssh.run(soon(), target, in_shell("true"));
    sshd.change_host_key("ecdsa");
    const auto other_type = *ssh_fingerprint(sshd.host_key());
    auto again = co_await ssh.run(soon(), target, in_shell("true"));
    auto right = co_await ssh.run(soon(), target_of(sshd), in_shell("true"));
    co_await ssh.stop();
    CO_ASSERT(!ran.ok());
    EXPECT_EQ(ran.error().code, Code::denied);
    EXPECT_THAT(ran.error().message, AllOf(HasSubstr(before), HasSubstr(after)));
    CO_ASSERT(!again.ok());
    EXPECT_EQ(again.error().code, Code::denied);
    EXPECT_THAT(again.error().message, AllOf(HasSubstr(before), HasSubstr(other_type)));
    CO_ASSERT_OK(right);
}

CO_TEST(Ssh, AnUnknownHostIsRefusedUnlessItsKeyIsTrusted) {
    CO_NEEDS_SSHD();
    TestSshd sshd;
    Ssh ssh(loop.get_executor());
    auto target = target_of(sshd);
    const auto key = target.host_key.substr(0, target.host_key.find(' ', 20));
    target.host_key.clear();
    auto unknown = co_await ssh.run(soon(), target, in_shell("true"));
    int asked = 0;
    std::string shown;
    target.on_first_key = [&](Context, std::string its) -> Task<Unit> {
        ++asked;
        shown = std::move(its);
        return []() -> Task<Unit> { co_return Unit{}; }();
    };
    auto trusted = co_await ssh.run(soon(), target, in_shell("true"));
    sshd.cut_off();
    auto reconnected = co_await ssh.run(soon(), target, in_shell("true"));
    if (!reconnected.ok()) reconnected = co_await ssh.run(soon(), target, in_shell("true"));
    sshd.cut_off();
    sshd.change_host_key();
    co_await ssh_pause(50ms);
    auto changed = co_await ssh.run(soon(), target, in_shell("true"));
    auto shown_key = co_await ssh.shown_host_key(soon(), target);
    target.host = "localhost"; // another identity: asked again, and refused
    target.on_first_key = [](Context, std::string) -> Task<Unit> { co_return Error{Code::denied, "not that one"}; };
    auto refused = co_await ssh.run(soon(), target, in_shell("true"));
    co_await ssh.stop();
    CO_ASSERT(!unknown.ok());
    EXPECT_EQ(unknown.error().code, Code::denied);
    EXPECT_THAT(unknown.error().remedy, HasSubstr(key));
    CO_ASSERT_OK(trusted);
    CO_ASSERT_OK(reconnected);
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(shown, key);
    CO_ASSERT(!changed.ok());
    EXPECT_EQ(changed.error().code, Code::denied);
    CO_ASSERT_OK(shown_key);
    EXPECT_EQ(*ssh_fingerprint(*shown_key), *ssh_fingerprint(sshd.host_key()));
    CO_ASSERT(!refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("not that one"));
}

CO_TEST(Ssh, ARefusedKeyIsNamed) {
    CO_NEEDS_SSHD();
    TestSshd sshd, other;
    Ssh ssh(loop.get_executor());
    auto target = target_of(sshd);
    target.private_key = other.private_key();
    auto refused = co_await ssh.run(soon(), target, in_shell("true"));
    target.private_key = "";
    auto none = co_await ssh.run(soon(), target, in_shell("true"));
    co_await ssh.stop();
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::denied);
    EXPECT_THAT(refused.error().remedy, HasSubstr("authorized_keys"));
    EXPECT_EQ(none.error().code, Code::invalid);
}

CO_TEST(Ssh, RetriesAfterAnEarlyDisconnect) {
    CO_NEEDS_SSHD();
    TestSshd sshd;
    sshd.refuse_next = 2;
    Ssh ssh(loop.get_executor(), {.login_tries = 4});
    auto third = co_await ssh.run(soon(), target_of(sshd), in_shell("true"));
    auto target = target_of(sshd);
    target.host = "localhost";
    sshd.refuse_next = 1000;
    auto never = co_await ssh.run(soon(), target, in_shell("true"));
    co_await ssh.stop();
    CO_ASSERT_OK(third);
    CO_ASSERT(!never.ok());
    EXPECT_EQ(never.error().code, Code::unavailable);
    EXPECT_THAT(never.error().remedy, HasSubstr("MaxStartups"));
}

CO_TEST(Ssh, ASilentHostIsATimeout) {
    CO_NEEDS_SSHD();
    TestSshd sshd;
    sshd.silent = true;
    Ssh ssh(loop.get_executor(), {.login_timeout = 150ms});
    auto silent = co_await ssh.run(soon(), target_of(sshd), in_shell("true"));
    auto target = target_of(sshd);
    target.port = 1;
    auto closed = co_await ssh.run(soon(), target, in_shell("true"));
    co_await ssh.stop();
    CO_ASSERT(!silent.ok());
    EXPECT_EQ(silent.error().code, Code::timeout);
    CO_ASSERT(!closed.ok());
    EXPECT_EQ(closed.error().code, Code::unavailable);
    EXPECT_THAT(closed.error().message, HasSubstr("refused"));
}

CO_TEST(Ssh, DeadlinesAndCancellationEndTheWaitAndLeaveTheConnection) {
    CO_NEEDS_SSHD();
    TestSshd sshd;
    Ssh ssh(loop.get_executor());
    auto late = co_await ssh.run(Context::background().with_timeout(200ms), target_of(sshd), in_shell("sleep 30"));
    asio::cancellation_signal cancel;
    std::optional<Result<SshResult>> outcome;
    asio::co_spawn(loop, ssh.run(soon(), target_of(sshd), in_shell("sleep 30")),
                   asio::bind_cancellation_slot(
                       cancel.slot(), [&outcome](std::exception_ptr, Result<SshResult> result) { outcome = std::move(result); }));
    co_await ssh_pause(100ms);
    cancel.emit(asio::cancellation_type::terminal);
    while (!outcome) co_await ssh_pause(2ms);
    auto after = co_await ssh.run(soon(), target_of(sshd), in_shell("echo still here"));
    co_await ssh.stop();
    EXPECT_EQ(late.error().code, Code::timeout);
    EXPECT_EQ(outcome->error().code, Code::cancelled);
    CO_ASSERT_OK(after);
    EXPECT_EQ(sshd.connections(), 1);
}

CO_TEST(Ssh, ABrokenConnectionIsReplaced) {
    CO_NEEDS_SSHD();
    TestSshd sshd;
    Ssh ssh(loop.get_executor());
    std::optional<Result<SshResult>> outcome;
    auto first = co_await ssh.run(soon(), target_of(sshd), in_shell("true"));
    asio::co_spawn(loop, ssh.run(soon(), target_of(sshd), in_shell("sleep 30")),
                   [&outcome](std::exception_ptr, Result<SshResult> result) { outcome = std::move(result); });
    co_await ssh_pause(100ms);
    sshd.cut_off();
    while (!outcome) co_await ssh_pause(2ms);
    auto after = co_await ssh.run(soon(), target_of(sshd), in_shell("echo again"));
    co_await ssh.stop();
    CO_ASSERT_OK(first);
    CO_ASSERT(!outcome->ok());
    EXPECT_EQ(outcome->error().code, Code::unavailable);
    EXPECT_THAT(outcome->error().message, HasSubstr("broke"));
    CO_ASSERT_OK(after);
    EXPECT_EQ(sshd.connections(), 2);
}

CO_TEST(Ssh, ConnectsThroughAJumpHost) {
    CO_NEEDS_SSHD();
    TestSshd gate("AllowTcpForwarding yes"), inner;
    Ssh ssh(loop.get_executor());
    auto target = target_of(inner);
    target.jump = std::make_shared<const SshTarget>(target_of(gate));
    std::string input(300'000, 'y');
    auto command = in_shell("cat; echo \" via $SSH_CONNECTION\" >&2", input);
    auto ran = co_await ssh.run(soon(), target, command);
    auto again = co_await ssh.run(soon(), target, in_shell("echo 2"));
    gate.cut_off();
    auto nowhere = target;
    nowhere.port = 1;
    auto closed = co_await ssh.run(soon(), nowhere, in_shell("true"));
    co_await ssh.stop();
    CO_ASSERT_OK(ran);
    EXPECT_TRUE(ran->output == input);
    CO_ASSERT_OK(again);
    EXPECT_EQ(inner.connections(), 1);
    CO_ASSERT(!closed.ok());
    EXPECT_EQ(closed.error().code, Code::unavailable);
}

CO_TEST(Ssh, StopEndsRunningCommands) {
    CO_NEEDS_SSHD();
    TestSshd sshd;
    std::optional<Result<SshResult>> outcome;
    {
        Ssh ssh(loop.get_executor());
        asio::co_spawn(loop, ssh.run(soon(), target_of(sshd), in_shell("yes | head -c 100000000")),
                       [&outcome](std::exception_ptr, Result<SshResult> result) { outcome = std::move(result); });
        co_await ssh_pause(150ms);
        co_await ssh.stop();
    }
    while (!outcome) co_await ssh_pause(2ms);
    EXPECT_TRUE(true);
}

} // namespace orrery::net
