#include "core/ids.h"
#include "core/json_fields.h"
#include "core/text.h"
#include "gslb/decide/decision_fixture.h"
#include "gslb/runtime/decision_log.h"
#include "gslb/runtime/gslb_fixture.h"
#include "resource/object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using testing::a_load_balancer;
using testing::a_pool;

/// A server among others that share a store: what it decides, and the records of that.
struct Keeper {
    Keeper(asio::io_context& loop, std::shared_ptr<store::MemoryStore::Shared> shared)
        : base(loop.get_executor(), std::move(shared), testing::all_kinds()), log(*base.resources, engine, base.clock) {
        const auto pool = a_pool("eu", 1, 2, 2);
        engine.set_pool(pool.spec, {});
        for (const auto& member : pool.members) {
            engine.set_member(member, {});
            engine.set_member_health(member.spec.name, member.health);
        }
        engine.set_load_balancer(a_load_balancer({"eu"}), {}, {});
        engine.evaluate(base.clock.wall());
    }
    RecordDraft finds(const std::string& member, HealthState health) {
        engine.set_member_health(member, {.state = health, .monitored = true});
        return engine.evaluate(base.clock.wall()).at(0).record;
    }
    Task<Unit> write() {
        CO_TRY(std::ignore, co_await base.store.catch_up(testing::carla));
        // No server holds this key: the fence is valid.
        while (log.has_work()) {
            CO_TRY(std::ignore, co_await log.write_some(testing::carla, store::Fence::if_unmodified("sys/leader/none", 0)));
        }
        co_return Unit{};
    }
    std::size_t records() const { return base.store.count("decisions/"); }

    resource::testing::ResourceFixture base;
    Engine engine;
    DecisionLog log;
};

} // namespace

CO_TEST(GslbDecisionLog, DecisionsWithoutALeaderAreWrittenOnce) {
    const auto shared = std::make_shared<store::MemoryStore::Shared>();
    Keeper one(loop, shared), other(loop, shared);
    for (auto* each : {&one, &other}) each->log.keep(each->finds("eu-1", HealthState::down), each->base.clock.wall());
    EXPECT_FALSE(one.log.has_work()) << "not yet: it does not lead";
    one.log.take_over();
    CO_ASSERT_OK(co_await one.write());
    EXPECT_EQ(one.records(), 1U);
    // It loses leadership after that: the other still has the same decision.
    one.log.step_down();
    CO_ASSERT_OK(co_await other.base.store.catch_up(testing::carla));
    other.log.take_over();
    EXPECT_FALSE(other.log.has_work());
}

CO_TEST(GslbDecisionLog, RecordsThatALeaderDidNotWriteAreWrittenByTheNext) {
    const auto shared = std::make_shared<store::MemoryStore::Shared>();
    Keeper one(loop, shared), other(loop, shared);
    const auto now = one.base.clock.wall();
    one.log.add(one.finds("eu-1", HealthState::down), now);
    other.log.keep(other.finds("eu-1", HealthState::down), now);
    CO_ASSERT_OK(co_await one.write());
    one.log.add(one.finds("eu-2", HealthState::down), now);
    other.log.keep(other.finds("eu-2", HealthState::down), now);
    one.log.step_down(); // before it could
    CO_ASSERT_OK(co_await other.base.store.catch_up(testing::carla));
    other.log.take_over();
    EXPECT_EQ(other.log.waiting(), 1U) << "the second: the first is there";
    CO_ASSERT_OK(co_await other.write());
    EXPECT_EQ(other.records(), 2U);
    // The first leads again: it has nothing to add.
    CO_ASSERT_OK(co_await one.base.store.catch_up(testing::carla));
    one.log.take_over();
    EXPECT_FALSE(one.log.has_work());
}

