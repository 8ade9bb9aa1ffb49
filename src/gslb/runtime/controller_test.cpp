#include "core/json_fields.h"
#include "core/test_fixture.h"
#include "core/text.h"
#include "gslb/runtime/controller.h"
#include "gslb/runtime/gslb_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using testing::create_sample_site;
using ::testing::ElementsAre;
using testing::GslbFixture;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const auto& carla = testing::carla;

} // namespace

CO_TEST(GslbController, AnswersFollowTheHealthOfTheMembers) {
    GslbFixture fixture(loop);
    CO_ASSERT_OK(co_await create_sample_site(fixture));
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.1", "192.0.2.2"));
    EXPECT_EQ(fixture.watcher.watched.at("us-1").addresses.texts(), std::vector<std::string>{"192.0.2.21"});
    EXPECT_EQ(fixture.watcher.watched.at("us-1").port, 8080);
    EXPECT_EQ(fixture.controller.engine().member("us-1")->site, "fra");
    EXPECT_EQ(fixture.controller.engine().member("us-1")->rack, "r7");
    fixture.watcher.set_health("eu-1", HealthState::down, "web: refused");
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.2"));
    fixture.watcher.set_health("eu-2", HealthState::down, "web: refused");
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.21"));
    auto status = fixture.status("loadbalancers", "www");
    EXPECT_EQ(text_at(status, "state"), "failover");
    EXPECT_EQ(text_at(status, "pool"), "us");
    EXPECT_THAT(texts_at(status, "messages"), Contains("pool eu is not usable: 0 of 2 healthy, needs 1"));
    EXPECT_EQ(text_at(object_at(status, "failover_time"), "detection"), "7s");
    EXPECT_EQ(text_at(fixture.status("pools", "eu"), "state"), "unusable");
    EXPECT_EQ(text_at(fixture.status("members", "eu-1"), "state"), "down");
    EXPECT_EQ(text_at(fixture.status("members", "eu-1"), "verdict"), "down");
    const auto decisions = fixture.decisions("www");
    CO_ASSERT(decisions.size() >= 3);
    EXPECT_EQ(text_at(decisions.back(), "cause"), "probe");
    EXPECT_EQ(count_at(decisions.back(), "seq", 0), decisions.size());
    co_await fixture.group.stop();
}

CO_TEST(GslbController, ContinuesAfterAStopAndARestart) {
    GslbFixture fixture(loop);
    CO_ASSERT_OK(co_await create_sample_site(fixture));
    co_await fixture.run_until_idle();
    co_await fixture.group.stop();
    fixture.watcher.set_health("eu-1", HealthState::down, "web: refused"); // while it is down
    TaskGroup again(loop.get_executor());
    again.spawn(fixture.leadership.run(carla));
    again.spawn(fixture.controller.run(carla));
    again.spawn(fixture.geo.run(carla));
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.2"));
    fixture.watcher.set_health("eu-2", HealthState::down, "web: refused");
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.21"));
    EXPECT_EQ(text_at(fixture.status("loadbalancers", "www"), "state"), "failover");
    co_await again.stop();
}

CO_TEST(GslbController, MembersFollowTheAddressOfTheirNode) {
    GslbFixture fixture(loop);
    CO_ASSERT_OK(co_await create_sample_site(fixture));
    CO_ASSERT_OK(co_await fixture.put("loadbalancers", "us", "{fqdn: us.gslb.test, pools: [{pool: us}]}"));
    co_await fixture.run_until_idle();
    CO_ASSERT_OK(co_await fixture.put("nodes", "n1", "address: 192.0.2.99"));
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("us.gslb.test"), ElementsAre("192.0.2.99"));
    CO_ASSERT_OK(co_await fixture.put("nodes", "n1", "address: somewhere.example"));
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("us.gslb.test"), IsEmpty());
    EXPECT_THAT(text_at(fixture.status("members", "us-1"), "message"), HasSubstr("is not an IP address: \"somewhere.example\""));
    CO_ASSERT_OK(co_await fixture.base.resources->remove(carla, fixture.base.kind("loadbalancers"), "us", {}));
    co_await fixture.run_until_idle();
    EXPECT_FALSE(fixture.publisher.names.contains("us.gslb.test"));
    EXPECT_TRUE(fixture.publisher.names.contains("www.gslb.test"));
    co_await fixture.group.stop();
}

