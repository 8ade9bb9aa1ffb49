#include "core/testing.h"
#include "core/text.h"
#include "gslb/compile.h"
#include "gslb/fake_publisher.h"
#include "gslb/kinds.h"
#include "gslb/publishing.h"
#include "gslb/read.h"
#include "gslb/testing.h"
#include "resource/testing.h"

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const Context emil = Context::make("emil");

class OneFake final : public PublisherMaker {
public:
    Result<std::shared_ptr<Publisher>> make(const std::string&, const json::object& spec) override {
        ++made;
        if (!trouble.empty()) return Error{Code::not_found, trouble};
        last = spec;
        return std::shared_ptr<Publisher>(service);
    }
    std::shared_ptr<FakePublisher> service = std::make_shared<FakePublisher>();
    std::string trouble;
    json::object last;
    int made = 0;
};

std::vector<resource::Kind> publisher_kinds() {
    std::vector<resource::Kind> out;
    out.push_back(publisher_kind());
    return out;
}

struct Press {
    explicit Press(asio::io_context& loop)
        : house(loop.get_executor(), std::make_shared<store::MemoryStore::Shared>(), publisher_kinds()),
          leadership(loop.get_executor(), house.store, {.server = "a", .alone = true, .clock = &house.clock}),
          publishing(loop.get_executor(), *house.resources, leadership, house.clock, maker, nullptr),
          group(loop.get_executor()) {
        group.spawn(leadership.run(emil));
        group.spawn(publishing.run(emil));
    }
    Task<resource::Outcome> publisher(std::string name, std::string yaml) {
        auto documents = parse_yaml(yaml);
        auto object = resource::read_object(house.kind("publishers"), name,
                                            json::object{{"kind", "Publisher"}, {"name", name}, {"spec", documents->at(0).value}});
        if (!object.ok()) co_return std::move(object).error();
        co_return co_await house.resources->create(emil, house.kind("publishers"), std::move(*object), {});
    }
    void decided(const std::string& fqdn, int healthy, std::int64_t number) {
        Snapshot snapshot{
            .rule = testing::a_rule({"p"}), .pools = {testing::view(testing::a_pool("p", 1, 2, healthy))}, .time = testing::noon};
        std::vector<NameSink::Change> all;
        all.push_back({fqdn, "gslb.test", nullptr, std::make_shared<const Decision>(decide(snapshot)), number});
        publishing.serve(std::move(all));
    }
    asio::awaitable<void> settle(Duration time = 2s) {
        for (int round = 0; round < 20; ++round) {
            house.clock.advance(time / 20);
            for (int i = 0; i < 40; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        }
    }
    json::object status(std::string_view name) { return house.resources->get(house.kind("publishers"), name)->status; }
    json::object standing(const std::string& fqdn) const {
        const auto all = publishing.standing(fqdn);
        return all.empty() ? json::object() : all.at(0).as_object();
    }

    resource::testing::House house;
    store::Leadership leadership;
    OneFake maker;
    Publishing publishing;
    TaskGroup group;
};

} // namespace

CO_TEST(GslbPublishing, DecisionsGoToThePublishersOfTheirZone) {
    Press press(loop);
    co_await press.settle();
    CO_ASSERT_OK(co_await press.publisher("pdns", "{driver: externaldns, url: \"http://127.0.0.1:1\", zones: [GSLB.test]}"));
    press.decided("www.gslb.test", 2, 1);
    co_await press.settle();
    EXPECT_EQ(text_of(press.maker.service->zone["www.gslb.test."]), "A 10.1.0.1 10.1.0.2 (ttl 30)");
    EXPECT_EQ(text_at(press.standing("www.gslb.test"), "state"), "IN_SYNC");
    EXPECT_EQ(press.publishing.slowest_publication("www.gslb.test"), 100ms) << "up to a tenth of a second";
    EXPECT_EQ(press.publishing.slowest_publication("other.gslb.test"), 0ms);
    EXPECT_EQ(text_at(press.status("pdns"), "state"), "IN_SYNC");
    EXPECT_EQ(count_at(press.status("pdns"), "in_sync", 0), 1U);
    press.decided("www.gslb.test", 1, 2);
    co_await press.settle();
    EXPECT_EQ(text_of(press.maker.service->zone["www.gslb.test."]), "A 10.1.0.1 (ttl 30)");
    std::vector<NameSink::Change> gone;
    gone.push_back({"www.gslb.test", "gslb.test", nullptr, nullptr});
    press.publishing.serve(std::move(gone));
    co_await press.settle();
    EXPECT_EQ(text_of(press.maker.service->zone["www.gslb.test."]), "nothing");
    co_await press.group.stop();
}

