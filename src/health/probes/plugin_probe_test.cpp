#include "core/test_fixture.h"
#include "health/probes/plugin_probe.h"
#include "health/probes/programs.h"

#include <boost/asio/ip/tcp.hpp>
#include <gmock/gmock.h>

#include <filesystem>
#include <iostream>

namespace orrery::health {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PluginOutput, ParsesTheOutputOfPlugins) {
    auto output = read_plugin_output("DISK OK - free space: / 3326 MB (56%); | /=2643MB;5948;5958;0;5968\n");
    EXPECT_EQ(output.line, "DISK OK - free space: / 3326 MB (56%);");
    EXPECT_THAT(output.measures, ElementsAre(Measure{"/", 2643, "MB"}));
    output =
        read_plugin_output("DISK OK | /=2643MB;5948;5958;0;5968\n/ 15272 MB (77%);\n/boot 68 MB (69%);\n/home 69357 MB (27%); | "
                           "/boot=68MB;88;93;0;98\n/home=69357MB;253404;253409;0;253414\n");
    EXPECT_EQ(output.more, "/ 15272 MB (77%);\n/boot 68 MB (69%);\n/home 69357 MB (27%);");
    EXPECT_THAT(output.measures, ElementsAre(Measure{"/", 2643, "MB"}, Measure{"/boot", 68, "MB"}, Measure{"/home", 69357, "MB"}));
    output = read_plugin_output("PING OK|rta=0.80ms;100;500;0 pl=0%;20;60;0 'a ''quoted'' one'=-1.5e3c x=U;1 =5 broken y=");
    EXPECT_EQ(output.line, "PING OK");
    EXPECT_THAT(output.measures,
                ElementsAre(Measure{"rta", 0.8, "ms"}, Measure{"pl", 0, "%"}, Measure{"a 'quoted' one", -1500, "c"}));
    EXPECT_TRUE(read_plugin_output("").line.empty());
    EXPECT_EQ(read_plugin_output("no data").line, "no data");
    EXPECT_TRUE(read_plugin_output("x | 'never ends=1").measures.empty());
    std::string many = "OK |";
    for (int i = 0; i < 1000; ++i) many += " a" + std::to_string(i) + "=1";
    EXPECT_EQ(read_plugin_output(many).measures.size(), 256U);
}

TEST(PluginOutput, DistinguishesAFailureOfThePluginFromOneOfTheTarget) {
    EXPECT_EQ(plugin_outcome(0), Outcome::ok);
    EXPECT_EQ(plugin_outcome(1), Outcome::warning);
    EXPECT_EQ(plugin_outcome(2), Outcome::failed);
    for (const int code : {3, 4, 127, 255, -1}) EXPECT_FALSE(is_evidence(plugin_outcome(code))) << code;
}

namespace {

asio::awaitable<Observation> run_plugin(Programs& programs, PluginProbeOptions options, Duration time = 10s) {
    auto probe = plugin_probe(programs, std::move(options));
    EXPECT_TRUE(probe.ok());
    co_return co_await (*probe)->run(Context::make("test").with_timeout(time));
}

} // namespace

