#include "gslb/observe/stored_watcher.h"
#include "gslb/runtime/gslb_fixture.h"

#include <gmock/gmock.h>

namespace orrery::gslb::testing {

namespace {

using ::testing::ElementsAre;

/// A follower that answers and does not probe: it uses the state that the leader writes.
struct FollowerFixture {
    FollowerFixture(asio::io_context& loop, std::shared_ptr<store::MemoryStore::Shared> shared)
        : base(loop.get_executor(), std::move(shared), all_kinds()),
          leadership(loop.get_executor(), base.store, {.server = "b", .clock = &base.clock}),
          watcher(base.store),
          controller(loop.get_executor(), *base.resources, leadership, base.clock, watcher, &publisher, {.server = "b"}),
          group(loop.get_executor()) {
        group.spawn(controller.run(carla));
    }

    resource::testing::ResourceFixture base;
    store::Leadership leadership; // which it does not strive for
    StoredWatcher watcher;
    FakeAnswerPublisher publisher;
    Controller controller;
    TaskGroup group;
};

} // namespace

CO_TEST(StoredWatcher, AFollowerUsesTheStateThatTheLeaderStored) {
    auto shared = std::make_shared<store::MemoryStore::Shared>();
    GslbFixture leader(loop, shared);
    FollowerFixture other(loop, shared);
    CO_ASSERT_OK(co_await leader.put("secrets", "openstack", "{values: {password: something}}"));
    CO_ASSERT_OK(co_await leader.put("sources", "regions",
                                     "{driver: octavia, url: 'http://127.0.0.1:9876', credentials: openstack, "
                                     "keystone: {url: 'http://127.0.0.1:5000/v3', user: admin, project: admin}}"));
    CO_ASSERT_OK(co_await leader.put("pools", "p", "{min_healthy: 1}"));
    for (const auto* name : {"lb1", "lb2"})
        CO_ASSERT_OK(co_await leader.put("members", name, fmt::format("{{pool: p, balancer: {{source: regions, id: {}}}}}", name)));
    CO_ASSERT_OK(co_await leader.put("loadbalancers", "www", "{fqdn: www.gslb.test, pools: [{pool: p}], answers: all}"));
    co_await leader.run_until_idle(2s);
    const auto evaluate_pool = [&]() -> asio::awaitable<void> {
        for (int round = 0; round < 3; ++round) {
            co_await leader.run_until_idle(2s);
            std::ignore = co_await other.base.store.catch_up(carla);
            other.base.clock.advance(2s);
            co_await leader.run_until_idle();
        }
    };
    leader.watcher.set_addresses("lb1", {"192.0.2.1"});
    leader.watcher.set_addresses("lb2", {"192.0.2.2", "2001:db8::2"});
    leader.watcher.set_health("lb1", HealthState::up);
    leader.watcher.set_health("lb2", HealthState::up);
    co_await evaluate_pool();
    EXPECT_THAT(leader.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.1", "192.0.2.2", "2001:db8::2"));
    EXPECT_EQ(other.publisher.addresses("www.gslb.test"), leader.publisher.addresses("www.gslb.test"));

    // It is found elsewhere.
    leader.watcher.set_addresses("lb1", {"192.0.2.7"});
    co_await evaluate_pool();
    EXPECT_THAT(leader.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.7", "192.0.2.2", "2001:db8::2"));
    EXPECT_EQ(other.publisher.addresses("www.gslb.test"), leader.publisher.addresses("www.gslb.test"));

    // It takes no new clients.
    leader.watcher.set_health("lb2", {.state = HealthState::up, .monitored = true, .drains = true, .cause = Cause::driver});
    co_await evaluate_pool();
    EXPECT_THAT(leader.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.7"));
    EXPECT_EQ(other.publisher.addresses("www.gslb.test"), leader.publisher.addresses("www.gslb.test"));
    leader.watcher.set_health("lb2", HealthState::up);
    co_await evaluate_pool();
    EXPECT_EQ(other.publisher.addresses("www.gslb.test").size(), 3U);

    // Half of its members are healthy.
    CO_ASSERT_OK(co_await leader.put("members", "lb2", "{pool: p, weight: 10, balancer: {source: regions, id: lb2}}"));
    leader.watcher.set_health("lb2", {.state = HealthState::degraded, .monitored = true, .share = 0.5, .cause = Cause::driver});
    co_await evaluate_pool();
    EXPECT_EQ(leader.controller.engine().pool("p")->view->members.at(1).weight, 5U);
    EXPECT_EQ(other.controller.engine().pool("p")->view->members.at(1).weight, 5U);

    // It is down: known as before.
    leader.watcher.set_health("lb1", HealthState::down, "octavia: ERROR");
    co_await evaluate_pool();
    EXPECT_THAT(other.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.2", "2001:db8::2"));
    co_await other.group.stop();
    co_await leader.group.stop();
}

} // namespace orrery::gslb::testing