CO_TEST(GslbDecisionLog, AReturningLeaderWritesWhatFollowersDecidedMeanwhileWithTheirTimes) {
    const auto shared = std::make_shared<store::MemoryStore::Shared>();
    Keeper before(loop, shared), follower(loop, shared), other(loop, shared), returned(loop, shared);
    const auto start = before.base.clock.wall();
    const auto fence = store::Fence::if_unmodified("sys/leader/none", 0);
    before.log.take_over();
    before.log.add(before.finds("eu-1", HealthState::down), start);
    for (auto* each : {&follower, &other}) each->log.keep(each->finds("eu-1", HealthState::down), start);
    CO_ASSERT_OK(co_await before.write());
    // It dies. The followers decide twice; the one that returns decides the last of it late, from what it finds.
    for (auto* each : {&follower, &other, &returned}) each->base.clock.advance(std::chrono::seconds(2));
    const auto out_at = follower.base.clock.wall();
    for (auto* each : {&follower, &other}) each->log.keep(each->finds("eu-1", HealthState::up), out_at);
    for (auto* each : {&follower, &other, &returned}) each->base.clock.advance(std::chrono::seconds(1));
    const auto down_at = follower.base.clock.wall();
    for (auto* each : {&follower, &other}) each->log.keep(each->finds("eu-2", HealthState::down), down_at);
    returned.base.clock.advance(std::chrono::seconds(4));
    const auto returned_at = returned.base.clock.wall();
    returned.log.add(returned.finds("eu-2", HealthState::down), returned_at);
    for (auto* each : {&follower, &other}) {
        CO_ASSERT_OK(co_await each->base.store.catch_up(testing::carla));
        CO_ASSERT_OK(co_await each->log.hand_over(testing::carla, fence, each == &follower ? "follower" : "other"));
    }
    CO_ASSERT_OK(co_await returned.base.store.catch_up(testing::carla));
    EXPECT_EQ(returned.base.store.count(DecisionLog::handover_prefix), 4U) << "two of each: the first is written";
    returned.log.take_over();
    CO_ASSERT_OK(co_await returned.write());
    EXPECT_EQ(returned.base.store.count(DecisionLog::handover_prefix), 0U);
    std::vector<std::pair<std::int64_t, std::string>> seen;
    for (const auto& record : returned.base.store.range("decisions/", 0, {}).records) {
        const auto object = resource::from_stored(*record);
        CO_ASSERT(object.ok());
        seen.emplace_back(object->spec.at("seq").to_number<std::int64_t>(), text_at(object->spec, "at"));
    }
    EXPECT_EQ(seen, (std::vector<std::pair<std::int64_t, std::string>>{
                        {1, to_rfc3339(start)}, {2, to_rfc3339(out_at)}, {3, to_rfc3339(down_at)}}));
    const auto between = returned.log.record_at("www", down_at + std::chrono::seconds(1));
    CO_ASSERT(between.ok());
    EXPECT_EQ(between->at("seq").to_number<std::int64_t>(), 3);
}

CO_TEST(GslbDecisionLog, AHandOverDuringAWriteLosesNoRecord) {
    const auto shared = std::make_shared<store::MemoryStore::Shared>();
    Keeper follower(loop, shared), returned(loop, shared);
    follower.log.keep(follower.finds("eu-1", HealthState::down), follower.base.clock.wall());
    returned.log.take_over();
    const auto decide = [&](const std::string& member, HealthState health) {
        returned.base.clock.advance(std::chrono::seconds(1));
        returned.log.add(returned.finds(member, health), returned.base.clock.wall());
        return to_rfc3339(returned.base.clock.wall());
    };
    const auto first = decide("eu-2", HealthState::down);
    CO_ASSERT_OK(co_await returned.write());
    const auto second = decide("eu-2", HealthState::up), third = decide("eu-1", HealthState::down);
    // The follower made the third decision before the first: its record is too old to be written, but the leader's own is not.
    CO_ASSERT_OK(co_await follower.log.hand_over(testing::carla, store::Fence::if_unmodified("sys/leader/none", 0), "follower"));
    CO_ASSERT_OK(co_await returned.base.store.catch_up(testing::carla));
    returned.log.take_over();
    CO_ASSERT_OK(co_await returned.write());
    std::vector<std::string> times;
    for (const auto& record : returned.base.store.range("decisions/", 0, {}).records)
        times.push_back(text_at(resource::from_stored(*record)->spec, "at"));
    EXPECT_THAT(times, ::testing::ElementsAre(first, second, third));
}

