#include "core/test_fixture.h"
#include "core/text.h"
#include "gslb/observe/health_watcher.h"

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <gmock/gmock.h>

#include <map>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Reading = health::StatusSource::Reading;

/// Knows what a test says.
class FakeSource final : public health::StatusSource {
public:
    std::string name() const override { return "told"; }
    Task<std::map<std::string, Reading>> read(Context, std::vector<std::string> ids) override {
        if (away) co_return Error{Code::unavailable, messages};
        std::map<std::string, Reading> out;
        for (const auto& id : ids)
            if (const auto known = readings.find(id); known != readings.end()) out.insert(*known);
        co_return out;
    }
    std::map<std::string, Reading> readings;
    bool away = false;
    std::string messages = "no connection";
};

class OneSource final : public Sources {
public:
    OneSource(asio::any_io_executor executor, Clock& clock)
        : source(std::make_shared<FakeSource>()),
          reader_(std::make_shared<health::SourceReader>(std::move(executor), source, clock)) {}
    std::shared_ptr<health::SourceReader> reader(const json::object&) override { return reader_; }
    std::shared_ptr<FakeSource> source;

private:
    std::shared_ptr<health::SourceReader> reader_;
};

struct Bench {
    explicit Bench(asio::io_context& loop_)
        : loop(loop_),
          sources(loop.get_executor(), clock),
          watcher(loop.get_executor(), clock, "here", nullptr, &sources),
          group(loop.get_executor()) {
        watcher.report_to([this](const std::string& member, MemberHealth health) { signals[member] = std::move(health); });
        watcher.report_addresses_to(
            [this](const std::string& member, Addresses addresses) { addresses_of[member] = addresses.texts(); });
        group.spawn(watcher.run(Context::background()));
    }
    asio::awaitable<void> pass(Duration time) {
        for (Duration gone{}; gone < time; gone += 500ms) {
            for (int i = 0; i < 30; ++i) co_await asio::post(loop, asio::use_awaitable);
            clock.advance(500ms);
        }
        for (int i = 0; i < 30; ++i) co_await asio::post(loop, asio::use_awaitable);
    }
    asio::io_context& loop;
    VirtualClock clock;
    OneSource sources;
    HealthWatcher watcher;
    TaskGroup group;
    std::map<std::string, MemberHealth> signals;
    std::map<std::string, std::vector<std::string>> addresses_of;
};

Watcher::Target::Check balancer_check() {
    return {"octavia", {{"kind", "octavia"}, {"source", "s"}, {"id", "lb"}, {"interval", "10s"}, {"rise", 1}, {"fall", 1}}, {}};
}
Watcher::Target::Check push_check(std::string name) {
    return {std::move(name), {{"kind", "push"}, {"interval", "1s"}, {"rise", 1}, {"fall", 1}, {"ttl", "1m"}}, {}};
}

} // namespace

CO_TEST(HealthWatcher, ARegionalLoadBalancerHasTheStateThatItsApiReports) {
    Bench bench(loop);
    auto& lb = bench.sources.source->readings["lb"];
    lb = {.outcome = health::Outcome::ok, .text = "ONLINE", .addresses = {"192.0.2.5", "2001:db8::5"}};
    bench.watcher.watch("m", {.checks = {balancer_check()}});
    co_await bench.pass(12s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::up);
    EXPECT_EQ(bench.addresses_of["m"], (std::vector<std::string>{"192.0.2.5", "2001:db8::5"}));
    lb = {.outcome = health::Outcome::failed, .text = "ERROR", .addresses = {"192.0.2.5"}};
    co_await bench.pass(12s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::down);
    EXPECT_EQ(bench.signals["m"].cause, Cause::driver);
    EXPECT_THAT(bench.signals["m"].message, HasSubstr("ERROR"));
    bench.sources.source->away = true; // no evidence: it stays
    lb.outcome = health::Outcome::ok;
    co_await bench.pass(30s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::down);
    bench.sources.source->away = false;
    co_await bench.pass(12s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::up);
    lb = {.outcome = health::Outcome::ok, .text = "DRAINING", .share = 0.5, .drains = true, .addresses = {"192.0.2.5"}};
    co_await bench.pass(12s);
    EXPECT_TRUE(bench.signals["m"].drains);
    EXPECT_EQ(bench.signals["m"].share, 0.5);
    co_await bench.group.stop();
}