CO_TEST(GslbController, AnOverrideAppliesUntilItExpires) {
    GslbFixture fixture(loop);
    CO_ASSERT_OK(co_await create_sample_site(fixture));
    co_await fixture.run_until_idle();
    const auto until = to_rfc3339(fixture.base.clock.wall() + 10min);
    CO_ASSERT_OK(co_await fixture.put("members", "eu-1",
                                      "{pool: eu, addresses: [192.0.2.1], override: {state: drain, reason: upgrade, until: \"" +
                                          until + "\"}}"));
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.2"));
    EXPECT_EQ(text_at(fixture.decisions("www").back(), "cause"), "admin");
    EXPECT_EQ(text_at(fixture.decisions("www").back(), "actor"), "carla");
    EXPECT_EQ(text_at(fixture.decisions("www").back(), "reason"), "upgrade");
    co_await fixture.run_until_idle(11min);
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.1", "192.0.2.2"));
    EXPECT_EQ(text_at(fixture.decisions("www").back(), "cause"), "time");
    co_await fixture.group.stop();
}

CO_TEST(GslbController, MaintenanceOfANodeDrainsItsMembers) {
    GslbFixture fixture(loop);
    CO_ASSERT_OK(co_await create_sample_site(fixture));
    CO_ASSERT_OK(co_await fixture.put("members", "us-2", "{pool: us, addresses: [192.0.2.10]}"));
    CO_ASSERT_OK(co_await fixture.put("loadbalancers", "us", "{fqdn: us.gslb.test, pools: [{pool: us}]}"));
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("us.gslb.test"), ElementsAre("192.0.2.21", "192.0.2.10"));
    CO_ASSERT_OK(co_await fixture.put("nodes", "n1", "{address: 192.0.2.21, maintenance: {enabled: true, reason: new disk}}"));
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("us.gslb.test"), ElementsAre("192.0.2.10"));
    EXPECT_EQ(text_at(fixture.decisions("us").back(), "reason"), "Node n1 is in maintenance: new disk");
    EXPECT_EQ(text_at(fixture.status("members", "us-1"), "state"), "drained");
    const auto drained = fixture.status("members", "us-1");
    EXPECT_EQ(time_at(drained, "drained_at").value() - time_at(drained, "since").value(), 30s) << "the longest TTL";
    CO_ASSERT_OK(co_await fixture.put("nodes", "n1", "{address: 192.0.2.21}"));
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("us.gslb.test"), ElementsAre("192.0.2.21", "192.0.2.10"));
    EXPECT_FALSE(fixture.status("members", "us-1").contains("drained_at"));
    co_await fixture.group.stop();
}

CO_TEST(GslbController, ARestartChangesNothing) {
    auto shared = std::make_shared<store::MemoryStore::Shared>();
    std::size_t decisions = 0;
    {
        GslbFixture fixture(loop, shared);
        CO_ASSERT_OK(co_await create_sample_site(fixture));
        co_await fixture.run_until_idle();
        for (const auto* member : {"eu-1", "eu-2", "us-1"}) fixture.watcher.set_health(member, HealthState::up);
        fixture.watcher.set_health("eu-1", HealthState::down, "web: refused");
        co_await fixture.run_until_idle();
        EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.2"));
        decisions = fixture.decisions("www").size();
        co_await fixture.group.stop();
    }
    GslbFixture fixture(loop, shared);
    EXPECT_EQ(fixture.watcher.watched.at("eu-1").last_known, HealthState::down);
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.2")) << "known at once, from what was stored";
    EXPECT_EQ(fixture.decisions("www").size(), decisions) << "nothing was decided that was not decided before";
    fixture.watcher.set_health("eu-1", HealthState::up);
    co_await fixture.run_until_idle();
    EXPECT_EQ(fixture.decisions("www").size(), decisions + 1);
    EXPECT_EQ(count_at(fixture.decisions("www").back(), "seq", 0), decisions + 1);
    co_await fixture.group.stop();
}

