#include "jobs/engine.h"
#include "jobs/engine_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::jobs {
namespace {

using namespace std::chrono_literals;
using testing::EngineFixture;

/// The chain of the reference layout (reference/orchestration.md, 3.3): what each host does takes K to compile, B without others, C
/// behind barriers, V to validate; the catalog answers after T0; a waiting task learns of a service L after it runs.
struct GoldenRow {
    const char* name;
    bool compile_blocks;
    bool early_packages;
    int latency;
    int stmonleader, ocdb, oc, haproxy;
};

class Golden : public ::testing::TestWithParam<GoldenRow> {};

TEST_P(Golden, FinishesAtTheRecordedTime) {
    const auto& record = GetParam();
    constexpr int K = 30, B = 300, C = 120, V = 20, T0 = 180;
    EngineFixture world;
    world.start();
    for (const auto* role : {"stmonleader", "ocdb", "oc", "haproxy"}) world.nodes(role, 1);
    const auto begin = world.clock.steady();
    std::map<std::string, int> ended;
    const auto seconds = [&] {
        return static_cast<int>(std::chrono::duration_cast<std::chrono::seconds>(world.clock.steady() - begin).count());
    };
    const auto later = [&](std::string service, std::string node, int after) {
        auto body = [](EngineFixture& of, std::string what, std::string where, Duration time) -> asio::awaitable<void> {
            std::ignore = co_await of.clock.sleep(time);
            of.catalog.pass(what, where);
        };
        asio::co_spawn(world.loop, body(world, std::move(service), std::move(node), std::chrono::seconds(after)), asio::detached);
    };
    world.fake.script = [&](const Attempt& attempt) {
        FakeExecutor::Script script;
        script.takes = std::chrono::seconds(attempt.body.as_object().at("takes").as_int64());
        return script;
    };
    world.fake.when_done = [&](const FakeExecutor::Begun& begun) {
        ended[begun.attempt.task] = seconds();
        if (const auto* service = begun.attempt.body.as_object().if_contains("registers"))
            later(std::string(service->as_string()), begun.attempt.targets.at(0).node.name, record.latency);
    };
    later("consul", "bootstrap", T0 + record.latency);
    world.catalog.set("consul", catalog::fake_member("bootstrap", "addr", 8500, MemberState::registered, "starting"));

    // Every host: what runs before the first barrier, between, and behind that of the host before it in the chain.
    const auto host = [&](std::string name, std::string needs, std::string registers) {
        const auto wait = needs.empty() ? "[consul]" : fmt::format("[consul, {}]", needs);
        if (record.compile_blocks)
            return fmt::format(
                "  - {{name: {0}, on: {0}, wait: {1}, run: {{fake: {{takes: {2}, registers: {3}}}}}, provides: {3}}}\n", name, wait,
                K + B + C + V, registers);
        const auto early =
            record.early_packages
                ? fmt::format("  - {{name: {0}.packages, on: {0}, run: {{fake: {{takes: {1}}}}}}}\n"
                              "  - {{name: {0}.base, on: {0}, after: {0}.packages, wait: consul, run: {{fake: {{takes: {2}}}}}}}\n",
                              name, B, K)
                : fmt::format("  - {{name: {0}.base, on: {0}, wait: consul, run: {{fake: {{takes: {1}}}}}}}\n", name, K + B);
        return early + fmt::format("  - {{name: {0}, on: {0}, after: {0}.base, wait: {1}, run: {{fake: {{takes: {2}, registers: "
                                   "{3}}}}}, provides: {3}}}\n",
                                   name, wait, C + V, registers);
    };
    const int second_run = C + V + (record.compile_blocks ? K : 0);
    world.submit(
        "golden",
        "tasks:\n" + host("stmonleader", "", "stmon") + host("ocdb", "stmon", "mysql") + host("oc", "mysql", "keystone") +
            fmt::format(
                "  - {{name: haproxy.base, on: haproxy, wait: consul, run: {{fake: {{takes: {}}}}}}}\n"
                "  - {{name: haproxy, on: haproxy, after: haproxy.base, with: {{members: \"${{service.keystone.addresses}}\"}}, "
                "rerun_on: {{service: keystone, debounce: 0s}}, run: {{fake: {{takes: {}}}}}}}\n"
                "done: [keystone]\n",
                K + B, second_run));
    ASSERT_TRUE(world.reaches("golden", JobState::converged, 1h));
    EXPECT_EQ(ended["stmonleader@stmonleader-1"], record.stmonleader);
    EXPECT_EQ(ended["ocdb@ocdb-1"], record.ocdb);
    EXPECT_EQ(ended["oc@oc-1"], record.oc);
    EXPECT_EQ(ended["haproxy@haproxy-1"], record.haproxy);
    EXPECT_EQ(seconds(), record.haproxy);
    EXPECT_EQ(world.record("golden", "haproxy@haproxy-1").attempt, 2);
}

INSTANTIATE_TEST_SUITE_P(ReferenceRows, Golden,
                         ::testing::Values(GoldenRow{"compile0", true, false, 0, 650, 1120, 1590, 1760},
                                           GoldenRow{"compile70", true, false, 70, 720, 1260, 1800, 2040},
                                           GoldenRow{"runtime0", false, false, 0, 650, 790, 930, 1070},
                                           GoldenRow{"runtime30", false, false, 30, 680, 850, 1020, 1190},
                                           GoldenRow{"watch10", false, false, 10, 660, 810, 960, 1110},
                                           GoldenRow{"early1", false, true, 1, 470, 611, 752, 893}),
                         [](const auto& info) { return info.param.name; });

} // namespace
} // namespace orrery::jobs
