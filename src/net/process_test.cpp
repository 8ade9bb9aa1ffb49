#include "core/test_fixture.h"
#include "net/process.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <gmock/gmock.h>

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace orrery::net {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

namespace {

ProcessSpec shell(std::string script) { return {.argv = {"/bin/sh", "-c", std::move(script)}}; }

bool is_alive(pid_t pid) {
    // A zombie that waits for init counts as gone.
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto name_end = text.rfind(')');
    return name_end != std::string::npos && text[name_end + 2] != 'Z' && text[name_end + 2] != 'X';
}

/// No zombie of ours is left.
bool all_reaped() { return ::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }

asio::awaitable<void> a_while(Duration time) {
    asio::steady_timer timer(co_await asio::this_coro::executor, time);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

} // namespace

CO_TEST(Process, ReturnsOutputErrorsAndExitStatus) {
    auto ran = co_await run_process(Context::background(), shell("echo out; echo err >&2; exit 3"));
    CO_ASSERT_OK(ran);
    EXPECT_EQ(ran->exit_code, 3);
    EXPECT_EQ(ran->output, "out\n");
    EXPECT_EQ(ran->errors, "err\n");
    EXPECT_FALSE(ran->succeeded());
    EXPECT_TRUE(all_reaped());
}

CO_TEST(Process, ReportsTheSignalThatEndedIt) {
    auto ran = co_await run_process(Context::background(), shell("kill -KILL $$"));
    CO_ASSERT_OK(ran);
    EXPECT_EQ(ran->signal, SIGKILL);
    EXPECT_EQ(ran->exit_code, -1);
}

CO_TEST(Process, NoShellInterpretsArguments) {
    ProcessSpec spec{.argv = {"printf", "%s|", "$HOME", "a b", "'", ";true", ""}};
    auto ran = co_await run_process(Context::background(), spec);
    CO_ASSERT_OK(ran);
    EXPECT_EQ(ran->output, "$HOME|a b|'|;true||");
}

CO_TEST(Process, HasOnlyTheGivenEnvironmentAndPath) {
    ::setenv("ORRERY_TEST_SECRET", "x", 1);
    auto ran = co_await run_process(Context::background(), {.argv = {"env"}, .environment = {{"ONE", "1"}}});
    ::unsetenv("ORRERY_TEST_SECRET");
    CO_ASSERT_OK(ran);
    EXPECT_EQ(ran->output, "ONE=1\nPATH=" + std::string(::getenv("PATH")) + "\n");
}

CO_TEST(Process, RunsInItsFolder) {
    orrery::testing::TemporaryFolder folder;
    auto ran = co_await run_process(Context::background(), {.argv = {"pwd", "-P"}, .folder = folder.path()});
    CO_ASSERT_OK(ran);
    EXPECT_EQ(ran->output, std::filesystem::canonical(folder.path()).string() + "\n");
    auto nowhere = co_await run_process(Context::background(), {.argv = {"pwd"}, .folder = folder / "missing"});
    CO_ASSERT(!nowhere.ok());
    EXPECT_EQ(nowhere.error().code, Code::not_found);
    EXPECT_THAT(nowhere.error().message, HasSubstr("no such folder"));
}

CO_TEST(Process, AMissingProgramIsNotFoundAndOneWithoutPermissionDenied) {
    orrery::testing::TemporaryFolder folder;
    std::ofstream(folder / "plain") << "#!/bin/sh\n";
    std::ofstream(folder / "bad-interpreter") << "#!/no/such/interpreter\n";
    std::filesystem::permissions(folder / "bad-interpreter", std::filesystem::perms::owner_all);
    auto missing = co_await run_process(Context::background(), {.argv = {"no-such-program-here"}});
    auto missing_path = co_await run_process(Context::background(), {.argv = {folder / "missing"}});
    auto denied = co_await run_process(Context::background(), {.argv = {folder / "plain"}});
    auto interpreter = co_await run_process(Context::background(), {.argv = {folder / "bad-interpreter"}});
    auto searched =
        co_await run_process(Context::background(), {.argv = {"plain"}, .environment = {{"PATH", folder.path().string()}}});
    auto nothing = co_await run_process(Context::background(), {});
    EXPECT_EQ(missing.error().code, Code::not_found);
    EXPECT_EQ(missing_path.error().code, Code::not_found);
    EXPECT_EQ(denied.error().code, Code::denied);
    EXPECT_EQ(interpreter.error().code, Code::not_found);
    EXPECT_EQ(searched.error().code, Code::denied);
    EXPECT_EQ(nothing.error().code, Code::invalid);
    EXPECT_TRUE(all_reaped());
}

CO_TEST(Process, LargeInputAndOutputDoNotDeadlock) {
    std::string input(8 << 20, 'x');
    for (std::size_t at = 0; at < input.size(); at += 80) input[at] = '\n';
    auto ran = co_await run_process(Context::background(), {.argv = {"cat"}, .input = input, .max_output = 16 << 20});
    CO_ASSERT_OK(ran);
    EXPECT_TRUE(ran->output == input);
    EXPECT_FALSE(ran->truncated);
}

CO_TEST(Process, OutputOverTheLimitIsPassedOnButNotKept) {
    std::size_t seen = 0;
    auto spec = shell("head -c 300000 /dev/zero; head -c 10 /dev/zero >&2");
    spec.max_output = 1000;
    spec.on_output = [&seen](int, std::string_view piece) { seen += piece.size(); };
    auto ran = co_await run_process(Context::background(), spec);
    CO_ASSERT_OK(ran);
    EXPECT_EQ(ran->output.size(), 1000u);
    EXPECT_EQ(ran->errors.size(), 10u);
    EXPECT_TRUE(ran->truncated);
    EXPECT_EQ(seen, 300010u);
}

CO_TEST(Process, AChildThatDoesNotReadItsInputIsNotAnError) {
    auto ran = co_await run_process(Context::background(), {.argv = {"true"}, .input = std::string(4 << 20, 'x')});
    CO_ASSERT_OK(ran);
    EXPECT_TRUE(ran->succeeded());
}

CO_TEST(Process, AtTheDeadlineTheWholeGroupIsEnded) {
    std::string output;
    auto spec = shell("sleep 600 & echo $!; sleep 600");
    spec.on_output = [&output](int, std::string_view piece) { output += piece; };
    const auto started = std::chrono::steady_clock::now();
    auto ran = co_await run_process(Context::background().with_timeout(300ms), spec);
    CO_ASSERT(!ran.ok());
    EXPECT_EQ(ran.error().code, Code::timeout);
    EXPECT_LT(std::chrono::steady_clock::now() - started, 10s);
    CO_ASSERT(!output.empty());
    EXPECT_FALSE(is_alive(std::stoi(output)));
    EXPECT_TRUE(all_reaped());
}

CO_TEST(Process, AProcessThatIgnoresSigtermIsKilled) {
    std::string output;
    auto spec = shell("trap '' TERM; (trap '' TERM; sleep 600; sleep 600) & echo $!; while :; do sleep 1; done");
    spec.term_grace = 100ms;
    spec.on_output = [&output](int, std::string_view piece) { output += piece; };
    auto ran = co_await run_process(Context::background().with_timeout(300ms), spec);
    CO_ASSERT(!ran.ok());
    EXPECT_EQ(ran.error().code, Code::timeout);
    CO_ASSERT(!output.empty());
    for (int tries = 0; tries < 100 && is_alive(std::stoi(output)); ++tries) co_await a_while(10ms);
    EXPECT_FALSE(is_alive(std::stoi(output)));
    EXPECT_TRUE(all_reaped());
}

CO_TEST(Process, AGroupHasTimeToCleanUpAfterItsLeaderEnded) {
    orrery::testing::TemporaryFolder folder;
    auto spec = shell("(trap 'sleep 0.2; touch cleaned; exit' TERM; touch ready; while :; do sleep 0.05; done) & sleep 600");
    spec.folder = folder.path();
    spec.term_grace = 20s;
    asio::cancellation_signal cancel;
    std::optional<Result<ProcessResult>> outcome;
    asio::co_spawn(loop, run_process(Context::background(), spec),
                   asio::bind_cancellation_slot(cancel.slot(), [&outcome](std::exception_ptr, Result<ProcessResult> result) {
                       outcome = std::move(result);
                   }));
    while (!std::filesystem::exists(folder / "ready")) co_await a_while(5ms);
    cancel.emit(asio::cancellation_type::terminal);
    co_await a_while(20ms);
    cancel.emit(asio::cancellation_type::terminal); // impatience changes nothing
    while (!outcome) co_await a_while(5ms);
    CO_ASSERT(!outcome->ok());
    EXPECT_EQ(outcome->error().code, Code::cancelled);
    EXPECT_TRUE(std::filesystem::exists(folder / "cleaned"));
    EXPECT_TRUE(all_reaped());
}

CO_TEST(Process, ACancelledCallerLeavesNothingBehind) {
    asio::cancellation_signal cancel;
    std::optional<Result<ProcessResult>> outcome;
    std::string output;
    auto spec = shell("echo $$; sleep 600");
    spec.on_output = [&output](int, std::string_view piece) { output += piece; };
    asio::co_spawn(loop, run_process(Context::background(), spec),
                   asio::bind_cancellation_slot(cancel.slot(), [&outcome](std::exception_ptr, Result<ProcessResult> result) {
                       outcome = std::move(result);
                   }));
    while (output.empty()) co_await a_while(5ms);
    cancel.emit(asio::cancellation_type::terminal);
    while (!outcome) co_await a_while(5ms);
    CO_ASSERT(!outcome->ok());
    EXPECT_EQ(outcome->error().code, Code::cancelled);
    EXPECT_FALSE(is_alive(std::stoi(output)));
    EXPECT_TRUE(all_reaped());
}

CO_TEST(Process, AGrandchildThatHoldsThePipesIsNotWaitedFor) {
    const auto started = std::chrono::steady_clock::now();
    auto ran = co_await run_process(Context::background(), shell("sleep 600 & echo $!"));
    CO_ASSERT_OK(ran);
    EXPECT_LT(std::chrono::steady_clock::now() - started, 5s);
    const auto grandchild = std::stoi(ran->output);
    EXPECT_TRUE(is_alive(grandchild));
    ::kill(grandchild, SIGKILL);
}

CO_TEST(Process, InheritsNoDescriptorButTheStandardOnes) {
    const int leaky = ::open("/dev/null", O_RDONLY); // without O_CLOEXEC, as some library might
    CO_ASSERT(leaky >= 0);
    auto ran = co_await run_process(Context::background(), shell("ls /proc/$$/fd"));
    ::close(leaky);
    CO_ASSERT_OK(ran);
    EXPECT_EQ(ran->output, "0\n1\n2\n");
}

CO_TEST(Process, StartsWithSignalsAtTheirDefaults) {
    ::signal(SIGPIPE, SIG_IGN);
    auto ran = co_await run_process(Context::background(), shell("kill -PIPE $$; echo survived"));
    ::signal(SIGPIPE, SIG_DFL);
    CO_ASSERT_OK(ran);
    EXPECT_EQ(ran->signal, SIGPIPE);
}

CO_TEST(Process, LeavesNoDescriptorOpen) {
    const auto count = [] {
        return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
    };
    auto first = co_await run_process(Context::background(), {.argv = {"cat"}, .input = "x"});
    const auto before = count();
    for (int round = 0; round < 20; ++round) first = co_await run_process(Context::background(), {.argv = {"cat"}, .input = "x"});
    EXPECT_EQ(count(), before);
    EXPECT_TRUE(first.ok());
}

TEST(Process, SeveralLoopsRunChildrenConcurrently) {
    std::vector<std::thread> threads;
    std::atomic<int> good = 0;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&good, thread] {
            asio::io_context loop(1);
            for (int child = 0; child < 8; ++child) {
                const auto text = std::to_string(thread * 100 + child);
                asio::co_spawn(loop, run_process(Context::background(), {.argv = {"cat"}, .input = text}),
                               [&good, text](std::exception_ptr, Result<ProcessResult> ran) {
                                   good += ran.ok() && ran->output == text && ran->succeeded();
                               });
            }
            loop.run();
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(good, 32);
    EXPECT_TRUE(all_reaped());
}

} // namespace orrery::net