CO_TEST(GslbDecisionLog, SequenceNumbersHaveNoGapWhenAnAnswerOfTheStoreIsLost) {
    Keeper one(loop, std::make_shared<store::MemoryStore::Shared>());
    one.log.take_over();
    one.log.add(one.finds("eu-1", HealthState::down), one.base.clock.wall());
    one.base.store.fail_with = Error{Code::unavailable, "lost"};
    EXPECT_FALSE((co_await one.write()).ok());
    one.base.store.fail_with.reset();
    one.log.add(one.finds("eu-1", HealthState::up), one.base.clock.wall());
    CO_ASSERT_OK(co_await one.write());
    std::vector<std::int64_t> numbers;
    for (const auto& record : one.base.store.range("decisions/", 0, {}).records)
        numbers.push_back(resource::from_stored(*record)->spec.at("seq").to_number<std::int64_t>());
    EXPECT_THAT(numbers, ::testing::ElementsAre(1, 2));
    EXPECT_EQ(one.engine.decisions("www"), 2);
}

CO_TEST(GslbDecisionLog, NumbersAndOrderContinueWhenAClockThatWasAheadIsSetBackBeforeARestart) {
    const auto shared = std::make_shared<store::MemoryStore::Shared>();
    {
        Keeper ahead(loop, shared);
        const auto draft = ahead.finds("eu-1", HealthState::down);
        store::Transaction transaction;
        for (int number = 1; number <= 5; ++number) {
            resource::Object object;
            object.kind = "Decision";
            object.created_at = object.updated_at =
                ahead.base.clock.wall() + std::chrono::hours(1) + std::chrono::milliseconds(number);
            object.name = time_ordered_bound(object.created_at);
            object.spec = *draft;
            object.spec["seq"] = number;
            object.spec["at"] = to_rfc3339(object.created_at);
            transaction.put("decisions/" + object.name, resource::to_stored(object));
        }
        CO_ASSERT_OK(co_await ahead.base.store.apply(testing::carla, std::move(transaction)));
    }
    for (int restart = 1; restart <= 2; ++restart) {
        Keeper one(loop, shared);
        CO_ASSERT_OK(co_await one.base.store.catch_up(testing::carla));
        one.log.take_over();
        one.log.add(one.finds("eu-1", HealthState::down), one.base.clock.wall());
        CO_ASSERT_OK(co_await one.write());
        std::vector<std::int64_t> numbers;
        for (const auto& record : one.base.store.range("decisions/", 0, {}).records)
            numbers.push_back(resource::from_stored(*record)->spec.at("seq").to_number<std::int64_t>());
        std::vector<std::int64_t> expected{1, 2, 3, 4, 5, 6};
        if (restart == 2) expected.push_back(7);
        EXPECT_EQ(numbers, expected) << "in the order of their ids";
        const auto last = one.log.last_record("www");
        CO_ASSERT_OK(last);
        EXPECT_EQ(last->at("seq").to_number<std::int64_t>(), 5 + restart) << "why shows the newest one";
    }
}

CO_TEST(GslbDecisionLog, FailoversAndPanicsAreEvents) {
    Keeper one(loop, std::make_shared<store::MemoryStore::Shared>());
    auto rule = a_load_balancer({"eu", "us"});
    const auto second = a_pool("us", 2, 1, 1);
    one.engine.set_pool(second.spec, {});
    for (const auto& member : second.members) {
        one.engine.set_member(member, {});
        one.engine.set_member_health(member.spec.name, member.health);
    }
    rule.all_down = AllDown::all;
    one.engine.set_load_balancer(rule, {}, {});
    one.engine.evaluate(one.base.clock.wall());
    for (const auto& [member, health] : {std::pair("eu-1", HealthState::down), std::pair("eu-2", HealthState::down),
                                         std::pair("us-1", HealthState::down), std::pair("eu-1", HealthState::up)})
        one.log.add(one.finds(member, health), one.base.clock.wall());
    CO_ASSERT_OK(co_await one.write());
    std::vector<std::string> seen;
    for (const auto& record : one.base.store.range("events/", 100, {}).records) {
        const auto event = resource::from_stored(*record);
        CO_ASSERT_OK(event);
        EXPECT_EQ(text_at(event->spec, "subject"), "LoadBalancer/" + rule.name);
        EXPECT_FALSE(text_at(object_at(event->spec, "evidence"), "decision").empty());
        seen.push_back(text_at(event->spec, "action"));
    }
    // The first member that fails changes answers, and is no event: the pool answers on.
    EXPECT_THAT(seen, ::testing::ElementsAre("failover", "panic", "recovered"));
}

} // namespace orrery::gslb