CO_TEST(GslbController, WhyExplainsTheCurrentAndAnEarlierAnswer) {
    GslbFixture fixture(loop);
    CO_ASSERT_OK(co_await create_sample_site(fixture));
    CO_ASSERT_OK(co_await fixture.put("loadbalancers", "www",
                                      "{fqdn: www.gslb.test, pools: [{pool: eu}, {pool: us}], steering: topology, "
                                      "topology: [{name: office, prefixes: [198.51.100.0/24], pools: [us]}]}"));
    co_await fixture.run_until_idle();
    const auto before = fixture.base.clock.wall();
    co_await fixture.run_until_idle(1s);
    fixture.watcher.set_health("us-1", HealthState::down, "web: refused");
    co_await fixture.run_until_idle(1s);
    const auto client = boost::asio::ip::make_address("198.51.100.7");
    auto now = fixture.controller.why("www", client, std::nullopt);
    CO_ASSERT_OK(now);
    EXPECT_EQ(texts_at(object_at(*now, "answer"), "pools"), std::vector<std::string>{"eu"});
    EXPECT_EQ(text_at(object_at(*now, "client"), "class"), "office");
    EXPECT_THAT(texts_at(*now, "messages"), Contains("us-1 in us: web: refused"));
    auto then = fixture.controller.why("WWW.gslb.test.", client, before);
    CO_ASSERT_OK(then);
    EXPECT_EQ(texts_at(object_at(*then, "answer"), "pools"), std::vector<std::string>{"us"});
    EXPECT_TRUE(flag_at(*then, "replayed_exactly"));
    EXPECT_FALSE(fixture.controller.why("www", client, before - 24h).ok());
    EXPECT_FALSE(fixture.controller.why("nobody", client, std::nullopt).ok());
    co_await fixture.group.stop();
}

CO_TEST(GslbController, OldRecordsAreRemovedExceptTheLast) {
    GslbFixture fixture(loop);
    CO_ASSERT_OK(co_await create_sample_site(fixture));
    co_await fixture.run_until_idle();
    for (int round = 0; round < 5; ++round) {
        fixture.watcher.set_health("eu-1", round % 2 == 0 ? HealthState::down : HealthState::up);
        co_await fixture.run_until_idle(1s);
    }
    EXPECT_GE(fixture.decisions("www").size(), 5U);
    const auto last = text_at(fixture.decisions("www").back(), "at");
    co_await fixture.run_until_idle(24h * 91);
    co_await fixture.run_until_idle(1h);
    const auto left = fixture.decisions("www");
    CO_ASSERT(left.size() == 1);
    EXPECT_EQ(text_at(left[0], "at"), last);
    co_await fixture.group.stop();
}

CO_TEST(GslbController, AClockStepReleasesNoHeldMember) {
    for (const auto step : {Duration(1h), Duration(-1h)}) {
        GslbFixture fixture(loop);
        CO_ASSERT_OK(co_await create_sample_site(fixture));
        CO_ASSERT_OK(co_await fixture.put("pools", "eu", "{site: ams, monitors: [web], guard: {max_ejections: 1, window: 60s}}"));
        co_await fixture.run_until_idle();
        for (const auto* member : {"eu-1", "eu-2", "us-1"}) fixture.watcher.set_health(member, HealthState::up);
        co_await fixture.run_until_idle();
        for (const auto* member : {"eu-1", "eu-2"}) fixture.watcher.set_health(member, HealthState::down, "web: refused");
        co_await fixture.run_until_idle();
        EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.2")) << "one goes, the other is held";
        const auto records = fixture.decisions("www").size();
        fixture.base.clock.step_wall(step);
        co_await fixture.run_until_idle(1s);
        fixture.watcher.set_health("us-1", HealthState::up, "another word");
        co_await fixture.run_until_idle(1s);
        EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.2")) << "no minute has passed";
        EXPECT_EQ(fixture.decisions("www").size(), records);
        const auto stored = PoolState::from(object_at(fixture.status("pools", "eu"), "internal_state")).recently;
        CO_ASSERT(stored.size() == 1);
        EXPECT_LT(std::chrono::abs(stored[0] - fixture.base.clock.wall()), 10s) << "also for a server that starts with this clock";
        co_await fixture.run_until_idle(61s);
        co_await fixture.run_until_idle(1s);
        EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.21")) << "a minute has passed, and no hour";
        co_await fixture.group.stop();
    }
}