CO_TEST(Plugin, RunsProgramsWithoutAShell) {
    Programs programs(loop.get_executor());
    auto seen = co_await run_plugin(programs, {.argv = {"/bin/echo", "OK $(id) ; rm | a=1s;;"}});
    EXPECT_EQ(seen.outcome, Outcome::ok);
    EXPECT_EQ(seen.text, "OK $(id) ; rm");
    EXPECT_THAT(seen.measures, ElementsAre(Measure{"a", 1, "s"}));
    seen = co_await run_plugin(programs, {.argv = {"/bin/sh", "-c", "echo WARN; exit 1"}});
    EXPECT_EQ(seen.outcome, Outcome::warning);
    seen = co_await run_plugin(programs, {.argv = {"/bin/sh", "-c", "exit 3"}});
    EXPECT_EQ(seen.outcome, Outcome::local_error);
    seen = co_await run_plugin(programs, {.argv = {"/bin/sh", "-c", "exit 3"}, .plain = true});
    EXPECT_EQ(seen.outcome, Outcome::failed);
    for (const auto* cannot : {"exit 126", "exit 127", "kill -9 $$"}) { // it could not check
        seen = co_await run_plugin(programs, {.argv = {"/bin/sh", "-c", cannot}, .plain = true});
        EXPECT_EQ(seen.outcome, Outcome::local_error) << cannot << ": " << seen.text;
    }
    seen = co_await run_plugin(programs, {.argv = {"/bin/sh", "-c", "echo UNKNOWN - no data; exit 3"}});
    EXPECT_EQ(seen.text, "/bin/sh: exit code 3: UNKNOWN - no data");
    seen = co_await run_plugin(programs, {.argv = {"/no/such/plugin"}});
    EXPECT_EQ(seen.outcome, Outcome::local_error) << seen.text;
    seen = co_await run_plugin(programs, {.argv = {"/bin/sleep", "100"}}, 100ms);
    EXPECT_EQ(seen.outcome, Outcome::timeout_read) << seen.text;
    EXPECT_EQ(programs.running(), 0U);
    EXPECT_FALSE(plugin_probe(programs, {}).ok());
}

CO_TEST(Plugin, RunsRealPlugins) {
    const std::string folder = "/usr/lib/nagios/plugins/";
    if (!std::filesystem::exists(folder + "check_tcp")) {
        std::cout << "skipped: monitoring-plugins-basic is not installed\n";
        co_return;
    }
    Programs programs(loop.get_executor());
    asio::ip::tcp::acceptor acceptor(loop, {asio::ip::make_address("127.0.0.1"), 0});
    const auto port = std::to_string(acceptor.local_endpoint().port());
    auto seen = co_await run_plugin(programs, {.argv = {folder + "check_tcp", "-H", "127.0.0.1", "-p", port}});
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    CO_ASSERT(!seen.measures.empty());
    EXPECT_EQ(seen.measures.front().name, "time");
    EXPECT_EQ(seen.measures.front().unit, "s");
    acceptor.close();
    seen = co_await run_plugin(programs, {.argv = {folder + "check_tcp", "-H", "127.0.0.1", "-p", port}});
    EXPECT_EQ(seen.outcome, Outcome::failed) << seen.text;
    seen = co_await run_plugin(programs, {.argv = {folder + "check_dummy", "1", "so so"}});
    EXPECT_EQ(seen.outcome, Outcome::warning) << seen.text;
    EXPECT_THAT(seen.text, HasSubstr("so so"));
    seen = co_await run_plugin(programs, {.argv = {folder + "check_tcp"}}); // without arguments it exits with UNKNOWN
    EXPECT_EQ(seen.outcome, Outcome::local_error) << seen.text;
    seen = co_await run_plugin(programs, {.argv = {folder + "check_load", "-w", "1000,1000,1000", "-c", "2000,2000,2000"}});
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    EXPECT_EQ(seen.measures.size(), 3U);
}

CO_TEST(Plugin, LimitsConcurrentPlugins) {
    Programs programs(loop.get_executor(), 2);
    testing::TemporaryFolder folder;
    TaskGroup group(loop.get_executor());
    std::vector<Outcome> seen;
    const auto one = [](Programs& with, std::vector<Outcome>& into, Duration time) -> asio::awaitable<void> {
        auto found = co_await run_plugin(with, {.argv = {"/bin/sleep", "100"}}, time);
        into.push_back(found.outcome);
    };
    group.spawn(one(programs, seen, 1500ms));
    group.spawn(one(programs, seen, 1500ms));
    group.spawn(one(programs, seen, 100ms));
    EXPECT_EQ(programs.running(), 2U);
    co_await group.join();
    EXPECT_THAT(seen, ElementsAre(Outcome::local_error, Outcome::timeout_read, Outcome::timeout_read)); // no place is no evidence
}

} // namespace orrery::health
