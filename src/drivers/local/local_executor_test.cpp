#include "core/text.h"
#include "drivers/local/local.h"
#include "drivers/ssh/ssh_fixture.h"

#include <gmock/gmock.h>

namespace orrery::drivers::local_executor_test {

namespace {
using namespace std::chrono_literals;
using jobs::ErrorClass;
using jobs::Outcome;
using testing::attempt_on;
using ::testing::HasSubstr;
using testing::StoredOutput;

boost::json::value yaml(const std::string& text) { return parse_yaml(text)->front().value; }
Context ctx() { return Context::background().with_timeout(30s); }

struct LocalBench {
    orrery::testing::TemporaryFolder folder;
    LocalRunner runner{folder.path()};
    RemoteAttempts attempts{runner};
    std::unique_ptr<jobs::Executor> executor =
        local_executor(attempts, {.programs = {{"shell", "/bin/sh"}, {"echo", "/bin/echo"}}});
};
} // namespace

CO_TEST(LocalExecutor, RunsAllowedProgramsWithoutAShell) {
    LocalBench bench;
    StoredOutput first, second, third;
    auto ran = co_await bench.executor->start(
        ctx(), attempt_on("l1", yaml("{program: echo, arguments: [\"$HOME\", \"a b\", \"'\"]}")), first);
    auto failed = co_await bench.executor->start(
        ctx(), attempt_on("l2", yaml("{program: shell, arguments: [-c, \"cat; echo no >&2; exit 5\"], input: hi}")), second);
    auto good = co_await bench.executor->start(
        ctx(), attempt_on("l3", yaml("{program: shell, arguments: [-c, \"exit 5\"], success: [5]}")), third);
    auto again = co_await bench.executor->reattach(ctx(), attempt_on("l2", yaml("{program: shell}")), {}, third);
    auto never = co_await bench.executor->reattach(ctx(), attempt_on("l9", yaml("{program: shell}")), {}, third);
    auto cleaned = co_await bench.executor->clean_up(ctx(), attempt_on("l1", yaml("{program: echo}")));
    CO_ASSERT_OK(ran);
    EXPECT_EQ(first.out, "$HOME a b '\n");
    CO_ASSERT_OK(failed);
    EXPECT_EQ(failed->error, ErrorClass::failed);
    EXPECT_EQ(failed->message, "exit code 5: no");
    EXPECT_EQ(second.out, "hi");
    CO_ASSERT_OK(good);
    EXPECT_EQ(good->ended, Outcome::Ended::succeeded);
    CO_ASSERT_OK(again);
    EXPECT_EQ(again->outcome.exit_code, 5);
    CO_ASSERT_OK(never);
    EXPECT_EQ(never->state, jobs::Reattached::State::not_started);
    CO_ASSERT_OK(cleaned);
    EXPECT_FALSE(std::filesystem::exists(bench.folder / ".orrery/attempts/l1"));
}

CO_TEST(LocalExecutor, RefusesOtherProgramsAndSecretsAsArguments) {
    LocalBench bench;
    StoredOutput output;
    EXPECT_THAT(bench.executor->check(yaml("{program: /bin/rm}")).error().fields.front().message, HasSubstr("must be one of"));
    EXPECT_THAT(bench.executor->check(yaml("{program: ecko}")).error().fields.front().message, HasSubstr("did you mean \"echo\""));
    EXPECT_FALSE(bench.executor->check(yaml("{program: echo, shell: true}")).ok());
    auto attempt = attempt_on("l4", yaml("{program: echo, arguments: [\"canary-4711\"]}"));
    attempt.secrets = {{"a.b", "canary-4711"}};
    auto refused = co_await bench.executor->start(ctx(), attempt, output);
    attempt = attempt_on("l5", yaml("{program: shell, arguments: [-c, \"echo $X | wc -c\"]}"));
    attempt.secrets = {{"a.b", "canary-4711"}};
    attempt.environment = {{"X", "canary-4711"}};
    auto given = co_await bench.executor->start(ctx(), attempt, output);
    EXPECT_EQ(refused.error().code, Code::invalid);
    CO_ASSERT_OK(given);
    EXPECT_EQ(output.out, "12\n");
}

} // namespace orrery::drivers::local_executor_test