CO_TEST(GslbController, TheGuardEjectsTheSameMembersOnEveryServerAndAfterAKill) {
    auto shared = std::make_shared<store::MemoryStore::Shared>();
    const auto fails = [](GslbFixture& fixture, std::vector<std::string> members) -> asio::awaitable<void> {
        for (const auto& member : members) {
            fixture.watcher.set_health(member, HealthState::down, "web: refused");
            co_await fixture.run_until_idle();
        }
    };
    std::size_t decisions = 0;
    {
        GslbFixture leader(loop, shared);
        CO_ASSERT_OK(co_await create_sample_site(leader));
        CO_ASSERT_OK(co_await leader.put("pools", "eu", "{site: ams, monitors: [web], guard: {max_ejections: 1, window: 10m}}"));
        co_await leader.run_until_idle();
        GslbFixture other(loop, shared, "b");
        co_await other.run_until_idle();
        for (const auto* member : {"eu-1", "eu-2", "us-1"})
            for (auto* fixture : {&leader, &other}) fixture->watcher.set_health(member, HealthState::up);
        co_await leader.run_until_idle();
        co_await other.run_until_idle();
        co_await fails(leader, {"eu-2", "eu-1"});
        co_await fails(other, {"eu-1", "eu-2"}); // it probes at other times
        EXPECT_THAT(leader.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.1"));
        CO_ASSERT_OK(co_await other.base.store.catch_up(carla));
        co_await other.run_until_idle();
        EXPECT_THAT(other.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.1")) << "as the one that leads";
        other.watcher.set_health("eu-1", HealthState::down, "web: timeout_connect");
        co_await other.run_until_idle();
        EXPECT_THAT(other.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.1")) << "and so it stays";
        decisions = leader.decisions("www").size();
        EXPECT_GE(other.controller.engine().decisions("www"), static_cast<std::int64_t>(decisions))
            << "the next leader continues to count";
        co_await other.group.stop();
        co_await leader.group.stop();
    }
    GslbFixture fixture(loop, shared);
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.1"));
    co_await fails(fixture, {"eu-1", "eu-2"});
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.1"));
    EXPECT_EQ(fixture.decisions("www").size(), decisions);
    co_await fixture.group.stop();
}

CO_TEST(GslbController, AFollowerDoesNotCountAClockStepTwice) {
    for (const auto step : {Duration(1h), Duration(-2h)}) {
        auto shared = std::make_shared<store::MemoryStore::Shared>();
        GslbFixture leader(loop, shared);
        CO_ASSERT_OK(co_await create_sample_site(leader));
        CO_ASSERT_OK(co_await leader.put("pools", "eu", "{site: ams, monitors: [web], guard: {max_ejections: 1, window: 10m}}"));
        co_await leader.run_until_idle();
        GslbFixture other(loop, shared, "b");
        co_await other.run_until_idle();
        for (auto* fixture : {&leader, &other}) {
            for (const auto* member : {"eu-1", "eu-2", "us-1"}) fixture->watcher.set_health(member, HealthState::up);
            co_await fixture->run_until_idle();
            for (const auto* member : {"eu-1", "eu-2"}) fixture->watcher.set_health(member, HealthState::down, "web: refused");
            co_await fixture->run_until_idle();
        }
        CO_ASSERT_OK(co_await other.base.store.catch_up(carla));
        co_await other.run_until_idle();
        EXPECT_THAT(other.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.2"));
        leader.base.clock.step_wall(step);
        other.base.clock.step_wall(step);
        co_await leader.run_until_idle(2s); // the leader sees it first, and stores what is right by the clock as it is now
        CO_ASSERT_OK(co_await other.base.store.catch_up(carla));
        other.watcher.set_health("us-1", HealthState::up, "another word");
        co_await other.run_until_idle(2s);
        EXPECT_THAT(other.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.2")) << "no ten minutes have passed";
        co_await other.group.stop();
        co_await leader.group.stop();
    }
}

CO_TEST(GslbController, AnUnconfirmedFailureLeavesARecord) {
    GslbFixture fixture(loop);
    CO_ASSERT_OK(co_await create_sample_site(fixture));
    co_await fixture.run_until_idle();
    for (const auto* member : {"eu-1", "eu-2", "us-1"}) fixture.watcher.set_health(member, HealthState::up);
    co_await fixture.run_until_idle();
    const auto before = fixture.decisions("www").size();
    for (int again = 0; again < 3; ++again) {
        MemberHealth health{.state = HealthState::up, .monitored = true};
        health.unconfirmed = UnconfirmedFailure{Cause::quorum_hold, "web: ams reports refused; 1 of 3 down, need 2"};
        health.message = "probe " + std::to_string(again);
        fixture.watcher.set_health("eu-1", std::move(health));
        co_await fixture.run_until_idle();
    }
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.1", "192.0.2.2"));
    const auto records = fixture.decisions("www");
    CO_ASSERT(records.size() == before + 1);
    EXPECT_EQ(text_at(records.back(), "cause"), "quorum_hold");
    EXPECT_FALSE(flag_at(records.back(), "changed"));
    EXPECT_EQ(text_at(array_at(records.back(), "withheld").at(0).get_object(), "about"), "eu-1");
    co_await fixture.group.stop();
}

} // namespace orrery::gslb
