#include "core/testing.h"
#include "core/text.h"
#include "gslb/controller.h"
#include "gslb/plant_for_tests.h"
#include "gslb/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::furnish;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Plant;

const auto& carla = testing::carla;

} // namespace

CO_TEST(GslbController, NamesAnswerAsTheirMembersAre) {
    Plant plant(loop);
    CO_ASSERT_OK(co_await furnish(plant));
    co_await plant.settle();
    EXPECT_THAT(plant.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.1", "192.0.2.2"));
    EXPECT_EQ(plant.watcher.watched.at("us-1").addresses.texts(), std::vector<std::string>{"192.0.2.21"});
    EXPECT_EQ(plant.watcher.watched.at("us-1").port, 8080);
    EXPECT_EQ(plant.controller.engine().member("us-1")->site, "fra");
    EXPECT_EQ(plant.controller.engine().member("us-1")->rack, "r7");
    plant.watcher.say("eu-1", Health::down, "web: refused");
    co_await plant.settle();
    EXPECT_THAT(plant.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.2"));
    plant.watcher.say("eu-2", Health::down, "web: refused");
    co_await plant.settle();
    EXPECT_THAT(plant.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.21"));
    auto status = plant.status("loadbalancers", "www");
    EXPECT_EQ(text_at(status, "state"), "failover");
    EXPECT_EQ(text_at(status, "pool"), "us");
    EXPECT_THAT(texts_at(status, "because"), Contains("pool eu is not usable: 0 of 2 healthy, needs 1"));
    EXPECT_EQ(text_at(object_at(status, "failover_time"), "detection"), "7s");
    EXPECT_EQ(text_at(plant.status("pools", "eu"), "state"), "unusable");
    EXPECT_EQ(text_at(plant.status("members", "eu-1"), "state"), "down");
    EXPECT_EQ(text_at(plant.status("members", "eu-1"), "verdict"), "down");
    const auto decisions = plant.decisions("www");
    CO_ASSERT(decisions.size() >= 3);
    EXPECT_EQ(text_at(decisions.back(), "cause"), "probe");
    EXPECT_EQ(count_at(decisions.back(), "seq", 0), decisions.size());
    co_await plant.group.stop();
}

CO_TEST(GslbController, ANodeThatMovesTakesItsMembersAlong) {
    Plant plant(loop);
    CO_ASSERT_OK(co_await furnish(plant));
    CO_ASSERT_OK(co_await plant.put("loadbalancers", "us", "{fqdn: us.gslb.test, pools: [{pool: us}]}"));
    co_await plant.settle();
    CO_ASSERT_OK(co_await plant.put("nodes", "n1", "address: 192.0.2.99"));
    co_await plant.settle();
    EXPECT_THAT(plant.sink.addresses("us.gslb.test"), ElementsAre("192.0.2.99"));
    CO_ASSERT_OK(co_await plant.put("nodes", "n1", "address: somewhere.example"));
    co_await plant.settle();
    EXPECT_THAT(plant.sink.addresses("us.gslb.test"), IsEmpty());
    EXPECT_THAT(text_at(plant.status("members", "us-1"), "why"), HasSubstr("has no IP address but \"somewhere.example\""));
    CO_ASSERT_OK(co_await plant.house.resources->remove(carla, plant.house.kind("loadbalancers"), "us", {}));
    co_await plant.settle();
    EXPECT_FALSE(plant.sink.names.contains("us.gslb.test"));
    EXPECT_TRUE(plant.sink.names.contains("www.gslb.test"));
    co_await plant.group.stop();
}

CO_TEST(GslbController, APersonsWordHoldsUntilItsTimeIsOver) {
    Plant plant(loop);
    CO_ASSERT_OK(co_await furnish(plant));
    co_await plant.settle();
    const auto until = to_rfc3339(plant.house.clock.wall() + 10min);
    CO_ASSERT_OK(co_await plant.put("members", "eu-1",
                                    "{pool: eu, addresses: [192.0.2.1], override: {state: drain, reason: upgrade, until: \"" +
                                        until + "\"}}"));
    co_await plant.settle();
    EXPECT_THAT(plant.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.2"));
    EXPECT_EQ(text_at(plant.decisions("www").back(), "cause"), "admin");
    EXPECT_EQ(text_at(plant.decisions("www").back(), "actor"), "carla");
    EXPECT_EQ(text_at(plant.decisions("www").back(), "reason"), "upgrade");
    co_await plant.settle(11min);
    co_await plant.settle();
    EXPECT_THAT(plant.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.1", "192.0.2.2"));
    EXPECT_EQ(text_at(plant.decisions("www").back(), "cause"), "time");
    co_await plant.group.stop();
}

CO_TEST(GslbController, MaintenanceOfANodeDrainsItsMembers) {
    Plant plant(loop);
    CO_ASSERT_OK(co_await furnish(plant));
    CO_ASSERT_OK(co_await plant.put("members", "us-2", "{pool: us, addresses: [192.0.2.10]}"));
    CO_ASSERT_OK(co_await plant.put("loadbalancers", "us", "{fqdn: us.gslb.test, pools: [{pool: us}]}"));
    co_await plant.settle();
    EXPECT_THAT(plant.sink.addresses("us.gslb.test"), ElementsAre("192.0.2.21", "192.0.2.10"));
    CO_ASSERT_OK(co_await plant.put("nodes", "n1", "{address: 192.0.2.21, maintenance: {enabled: true, reason: new disk}}"));
    co_await plant.settle();
    EXPECT_THAT(plant.sink.addresses("us.gslb.test"), ElementsAre("192.0.2.10"));
    EXPECT_EQ(text_at(plant.decisions("us").back(), "reason"), "Node n1 is in maintenance: new disk");
    EXPECT_EQ(text_at(plant.status("members", "us-1"), "state"), "drained");
    const auto drained = plant.status("members", "us-1");
    EXPECT_EQ(time_at(drained, "forgotten_at").value() - time_at(drained, "since").value(), 30s) << "the longest TTL";
    CO_ASSERT_OK(co_await plant.put("nodes", "n1", "{address: 192.0.2.21}"));
    co_await plant.settle();
    EXPECT_THAT(plant.sink.addresses("us.gslb.test"), ElementsAre("192.0.2.21", "192.0.2.10"));
    EXPECT_FALSE(plant.status("members", "us-1").contains("forgotten_at"));
    co_await plant.group.stop();
}

CO_TEST(GslbController, ARestartChangesNothing) {
    auto shared = std::make_shared<store::MemoryStore::Shared>();
    std::size_t decisions = 0;
    {
        Plant plant(loop, shared);
        CO_ASSERT_OK(co_await furnish(plant));
        co_await plant.settle();
        for (const auto* member : {"eu-1", "eu-2", "us-1"}) plant.watcher.say(member, Health::up);
        plant.watcher.say("eu-1", Health::down, "web: refused");
        co_await plant.settle();
        EXPECT_THAT(plant.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.2"));
        decisions = plant.decisions("www").size();
        co_await plant.group.stop();
    }
    Plant plant(loop, shared);
    EXPECT_EQ(plant.watcher.watched.at("eu-1").remembered, Health::down);
    co_await plant.settle();
    EXPECT_THAT(plant.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.2")) << "known at once, from what was stored";
    EXPECT_EQ(plant.decisions("www").size(), decisions) << "nothing was decided that was not decided before";
    plant.watcher.say("eu-1", Health::up);
    co_await plant.settle();
    EXPECT_EQ(plant.decisions("www").size(), decisions + 1);
    EXPECT_EQ(count_at(plant.decisions("www").back(), "seq", 0), decisions + 1);
    co_await plant.group.stop();
}

CO_TEST(GslbController, WhyAnswersForNowAndForThen) {
    Plant plant(loop);
    CO_ASSERT_OK(co_await furnish(plant));
    CO_ASSERT_OK(co_await plant.put("loadbalancers", "www",
                                    "{fqdn: www.gslb.test, pools: [{pool: eu}, {pool: us}], steering: topology, "
                                    "topology: [{name: office, prefixes: [198.51.100.0/24], pools: [us]}]}"));
    co_await plant.settle();
    const auto before = plant.house.clock.wall();
    co_await plant.settle(1s);
    plant.watcher.say("us-1", Health::down, "web: refused");
    co_await plant.settle(1s);
    const auto client = boost::asio::ip::make_address("198.51.100.7");
    auto now = plant.controller.why("www", client, std::nullopt);
    CO_ASSERT_OK(now);
    EXPECT_EQ(texts_at(object_at(*now, "answer"), "pools"), std::vector<std::string>{"eu"});
    EXPECT_EQ(text_at(object_at(*now, "client"), "class"), "office");
    EXPECT_THAT(texts_at(*now, "because"), Contains("us-1 in us: web: refused"));
    auto then = plant.controller.why("WWW.gslb.test.", client, before);
    CO_ASSERT_OK(then);
    EXPECT_EQ(texts_at(object_at(*then, "answer"), "pools"), std::vector<std::string>{"us"});
    EXPECT_TRUE(flag_at(*then, "replayed_exactly"));
    EXPECT_FALSE(plant.controller.why("www", client, before - 24h).ok());
    EXPECT_FALSE(plant.controller.why("nobody", client, std::nullopt).ok());
    co_await plant.group.stop();
}

CO_TEST(GslbController, OldRecordsGoButNeverTheLast) {
    Plant plant(loop);
    CO_ASSERT_OK(co_await furnish(plant));
    co_await plant.settle();
    for (int round = 0; round < 5; ++round) {
        plant.watcher.say("eu-1", round % 2 == 0 ? Health::down : Health::up);
        co_await plant.settle(1s);
    }
    EXPECT_GE(plant.decisions("www").size(), 5U);
    const auto last = text_at(plant.decisions("www").back(), "at");
    co_await plant.settle(24h * 91);
    co_await plant.settle(1h);
    const auto left = plant.decisions("www");
    CO_ASSERT(left.size() == 1);
    EXPECT_EQ(text_at(left[0], "at"), last);
    co_await plant.group.stop();
}

CO_TEST(GslbController, AStepOfTheClockReleasesNothing) {
    for (const auto step : {Duration(1h), Duration(-1h)}) {
        Plant plant(loop);
        CO_ASSERT_OK(co_await furnish(plant));
        CO_ASSERT_OK(co_await plant.put("pools", "eu", "{site: ams, monitors: [web], guard: {most: 1, window: 60s}}"));
        co_await plant.settle();
        for (const auto* member : {"eu-1", "eu-2", "us-1"}) plant.watcher.say(member, Health::up);
        co_await plant.settle();
        for (const auto* member : {"eu-1", "eu-2"}) plant.watcher.say(member, Health::down, "web: refused");
        co_await plant.settle();
        EXPECT_THAT(plant.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.2")) << "one goes, the other is held";
        const auto records = plant.decisions("www").size();
        plant.house.clock.step_wall(step);
        co_await plant.settle(1s);
        plant.watcher.say("us-1", Health::up, "another word");
        co_await plant.settle(1s);
        EXPECT_THAT(plant.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.2")) << "no minute has passed";
        EXPECT_EQ(plant.decisions("www").size(), records);
        const auto stored = PoolMemory::from(object_at(plant.status("pools", "eu"), "memory")).recently;
        CO_ASSERT(stored.size() == 1);
        EXPECT_LT(std::chrono::abs(stored[0] - plant.house.clock.wall()), 10s) << "also for who starts by this clock";
        co_await plant.settle(61s);
        co_await plant.settle(1s);
        EXPECT_THAT(plant.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.21")) << "a minute has passed, and no hour";
        co_await plant.group.stop();
    }
}

CO_TEST(GslbController, WhomAGuardLetsGoIsTheSameAtEveryServerAndAfterAllWereKilled) {
    auto shared = std::make_shared<store::MemoryStore::Shared>();
    const auto fails = [](Plant& plant, std::vector<std::string> members) -> asio::awaitable<void> {
        for (const auto& member : members) {
            plant.watcher.say(member, Health::down, "web: refused");
            co_await plant.settle();
        }
    };
    std::size_t decisions = 0;
    {
        Plant leader(loop, shared);
        CO_ASSERT_OK(co_await furnish(leader));
        CO_ASSERT_OK(co_await leader.put("pools", "eu", "{site: ams, monitors: [web], guard: {most: 1, window: 10m}}"));
        co_await leader.settle();
        Plant other(loop, shared, "b");
        co_await other.settle();
        for (const auto* member : {"eu-1", "eu-2", "us-1"})
            for (auto* plant : {&leader, &other}) plant->watcher.say(member, Health::up);
        co_await leader.settle();
        co_await other.settle();
        co_await fails(leader, {"eu-2", "eu-1"});
        co_await fails(other, {"eu-1", "eu-2"}); // it looks at other instants
        EXPECT_THAT(leader.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.1"));
        CO_ASSERT_OK(co_await other.house.store.catch_up(carla));
        co_await other.settle();
        EXPECT_THAT(other.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.1")) << "as the one that leads";
        other.watcher.say("eu-1", Health::down, "web: timeout_connect");
        co_await other.settle();
        EXPECT_THAT(other.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.1")) << "and so it stays";
        decisions = leader.decisions("www").size();
        EXPECT_GE(other.controller.engine().decisions("www"), static_cast<std::int64_t>(decisions))
            << "who leads next goes on counting";
        co_await other.group.stop();
        co_await leader.group.stop();
    }
    Plant plant(loop, shared);
    co_await plant.settle();
    EXPECT_THAT(plant.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.1"));
    co_await fails(plant, {"eu-1", "eu-2"});
    EXPECT_THAT(plant.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.1"));
    EXPECT_EQ(plant.decisions("www").size(), decisions);
    co_await plant.group.stop();
}

CO_TEST(GslbController, AStepOfTheClockIsNotCountedTwiceWhereALeaderIsFollowed) {
    for (const auto step : {Duration(1h), Duration(-2h)}) {
        auto shared = std::make_shared<store::MemoryStore::Shared>();
        Plant leader(loop, shared);
        CO_ASSERT_OK(co_await furnish(leader));
        CO_ASSERT_OK(co_await leader.put("pools", "eu", "{site: ams, monitors: [web], guard: {most: 1, window: 10m}}"));
        co_await leader.settle();
        Plant other(loop, shared, "b");
        co_await other.settle();
        for (auto* plant : {&leader, &other}) {
            for (const auto* member : {"eu-1", "eu-2", "us-1"}) plant->watcher.say(member, Health::up);
            co_await plant->settle();
            for (const auto* member : {"eu-1", "eu-2"}) plant->watcher.say(member, Health::down, "web: refused");
            co_await plant->settle();
        }
        CO_ASSERT_OK(co_await other.house.store.catch_up(carla));
        co_await other.settle();
        EXPECT_THAT(other.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.2"));
        leader.house.clock.step_wall(step);
        other.house.clock.step_wall(step);
        co_await leader.settle(2s); // the leader sees it first, and stores what is right by the clock as it is now
        CO_ASSERT_OK(co_await other.house.store.catch_up(carla));
        other.watcher.say("us-1", Health::up, "another word");
        co_await other.settle(2s);
        EXPECT_THAT(other.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.2")) << "no ten minutes have passed";
        co_await other.group.stop();
        co_await leader.group.stop();
    }
}

CO_TEST(GslbController, WhoIsNotBelievedLeavesARecord) {
    Plant plant(loop);
    CO_ASSERT_OK(co_await furnish(plant));
    co_await plant.settle();
    for (const auto* member : {"eu-1", "eu-2", "us-1"}) plant.watcher.say(member, Health::up);
    co_await plant.settle();
    const auto before = plant.decisions("www").size();
    for (int again = 0; again < 3; ++again) {
        Signal signal{.standing = Health::up, .monitored = true};
        signal.doubt = Doubt{"quorum_hold", "web: ams says refused; 1 of 3 down, need 2"};
        signal.words = "look " + std::to_string(again);
        plant.watcher.say("eu-1", std::move(signal));
        co_await plant.settle();
    }
    EXPECT_THAT(plant.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.1", "192.0.2.2"));
    const auto records = plant.decisions("www");
    CO_ASSERT(records.size() == before + 1);
    EXPECT_EQ(text_at(records.back(), "cause"), "quorum_hold");
    EXPECT_FALSE(flag_at(records.back(), "changed"));
    EXPECT_EQ(text_at(array_at(records.back(), "withheld").at(0).get_object(), "about"), "eu-1");
    co_await plant.group.stop();
}

} // namespace orrery::gslb
