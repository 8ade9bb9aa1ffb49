#include "jobs/engine_fixture.h"
#include "jobs/journal.h"
#include "jobs/simulate.h"
#include "store/sqlite/sqlite_store.h"

#include <gtest/gtest.h>

#include <random>

/// Many at once, on the real clock, with the store's thread and the pool's beside the loop: a test for the thread sanitizer.
namespace orrery::jobs {
namespace {

using namespace std::chrono_literals;
using testing::EngineFixture;

/// Says a lot, does nothing, fails now and then.
class Chatty final : public Executor {
public:
    std::string_view name() const override { return "fake"; }
    TargetType target_type() const override { return TargetType::node; }
    Result<Unit> check(const json::value&) const override { return Unit{}; }
    Task<Outcome> start(Context, const Attempt& attempt, Output& output) override {
        if (++begun[attempt.id] > 1) ++doubled;
        std::uint64_t offset = 0;
        for (int i = 0; i < 3; ++i) {
            const std::string line = attempt.id + " says something\n";
            output.write(Stream::out, offset, line);
            offset += line.size();
            CO_TRY(std::ignore, co_await real_clock().sleep(std::chrono::microseconds(random_() % 1000)));
        }
        if (random_() % 50 == 0) co_return Outcome::failure(ErrorClass::connect, "no route to host");
        co_return Outcome::success();
    }
    Task<Reattached> reattach(Context, const Attempt& attempt, Offsets, Output&) override {
        if (!begun.contains(attempt.id)) co_return Reattached{Reattached::State::not_started, {}, {}};
        co_return Reattached{Reattached::State::ended, Outcome::success(), {}};
    }
    Task<Unit> cancel(Context, const Attempt&) override { co_return Unit{}; }
    Task<Unit> clean_up(Context, const Attempt&) override { co_return Unit{}; }
    Task<Preview> plan(Context, const Attempt&) override { co_return Preview{}; }
    std::map<std::string, int> begun;
    int doubled = 0;

private:
    std::mt19937 random_{7};
};

CO_TEST(Stress, ManyTasksCommandsFlapsAndTerms) {
    orrery::testing::TemporaryFolder folder;
    Pool pool(2);
    Chatty chatty;
    Executors executors;
    executors.add(chatty);
    catalog::FakeMembership catalog;
    const auto ctx = Context::make("tester");
    auto store = co_await store::open_sqlite(ctx, loop.get_executor(), {.path = folder / "store.db"});
    CO_ASSERT_OK(store);
    resource::Registry registry;
    registry.add(resource::node_kind());
    registry.add(resource::secret_kind());
    registry.add(resource::event_kind());
    registry.add(job_kind(executors, catalog));
    registry.add(rolling_rule_kind());
    auto sealer = resource::Sealer::ephemeral();
    auto resources = std::make_unique<resource::Resources>(**store, registry, *sealer, real_clock());
    for (int i = 0; i < 40; ++i) {
        auto made = co_await resources->create(ctx, *registry.find("Node"),
                                               resource::testing::a_node(fmt::format("n{:02}", i), {{"role", "n"}}), {});
        CO_ASSERT_OK(made);
    }
    const auto spec = parse_yaml(R"(
tasks:
  - {name: a, on: n, run: {fake: {}}, retries: {times: 9, delay: 1ms, max_delay: 5ms}}
  - {name: b, on: n, after: a, same_host: true, run: {fake: {}}, retries: {times: 9, delay: 1ms, max_delay: 5ms}, batch: {canary: 1, serial: "50%"}}
  - {name: c, on: n, after: b, wait: web, with: {m: "${service.web.addresses}"}, rerun_on: {service: web, debounce: 5ms, min_interval: 20ms}, run: {fake: {}},
     retries: {times: 9, delay: 1ms, max_delay: 5ms}}
)");
    catalog.set("web", catalog::fake_member("w", "a", 1, MemberState::registered, ""));
    for (const auto* name : {"j", "k"}) {
        auto made = co_await resources->create(ctx, *registry.find("Job"),
                                               resource::testing::an_object("Job", name, spec->front().value.as_object()), {});
        CO_ASSERT_OK(made);
    }
    bool converged = false;
    for (int term = 0; term < 4 && !converged; ++term) {
        store::Leadership leadership(loop.get_executor(), **store, {.server = "s"});
        Engine engine(loop.get_executor(), *resources, leadership, catalog, executors, pool, real_clock(),
                      {.slots = 32, .folder = folder.path(), .report = 20ms});
        TaskGroup group(loop.get_executor());
        group.spawn(leadership.run(ctx));
        group.spawn(engine.run(ctx));
        for (int step = 0; step < (term < 3 ? 40 : 2000) && !converged; ++step) {
            if (step % 7 == 3) catalog.pass("web", fmt::format("w{}", step % 3));
            if (step % 7 == 5 && step < 30) catalog.remove("web", "w1");
            if (step == 10 && term < 3) std::ignore = co_await engine.command(ctx, "j", {.action = JobCommand::Action::pause});
            if (step == 12 && term < 3) std::ignore = co_await engine.command(ctx, "j", {.action = JobCommand::Action::resume});
            std::ignore = co_await real_clock().sleep(5ms);
            const auto j = engine.find("j"), k = engine.find("k");
            converged = j.ok() && k.ok() && (*j)->scheduler->job().state == JobState::converged &&
                        (*k)->scheduler->job().state == JobState::converged && step > 50;
        }
        co_await group.stop();
    }
    EXPECT_TRUE(converged);
    EXPECT_EQ(chatty.doubled, 0);
    EXPECT_GE(chatty.begun.size(), 240u);
    resources.reset();
    co_await (*store)->stop();
    pool.join();
}

TEST(Journal, CompactsWithoutLosingARow) {
    EngineFixture world;
    world.start();
    world.nodes("n", 50);
    const auto plan = world.server->engine->plan(
        "j",
        parse_yaml("tasks: [{name: a, on: n, run: {fake: {}}}, {name: b, on: n, run: {fake: {}}}]")->front().value.as_object());
    ASSERT_TRUE(plan.ok()) << plan.error().text();
    Limits limits(1000);
    const auto make = [&] {
        return std::make_unique<Scheduler>(*plan, limits, world.catalog,
                                           [](std::uint32_t, Phase) { return Result<std::uint64_t>(std::uint64_t{1}); });
    };
    auto scheduler = make();
    Journal journal("uid", plan->tasks);
    std::map<std::string, std::string> stored;
    std::mt19937 random(3);
    scheduler->begin({SteadyTime{1h}, 1000});
    std::size_t removed = 0;
    for (int round = 0; round < 12'000; ++round) {
        const auto task = static_cast<std::uint32_t>(random() % plan->tasks);
        auto& record = scheduler->mutable_record(task);
        record.attempt = static_cast<std::uint32_t>(round);
        record.since = round;
        record.more().message = fmt::format("round {}", round);
        if (round % 5 == 0) {
            record.more().inputs = json::object{{"r", round}};
            record.more().inputs_new = true;
        }
        for (auto& [key, value] : journal.record(*scheduler, {task}, round == 0)) stored[key] = value;
        auto compaction = journal.compact(*scheduler);
        for (auto& [key, value] : compaction.entries) stored[key] = value;
        for (const auto& key : compaction.remove) removed += stored.erase(key);
    }
    EXPECT_GT(removed, 3000u);
    EXPECT_LT(stored.size(), 6000u);
    auto again = make();
    Journal read("uid", plan->tasks);
    for (const auto& [key, value] : stored) ASSERT_TRUE(read.replay(*again, key, value).ok());
    for (std::uint32_t task = 0; task < plan->tasks; ++task) {
        EXPECT_EQ(again->record(task).since, scheduler->record(task).since);
        EXPECT_EQ(again->record(task).message(), scheduler->record(task).message());
        EXPECT_EQ(again->record(task).attempt, scheduler->record(task).attempt);
        if (scheduler->record(task).detail) EXPECT_EQ(again->record(task).detail->inputs, scheduler->record(task).detail->inputs);
    }
    // Cut anywhere, or with a byte changed, a record is read or refused, never more than that.
    const auto& [key, value] = *stored.rbegin();
    for (std::size_t size = 0; size < value.size(); ++size)
        std::ignore = Journal("uid", plan->tasks).replay(*make(), key, std::string_view(value).substr(0, size));
    for (std::size_t at = 0; at < value.size(); ++at) {
        auto broken = value;
        broken[at] = static_cast<char>(broken[at] ^ 0x55);
        std::ignore = Journal("uid", plan->tasks).replay(*make(), key, broken);
    }
}

TEST(Simulate, TenThousandNodesAndTheirCriticalPath) {
    catalog::FakeMembership catalog;
    asio::io_context loop;
    VirtualClock clock;
    FakeExecutor fake(loop.get_executor(), clock);
    Executors executors;
    executors.add(fake);
    std::vector<PlanNode> machines;
    for (int i = 0; i < 2000; ++i) machines.push_back({fmt::format("n{:05}", i), {{"role", i < 3 ? "db" : "web"}}});
    auto spec = read_job(parse_yaml(R"(
limits: {slots: 100000}
tasks:
  - {name: base, on: {labels: role}, run: {fake: {}}}
  - {name: db, on: db, after: base, same_host: true, run: {fake: {}}, provides: db}
  - {name: web, on: web, after: base, same_host: true, wait: {service: db, count: all}, run: {fake: {}}}
)")
                             ->front()
                             .value.as_object());
    ASSERT_TRUE(spec.ok());
    auto plan = expand("big", *spec, machines, executors, &catalog);
    ASSERT_TRUE(plan.ok()) << plan.error().text();
    SimulateOptions options;
    options.takes = {10s, 60s, 5s};
    options.latency = 2s;
    options.slots = 100'000;
    const auto simulation = simulate(*plan, options, &catalog);
    EXPECT_EQ(simulation.end, JobState::succeeded);
    EXPECT_EQ(simulation.makespan, 77s);
    ASSERT_EQ(simulation.critical_path.size(), 3u);
    EXPECT_TRUE(plan->task_name(simulation.critical_path[1].task).starts_with("db@"));
    EXPECT_EQ(simulation.critical_path[2].message, "all of db passing");
    EXPECT_EQ(simulation.max_running, 2000u);
    // The prediction names a role that never rolls as the reason for its end.
    options.rules["web"] = {.limit = 0};
    auto rolling = *spec;
    rolling.tasks[2].rolling = true;
    auto stuck = expand("stuck", rolling, machines, executors, &catalog);
    const auto never = simulate(*stuck, options, &catalog);
    EXPECT_EQ(never.end, JobState::running);
    EXPECT_EQ(never.stuck.size(), 20u);
}

} // namespace
} // namespace orrery::jobs
