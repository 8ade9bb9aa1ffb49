#include "gslb/plant_for_tests.h"
#include "gslb/stored_watcher.h"

#include <gmock/gmock.h>

namespace orrery::gslb::testing {

namespace {

using ::testing::ElementsAre;

/// A server that answers and does not look: what it knows is what the one that leads writes.
struct Answering {
    Answering(asio::io_context& loop, std::shared_ptr<store::MemoryStore::Shared> shared)
        : house(loop.get_executor(), std::move(shared), all_kinds()),
          leadership(loop.get_executor(), house.store, {.server = "b", .clock = &house.clock}),
          watcher(house.store),
          controller(loop.get_executor(), *house.resources, leadership, house.clock, watcher, &sink, {.server = "b"}),
          group(loop.get_executor()) {
        group.spawn(controller.run(carla));
    }

    resource::testing::House house;
    store::Leadership leadership; // which it does not strive for
    StoredWatcher watcher;
    FakeSink sink;
    Controller controller;
    TaskGroup group;
};

} // namespace

CO_TEST(StoredWatcher, ALoadBalancerIsFoundWhereTheOneThatLeadsFoundIt) {
    auto shared = std::make_shared<store::MemoryStore::Shared>();
    Plant leader(loop, shared);
    Answering other(loop, shared);
    CO_ASSERT_OK(co_await leader.put("secrets", "openstack", "{values: {password: something}}"));
    CO_ASSERT_OK(co_await leader.put("sources", "regions",
                                     "{driver: octavia, url: 'http://127.0.0.1:9876', credentials: openstack, "
                                     "keystone: {url: 'http://127.0.0.1:5000/v3', user: admin, project: admin}}"));
    CO_ASSERT_OK(co_await leader.put("pools", "p", "{min_healthy: 1}"));
    for (const auto* name : {"lb1", "lb2"})
        CO_ASSERT_OK(co_await leader.put("members", name, fmt::format("{{pool: p, balancer: {{source: regions, id: {}}}}}", name)));
    CO_ASSERT_OK(co_await leader.put("loadbalancers", "www", "{fqdn: www.gslb.test, pools: [{pool: p}], answers: all}"));
    co_await leader.settle(2s);
    const auto settle = [&]() -> asio::awaitable<void> {
        for (int round = 0; round < 3; ++round) {
            co_await leader.settle(2s);
            std::ignore = co_await other.house.store.catch_up(carla);
            other.house.clock.advance(2s);
            co_await leader.settle();
        }
    };
    leader.watcher.find("lb1", {"192.0.2.1"});
    leader.watcher.find("lb2", {"192.0.2.2", "2001:db8::2"});
    leader.watcher.say("lb1", Health::up);
    leader.watcher.say("lb2", Health::up);
    co_await settle();
    EXPECT_THAT(leader.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.1", "192.0.2.2", "2001:db8::2"));
    EXPECT_EQ(other.sink.addresses("www.gslb.test"), leader.sink.addresses("www.gslb.test"));

    // It is found elsewhere.
    leader.watcher.find("lb1", {"192.0.2.7"});
    co_await settle();
    EXPECT_THAT(leader.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.7", "192.0.2.2", "2001:db8::2"));
    EXPECT_EQ(other.sink.addresses("www.gslb.test"), leader.sink.addresses("www.gslb.test"));

    // It takes no new clients.
    leader.watcher.say("lb2", {.standing = Health::up, .monitored = true, .drains = true, .cause = "driver"});
    co_await settle();
    EXPECT_THAT(leader.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.7"));
    EXPECT_EQ(other.sink.addresses("www.gslb.test"), leader.sink.addresses("www.gslb.test"));
    leader.watcher.say("lb2", Health::up);
    co_await settle();
    EXPECT_EQ(other.sink.addresses("www.gslb.test").size(), 3U);

    // Half of what stands behind it is well.
    CO_ASSERT_OK(co_await leader.put("members", "lb2", "{pool: p, weight: 10, balancer: {source: regions, id: lb2}}"));
    leader.watcher.say("lb2", {.standing = Health::degraded, .monitored = true, .share = 0.5, .cause = "driver"});
    co_await settle();
    EXPECT_EQ(leader.controller.engine().pool("p")->view->members.at(1).weight, 5U);
    EXPECT_EQ(other.controller.engine().pool("p")->view->members.at(1).weight, 5U);

    // It is down: known as before.
    leader.watcher.say("lb1", Health::down, "octavia: ERROR");
    co_await settle();
    EXPECT_THAT(other.sink.addresses("www.gslb.test"), ElementsAre("192.0.2.2", "2001:db8::2"));
    co_await other.group.stop();
    co_await leader.group.stop();
}

} // namespace orrery::gslb::testing