CO_TEST(GslbPublishing, APublisherThatComesLaterGetsWhatWasDecidedAndOneThatGoesLeavesIt) {
    Press press(loop);
    co_await press.settle();
    press.decided("www.gslb.test", 2, 1);
    CO_ASSERT_OK(co_await press.publisher("pdns", "{driver: externaldns, url: \"http://127.0.0.1:1\", zones: [gslb.test]}"));
    co_await press.settle();
    EXPECT_EQ(text_of(press.maker.service->zone["www.gslb.test."]), "A 10.1.0.1 10.1.0.2 (ttl 30)");
    CO_ASSERT_OK(co_await press.house.resources->remove(emil, press.house.kind("publishers"), "pdns", {}));
    press.decided("www.gslb.test", 1, 2);
    co_await press.settle();
    EXPECT_EQ(text_of(press.maker.service->zone["www.gslb.test."]), "A 10.1.0.1 10.1.0.2 (ttl 30)");
    EXPECT_TRUE(press.publishing.standing("www.gslb.test").empty());
    co_await press.group.stop();
}

CO_TEST(GslbPublishing, WhatCannotBeMadeIsSaidAndTriedAgainWithAnotherSecret) {
    Press press(loop);
    co_await press.settle();
    CO_ASSERT_OK(
        co_await press.house.resources->create(emil, press.house.secrets(), resource::testing::a_secret("s", {{"x", "y"}}), {}));
    press.maker.trouble = "Secret s has no value \"key\"";
    CO_ASSERT_OK(
        co_await press.publisher("pdns", "{driver: powerdns, url: \"http://127.0.0.1:1\", credentials: s, zones: [gslb.test]}"));
    co_await press.settle();
    EXPECT_EQ(text_at(press.status("pdns"), "state"), "ERROR");
    EXPECT_THAT(text_at(press.status("pdns"), "why"), HasSubstr("has no value"));
    press.maker.trouble.clear();
    CO_ASSERT_OK(
        co_await press.house.resources->replace(emil, press.house.secrets(), resource::testing::a_secret("s", {{"key", "z"}}), {}));
    co_await press.settle();
    EXPECT_EQ(text_at(press.status("pdns"), "state"), "idle");
    co_await press.group.stop();
}

CO_TEST(GslbPublishing, APublisherSaysWhatItLacksByName) {
    Press press(loop);
    for (const auto& [yaml, expected] : std::vector<std::pair<std::string, std::string>>{
             {"{driver: powerdns, zones: [a.test]}", "spec.url: powerdns needs it"},
             {"{driver: rfc2136, zones: [a.test]}", "spec.server: rfc2136 needs it"},
             {"{driver: externaldns, url: \"http://x\", server: a, zones: [a.test]}", "spec.server: means nothing to externaldns"},
             {"{driver: externaldns, url: \"http://x\", zones: [a.test, A.test]}", "spec.zones[1]: is listed twice"},
             {"{driver: externaldns, url: \"http://x\", zones: [a.test], owner: \"a b\"}", "spec.owner"}}) {
        const auto refused = co_await press.publisher("p", yaml);
        EXPECT_FALSE(refused.ok()) << yaml;
        if (!refused.ok()) EXPECT_THAT(refused.error().text(), HasSubstr(expected));
    }
    co_await press.group.stop();
}

TEST(GslbDesired, IsWhatAnybodyGets) {
    auto rule = testing::a_rule({"p"}, Steering::failover, Answers::weighted);
    rule.all_down = AllDown::nodata;
    Snapshot snapshot{.rule = rule, .pools = {testing::view(testing::a_pool("p", 1, 3, 2))}, .time = testing::noon};
    EXPECT_EQ(text_of(desired_of(decide(snapshot), 7).sets), "A 10.1.0.1 10.1.0.2 (ttl 30)")
        << "one at a time there is all of them here";
    EXPECT_EQ(desired_of(decide(snapshot), 7).decision, 7U);
    snapshot.rule.answers = Answers::sticky_by_name;
    snapshot.rule.max_answers = 1;
    const auto chosen = select(decide(snapshot), {}, std::nullopt, {}).members.at(0)->addresses.texts().at(0);
    EXPECT_EQ(text_of(desired_of(decide(snapshot), 7).sets), "A " + chosen + " (ttl 30)") << "as the server here answers";
    snapshot.rule.answers = Answers::weighted;
    snapshot.pools = {testing::view(testing::a_pool("p", 1, 3, 0))};
    EXPECT_TRUE(desired_of(decide(snapshot), 8).empty_is_meant);
    snapshot.rule.all_down = AllDown::servfail;
    EXPECT_FALSE(desired_of(decide(snapshot), 9).empty_is_meant);
    snapshot.rule.all_down = AllDown::fallback;
    snapshot.rule.fallback_alias = "sorry.example";
    EXPECT_THAT(text_of(desired_of(decide(snapshot), 9).sets), HasSubstr("CNAME sorry.example."));
}

} // namespace orrery::gslb
