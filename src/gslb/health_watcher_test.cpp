#include "core/testing.h"
#include "gslb/health_watcher.h"

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
class Told final : public health::StatusSource {
public:
    std::string name() const override { return "told"; }
    Task<std::map<std::string, Reading>> read(Context, std::vector<std::string> ids) override {
        if (away) co_return Error{Code::unavailable, because};
        std::map<std::string, Reading> out;
        for (const auto& id : ids)
            if (const auto known = readings.find(id); known != readings.end()) out.insert(*known);
        co_return out;
    }
    std::map<std::string, Reading> readings;
    bool away = false;
    std::string because = "no connection";
};

class OneSource final : public Sources {
public:
    OneSource(asio::any_io_executor executor, Clock& clock)
        : told(std::make_shared<Told>()), reader_(std::make_shared<health::SourceReader>(std::move(executor), told, clock)) {}
    std::shared_ptr<health::SourceReader> reader(const json::object&) override { return reader_; }
    std::shared_ptr<Told> told;

private:
    std::shared_ptr<health::SourceReader> reader_;
};

struct Bench {
    explicit Bench(asio::io_context& loop_)
        : loop(loop_),
          sources(loop.get_executor(), clock),
          watcher(loop.get_executor(), clock, "here", nullptr, &sources),
          group(loop.get_executor()) {
        watcher.report_to([this](const std::string& member, Signal signal) { signals[member] = std::move(signal); });
        watcher.report_places_to([this](const std::string& member, Addresses addresses) { places[member] = addresses.texts(); });
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
    std::map<std::string, Signal> signals;
    std::map<std::string, std::vector<std::string>> places;
};

Watcher::Target::Check balancer_check() {
    return {"octavia", {{"kind", "octavia"}, {"source", "s"}, {"id", "lb"}, {"interval", "10s"}, {"rise", 1}, {"fall", 1}}, {}};
}
Watcher::Target::Check push_check(std::string name) {
    return {std::move(name), {{"kind", "push"}, {"interval", "1s"}, {"rise", 1}, {"fall", 1}, {"ttl", "1m"}}, {}};
}

} // namespace

CO_TEST(HealthWatcher, ARegionalLoadBalancerIsAsItsApiSays) {
    Bench bench(loop);
    auto& lb = bench.sources.told->readings["lb"];
    lb = {.outcome = health::Outcome::ok, .text = "ONLINE", .addresses = {"192.0.2.5", "2001:db8::5"}};
    bench.watcher.watch("m", {.checks = {balancer_check()}});
    co_await bench.pass(12s);
    EXPECT_EQ(bench.signals["m"].standing, Health::up);
    EXPECT_EQ(bench.places["m"], (std::vector<std::string>{"192.0.2.5", "2001:db8::5"}));
    lb = {.outcome = health::Outcome::failed, .text = "ERROR", .addresses = {"192.0.2.5"}};
    co_await bench.pass(12s);
    EXPECT_EQ(bench.signals["m"].standing, Health::down);
    EXPECT_EQ(bench.signals["m"].cause, "driver");
    EXPECT_THAT(bench.signals["m"].words, HasSubstr("ERROR"));
    bench.sources.told->away = true; // no evidence: it stays
    lb.outcome = health::Outcome::ok;
    co_await bench.pass(30s);
    EXPECT_EQ(bench.signals["m"].standing, Health::down);
    bench.sources.told->away = false;
    co_await bench.pass(12s);
    EXPECT_EQ(bench.signals["m"].standing, Health::up);
    lb = {.outcome = health::Outcome::ok, .text = "DRAINING", .share = 0.5, .drains = true, .addresses = {"192.0.2.5"}};
    co_await bench.pass(12s);
    EXPECT_TRUE(bench.signals["m"].drains);
    EXPECT_EQ(bench.signals["m"].share, 0.5);
    co_await bench.group.stop();
}

CO_TEST(HealthWatcher, WhoCannotBeAskedIsNamedWhileWhatItLastSaidStands) {
    Bench bench(loop);
    auto& lb = bench.sources.told->readings["lb"];
    lb = {.outcome = health::Outcome::ok, .text = "ONLINE", .addresses = {"192.0.2.5"}};
    bench.watcher.watch("m", {.checks = {balancer_check()}});
    co_await bench.pass(12s);
    EXPECT_FALSE(bench.signals["m"].doubt);
    bench.sources.told->away = true;
    co_await bench.pass(12s);
    EXPECT_FALSE(bench.signals["m"].doubt) << "once is nothing";
    co_await bench.pass(40s);
    EXPECT_EQ(bench.signals["m"].standing, Health::up);
    CO_ASSERT(bench.signals["m"].doubt.has_value());
    EXPECT_EQ(bench.signals["m"].doubt->cause, "source_silent");
    EXPECT_THAT(bench.signals["m"].doubt->words, HasSubstr("what it last said stands"));
    EXPECT_THAT(bench.signals["m"].words, HasSubstr("cannot be asked: no connection"));
    bench.sources.told->because = "no answer";
    co_await bench.pass(12s);
    EXPECT_THAT(bench.signals["m"].words, HasSubstr("cannot be asked: no answer"));
    bench.sources.told->away = false;
    co_await bench.pass(12s);
    EXPECT_FALSE(bench.signals["m"].doubt);
    EXPECT_EQ(bench.signals["m"].words, "");
    lb.outcome = health::Outcome::failed;
    co_await bench.pass(12s);
    bench.sources.told->away = true;
    co_await bench.pass(60s);
    EXPECT_EQ(bench.signals["m"].standing, Health::down);
    EXPECT_FALSE(bench.signals["m"].doubt) << "nothing is held back: it stays down";
    EXPECT_THAT(bench.signals["m"].words, HasSubstr("cannot be asked"));
    co_await bench.group.stop();
}