CO_TEST(HealthWatcher, AnUnavailableSourceIsNamedWhileItsLastReportApplies) {
    Bench bench(loop);
    auto& lb = bench.sources.source->readings["lb"];
    lb = {.outcome = health::Outcome::ok, .text = "ONLINE", .addresses = {"192.0.2.5"}};
    bench.watcher.watch("m", {.checks = {balancer_check()}});
    co_await bench.pass(12s);
    EXPECT_FALSE(bench.signals["m"].unconfirmed);
    bench.sources.source->away = true;
    co_await bench.pass(12s);
    EXPECT_FALSE(bench.signals["m"].unconfirmed) << "once is nothing";
    co_await bench.pass(40s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::up);
    CO_ASSERT(bench.signals["m"].unconfirmed.has_value());
    EXPECT_EQ(bench.signals["m"].unconfirmed->cause, Cause::source_silent);
    EXPECT_THAT(bench.signals["m"].unconfirmed->message, HasSubstr("its last status stays"));
    EXPECT_THAT(bench.signals["m"].message, HasSubstr("cannot be queried: no connection"));
    bench.sources.source->messages = "no answer";
    co_await bench.pass(12s);
    EXPECT_THAT(bench.signals["m"].message, HasSubstr("cannot be queried: no answer"));
    bench.sources.source->away = false;
    co_await bench.pass(12s);
    EXPECT_FALSE(bench.signals["m"].unconfirmed);
    EXPECT_EQ(bench.signals["m"].message, "");
    lb.outcome = health::Outcome::failed;
    co_await bench.pass(12s);
    bench.sources.source->away = true;
    co_await bench.pass(60s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::down);
    EXPECT_FALSE(bench.signals["m"].unconfirmed) << "nothing is held back: it stays down";
    EXPECT_THAT(bench.signals["m"].message, HasSubstr("cannot be queried"));
    co_await bench.group.stop();
}

CO_TEST(HealthWatcher, AnUnavailableMetricsServerIsNamed) {
    Bench bench(loop);
    bench.sources.source->readings["192.0.2.1:80"] = {.outcome = health::Outcome::ok, .text = "3"};
    Addresses address;
    std::ignore = address.add("192.0.2.1");
    const Watcher::Target::Check load{
        "load", {{"kind", "prometheus"}, {"source", "s"}, {"query", "up"}, {"interval", "10s"}, {"rise", 1}, {"fall", 1}}, {}};
    bench.watcher.watch("m", {.addresses = address, .port = 80, .checks = {load, push_check("own")}});
    bench.watcher.watch("same-place", {.addresses = address, .port = 80, .checks = {load}});
    bench.watcher.board().record(pushed_status_key("m", "own"), health::Outcome::ok, "", 1h);
    co_await bench.pass(12s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::up);
    bench.sources.source->away = true;
    co_await bench.pass(50s);
    for (const auto* member : {"m", "same-place"}) {
        EXPECT_EQ(bench.signals[member].state, HealthState::up) << member;
        CO_ASSERT(bench.signals[member].unconfirmed.has_value());
        EXPECT_EQ(bench.signals[member].unconfirmed->cause, Cause::source_silent) << member;
        EXPECT_THAT(bench.signals[member].message, HasSubstr("cannot be queried: no connection; its last status stays")) << member;
    }
    bench.sources.source->away = false;
    co_await bench.pass(12s);
    EXPECT_FALSE(bench.signals["m"].unconfirmed);
    EXPECT_FALSE(bench.signals["same-place"].unconfirmed);
    EXPECT_EQ(bench.signals["m"].message, "");
    co_await bench.group.stop();
}

CO_TEST(HealthWatcher, WithoutAMonitorInOctaviaOurOwnProbeDecides) {
    Bench bench(loop);
    auto& lb = bench.sources.source->readings["lb"];
    lb = {.outcome = health::Outcome::failed, .text = "ERROR", .addresses = {"192.0.2.5"}};
    bench.watcher.watch("m", {.checks = {balancer_check(), push_check("own")}});
    bench.watcher.board().record(pushed_status_key("m", "own"), health::Outcome::ok, "", 1h);
    co_await bench.pass(12s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::down);
    lb = {.outcome = health::Outcome::local_error, .text = "NO_MONITOR", .addresses = {"192.0.2.5"}};
    co_await bench.pass(12s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::up);
    bench.watcher.watch("m", {.checks = {balancer_check()}}); // no probe runs
    EXPECT_EQ(bench.signals["m"].state, HealthState::unknown);
    EXPECT_EQ(bench.signals["m"].message, "NO_MONITOR");
    co_await bench.group.stop();
}

