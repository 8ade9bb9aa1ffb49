#include "gslb/decision_log.h"
#include "gslb/plant_for_tests.h"
#include "gslb/read.h"
#include "gslb/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using testing::a_pool;
using testing::a_rule;

/// A server among others that share a store: what it decides, and the records of that.
struct Keeper {
    Keeper(asio::io_context& loop, std::shared_ptr<store::MemoryStore::Shared> shared)
        : house(loop.get_executor(), std::move(shared), testing::all_kinds()), log(*house.resources, engine, house.clock) {
        const auto pool = a_pool("eu", 1, 2, 2);
        engine.set_pool(pool.spec, {});
        for (const auto& member : pool.members) {
            engine.set_member(member, {});
            engine.set_signal(member.spec.name, member.signal);
        }
        engine.set_rule(a_rule({"eu"}), {}, {});
        engine.turn(house.clock.wall());
    }
    RecordDraft finds(const std::string& member, Health health) {
        engine.set_signal(member, {.standing = health, .monitored = true});
        return engine.turn(house.clock.wall()).at(0).record;
    }
    Task<Unit> write() {
        CO_TRY(std::ignore, co_await house.store.catch_up(testing::carla));
        // Nobody holds this key: the fence holds.
        while (log.has_work()) {
            CO_TRY(std::ignore, co_await log.write_some(testing::carla, store::Fence::unwritten("sys/leader/none", 0)));
        }
        co_return Unit{};
    }
    std::size_t records() const { return house.store.count("decisions/"); }

    resource::testing::House house;
    Engine engine;
    DecisionLog log;
};

} // namespace

CO_TEST(GslbDecisionLog, WhatIsDecidedWhileNobodyLeadsIsWrittenOnce) {
    const auto shared = std::make_shared<store::MemoryStore::Shared>();
    Keeper one(loop, shared), other(loop, shared);
    for (auto* each : {&one, &other}) each->log.keep(each->finds("eu-1", Health::down), each->house.clock.wall());
    EXPECT_FALSE(one.log.has_work()) << "not yet: it does not lead";
    one.log.take_over();
    CO_ASSERT_OK(co_await one.write());
    EXPECT_EQ(one.records(), 1U);
    // It leads no longer than that: the other has the same decision still.
    one.log.step_down();
    CO_ASSERT_OK(co_await other.house.store.catch_up(testing::carla));
    other.log.take_over();
    EXPECT_FALSE(other.log.has_work());
}

CO_TEST(GslbDecisionLog, WhatALeaderDidNotComeToWriteIsWrittenByTheNext) {
    const auto shared = std::make_shared<store::MemoryStore::Shared>();
    Keeper one(loop, shared), other(loop, shared);
    const auto now = one.house.clock.wall();
    one.log.add(one.finds("eu-1", Health::down), now);
    other.log.keep(other.finds("eu-1", Health::down), now);
    CO_ASSERT_OK(co_await one.write());
    one.log.add(one.finds("eu-2", Health::down), now);
    other.log.keep(other.finds("eu-2", Health::down), now);
    one.log.step_down(); // before it could
    CO_ASSERT_OK(co_await other.house.store.catch_up(testing::carla));
    other.log.take_over();
    EXPECT_EQ(other.log.waiting(), 1U) << "the second: the first is there";
    CO_ASSERT_OK(co_await other.write());
    EXPECT_EQ(other.records(), 2U);
    // The first leads again: it has nothing to add.
    CO_ASSERT_OK(co_await one.house.store.catch_up(testing::carla));
    one.log.take_over();
    EXPECT_FALSE(one.log.has_work());
}

} // namespace orrery::gslb