CO_TEST(HealthWatcher, AMetricsServerThatCannotBeAskedIsNamed) {
    Bench bench(loop);
    bench.sources.told->readings["192.0.2.1:80"] = {.outcome = health::Outcome::ok, .text = "3"};
    Addresses address;
    std::ignore = address.add("192.0.2.1");
    const Watcher::Target::Check load{
        "load", {{"kind", "prometheus"}, {"source", "s"}, {"query", "up"}, {"interval", "10s"}, {"rise", 1}, {"fall", 1}}, {}};
    bench.watcher.watch("m", {.addresses = address, .port = 80, .checks = {load, push_check("own")}});
    bench.watcher.watch("same-place", {.addresses = address, .port = 80, .checks = {load}});
    bench.watcher.board().told(board_key("m", "own"), health::Outcome::ok, "", 1h);
    co_await bench.pass(12s);
    EXPECT_EQ(bench.signals["m"].standing, Health::up);
    bench.sources.told->away = true;
    co_await bench.pass(50s);
    for (const auto* member : {"m", "same-place"}) {
        EXPECT_EQ(bench.signals[member].standing, Health::up) << member;
        CO_ASSERT(bench.signals[member].doubt.has_value());
        EXPECT_EQ(bench.signals[member].doubt->cause, "source_silent") << member;
        EXPECT_THAT(bench.signals[member].words, HasSubstr("cannot be asked: no connection; what it last said stands")) << member;
    }
    bench.sources.told->away = false;
    co_await bench.pass(12s);
    EXPECT_FALSE(bench.signals["m"].doubt);
    EXPECT_FALSE(bench.signals["same-place"].doubt);
    EXPECT_EQ(bench.signals["m"].words, "");
    co_await bench.group.stop();
}

CO_TEST(HealthWatcher, WhereNothingThereWatchesItOurOwnLookDecides) {
    Bench bench(loop);
    auto& lb = bench.sources.told->readings["lb"];
    lb = {.outcome = health::Outcome::failed, .text = "ERROR", .addresses = {"192.0.2.5"}};
    bench.watcher.watch("m", {.checks = {balancer_check(), push_check("own")}});
    bench.watcher.board().told(board_key("m", "own"), health::Outcome::ok, "", 1h);
    co_await bench.pass(12s);
    EXPECT_EQ(bench.signals["m"].standing, Health::down);
    lb = {.outcome = health::Outcome::local_error, .text = "NO_MONITOR", .addresses = {"192.0.2.5"}};
    co_await bench.pass(12s);
    EXPECT_EQ(bench.signals["m"].standing, Health::up);
    bench.watcher.watch("m", {.checks = {balancer_check()}}); // nobody looks
    EXPECT_EQ(bench.signals["m"].standing, Health::unknown);
    EXPECT_EQ(bench.signals["m"].words, "NO_MONITOR");
    co_await bench.group.stop();
}

CO_TEST(HealthWatcher, WhatIsSaidHoldsForItsTime) {
    Bench bench(loop);
    Addresses address;
    std::ignore = address.add("192.0.2.1");
    bench.watcher.watch("m", {.addresses = address, .checks = {push_check("said")}});
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].standing, Health::unknown);
    bench.watcher.board().told(board_key("m", "said"), health::Outcome::warning, "disk nearly full", 20s);
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].standing, Health::degraded);
    EXPECT_EQ(bench.signals["m"].cause, "push");
    bench.watcher.board().told(board_key("m", "said"), health::Outcome::ok, "", 20s);
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].standing, Health::up);
    co_await bench.pass(20s);
    EXPECT_EQ(bench.signals["m"].standing, Health::down);
    co_await bench.group.stop();
}

CO_TEST(HealthWatcher, SomeOfManyAreEnough) {
    Bench bench(loop);
    Addresses address;
    std::ignore = address.add("192.0.2.1");
    Watcher::Target::Check two_of_three{"most", {{"kind", "calculated"}, {"rule", "at-least"}, {"need", 2}}, {}};
    for (const auto* name : {"a", "b", "c"}) two_of_three.parts.push_back(push_check(name));
    bench.watcher.watch("m", {.addresses = address, .checks = {two_of_three}});
    const auto say = [&](const char* monitor, bool good) {
        bench.watcher.board().told(board_key("m", monitor), good ? health::Outcome::ok : health::Outcome::failed, "", 1h);
    };
    say("a", true);
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].standing, Health::unknown); // it hangs on those that nobody knows
    say("b", true);
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].standing, Health::up);
    say("c", false); // a part that fails does not count by itself
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].standing, Health::up);
    say("a", false);
    co_await bench.pass(3s);
    EXPECT_EQ(bench.signals["m"].standing, Health::down);
    EXPECT_EQ(bench.signals["m"].words, "most: 1 of 3 up, need 2");
    co_await bench.group.stop();
}

} // namespace orrery::gslb