CO_TEST(HealthWatcher, APushedStatusIsValidForItsTtl) {
    Bench bench(loop);
    Addresses address;
    std::ignore = address.add("192.0.2.1");
    bench.watcher.watch("m", {.addresses = address, .checks = {push_check("said")}});
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::unknown);
    bench.watcher.board().record(pushed_status_key("m", "said"), health::Outcome::warning, "disk nearly full", 20s);
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::degraded);
    EXPECT_EQ(bench.signals["m"].cause, Cause::push);
    EXPECT_EQ(bench.signals["m"].message, "said: warning (disk nearly full), 0 of 1 down, need 1");
    EXPECT_THAT(to_json_text(bench.signals["m"].evidence), HasSubstr(R"("message":"disk nearly full")"));
    bench.watcher.board().record(pushed_status_key("m", "said"), health::Outcome::ok, "", 20s);
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::up);
    co_await bench.pass(20s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::down);
    EXPECT_THAT(bench.signals["m"].message, HasSubstr("no status was pushed within 20s"));
    co_await bench.group.stop();
}

CO_TEST(HealthWatcher, ACheckThatCannotRunIsReportedAndNeverUp) {
    Bench bench(loop);
    Addresses address;
    std::ignore = address.add("192.0.2.1");
    const auto plugin = [](const char* program) {
        return Watcher::Target::Check{
            "disk", {{"kind", "plugin"}, {"command", json::array{program}}, {"interval", "1s"}, {"rise", 1}, {"fall", 1}}, {}};
    };
    bench.watcher.watch("m", {.addresses = address, .checks = {plugin("check_disk")}});
    co_await bench.pass(1s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::unknown);
    EXPECT_EQ(bench.signals["m"].unchecked,
              "disk: this vantage has no program check_disk for checks; name it in the server's setting "
              "health.programs, or start a checker with "
              "--program");
    EXPECT_EQ(bench.watcher.unchecked(), 1U);
    // The check is still assigned: a checker may have the program.
    EXPECT_EQ(bench.watcher.aggregator().assignments("", 0).at("set").get_array().size(), 1U);
    CO_ASSERT_OK(bench.watcher.aggregator().receive_reports(json::object{
        {"vantage", "far"},
        {"trusted", true},
        {"reports", json::array{json::object{{"key", "m|disk|192.0.2.1"}, {"state", "up"}, {"class", "ok"}, {"age_ms", 0}}}}}));
    EXPECT_EQ(bench.signals["m"].state, HealthState::up);
    EXPECT_EQ(bench.signals["m"].unchecked, "");
    EXPECT_EQ(bench.watcher.unchecked(), 0U);
    bench.watcher.forget("m");
    co_await bench.group.stop();
}

CO_TEST(HealthWatcher, ACalculatedMonitorNeedsTheConfiguredNumberOfParts) {
    Bench bench(loop);
    Addresses address;
    std::ignore = address.add("192.0.2.1");
    Watcher::Target::Check two_of_three{"most", {{"kind", "calculated"}, {"rule", "at-least"}, {"need", 2}}, {}};
    for (const auto* name : {"a", "b", "c"}) two_of_three.parts.push_back(push_check(name));
    bench.watcher.watch("m", {.addresses = address, .checks = {two_of_three}});
    const auto say = [&](const char* monitor, bool good) {
        bench.watcher.board().record(pushed_status_key("m", monitor), good ? health::Outcome::ok : health::Outcome::failed, "", 1h);
    };
    say("a", true);
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::unknown); // it depends on parts with unknown state
    say("b", true);
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::up);
    say("c", false); // a part that fails does not count by itself
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::up);
    say("a", false);
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].state, HealthState::down);
    EXPECT_EQ(bench.signals["m"].message, "most: 1 of 3 up, need 2");
    co_await bench.group.stop();
}

} // namespace orrery::gslb
