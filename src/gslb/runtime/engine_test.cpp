#include "core/json_fields.h"
#include "core/text.h"
#include "gslb/decide/decision_fixture.h"
#include "gslb/runtime/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using testing::a_load_balancer;
using testing::a_member;
using testing::a_pool;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::members_of;
using testing::noon;
using ::testing::UnorderedElementsAre;

LoadBalancerSpec named(std::string name, LoadBalancerSpec spec) {
    spec.fqdn = name + ".gslb.test";
    spec.name = std::move(name);
    return spec;
}

void add(Engine& engine, const PoolInput& pool) {
    engine.set_pool(pool.spec, {});
    for (const auto& member : pool.members) {
        engine.set_member(member, {});
        engine.set_member_health(member.spec.name, member.health);
    }
}

MemberHealth health(HealthState health) {
    MemberHealth out;
    out.monitored = true;
    out.state = health;
    return out;
}

std::vector<std::string> names_in(const std::vector<Outcome>& outcomes) {
    std::vector<std::string> out;
    for (const auto& one : outcomes) out.push_back(one.lb);
    return out;
}

} // namespace

TEST(GslbEngine, RttCausesADecisionOnlyForLoadBalancersThatUseIt) {
    Engine engine;
    for (const auto* pool : {"a", "b"}) add(engine, a_pool(pool, 1, 1, 1));
    engine.set_load_balancer(named("fixed", a_load_balancer({"a", "b"})), {}, {});
    engine.set_load_balancer(named("near", a_load_balancer({"a", "b"}, Steering::latency)), {}, {});
    engine.evaluate(noon);
    engine.take_changed_pools();
    auto moved = health(HealthState::up);
    moved.rtt["home"] = 40;
    engine.set_member_health("a-1", moved);
    EXPECT_THAT(names_in(engine.evaluate(noon + 1s)), ElementsAre("near"));
    EXPECT_THAT(engine.take_changed_pools(), IsEmpty()) << "nothing to write";
    EXPECT_EQ(engine.snapshot("fixed", noon + 1s)->pools[0]->rtt.at("home"), 40);
}

TEST(GslbEngine, DecidesOnlyTheNamesWhoseInputsChanged) {
    Engine engine;
    for (const auto* pool : {"a", "b", "c"}) add(engine, a_pool(pool, 1, 2, 2));
    engine.set_load_balancer(named("ab", a_load_balancer({"a", "b"})), {}, {});
    engine.set_load_balancer(named("b", a_load_balancer({"b"})), {}, {});
    engine.set_load_balancer(named("c", a_load_balancer({"c"})), {}, {});
    EXPECT_EQ(engine.evaluate(noon).size(), 3U);
    EXPECT_FALSE(engine.has_work());
    engine.set_member_health("b-1", health(HealthState::down));
    auto outcomes = engine.evaluate(noon + 1s);
    EXPECT_THAT(names_in(outcomes), UnorderedElementsAre("ab", "b"));
    for (const auto& one : outcomes) {
        EXPECT_EQ(one.answers_changed, one.lb == "b") << "ab answers from a";
        EXPECT_EQ(one.record.has_value(), one.lb == "b");
    }
    engine.set_member_health("b-1", health(HealthState::down));
    EXPECT_FALSE(engine.has_work()) << "the same again is nothing";
    engine.set_member_health("nobody", health(HealthState::down));
    EXPECT_THAT(engine.evaluate(noon + 2s), IsEmpty());
}

TEST(GslbEngine, ANewNetworkInTheSameClassesChangesTheAnswer) {
    Engine engine;
    for (const auto* pool : {"a", "b"}) add(engine, a_pool(pool, 1, 1, 1));
    auto spec = named("www", a_load_balancer({"a", "b"}, Steering::topology));
    spec.classes = {{.label = "west", .pools = {"b"}, .prefixes = {"10.0.0.0/8"}}};
    engine.set_load_balancer(spec, ClientClasses::of(spec.classes), {});
    engine.evaluate(noon);
    spec.classes[0].prefixes = {"172.16.0.0/12"};
    engine.set_load_balancer(spec, ClientClasses::of(spec.classes), {});
    const auto outcomes = engine.evaluate(noon + 1s);
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_TRUE(outcomes[0].answers_changed) << "clients of 10.0.0.0/8 no longer get b";
    EXPECT_TRUE(outcomes[0].record);
    engine.set_load_balancer(spec, ClientClasses::of(spec.classes), {});
    EXPECT_FALSE(engine.has_work());
}

TEST(GslbEngine, ARecordHasTheChangeTimeCauseAndInputs) {
    Engine engine;
    add(engine, a_pool("eu", 1, 2, 2));
    engine.set_load_balancer(a_load_balancer({"eu"}), {}, {});
    auto first = engine.evaluate(noon);
    ASSERT_EQ(first.size(), 1U);
    EXPECT_EQ(text_at(*first[0].record, "cause"), "config");
    EXPECT_FALSE(first[0].record->contains("before"));
    auto down = health(HealthState::down);
    down.message = "http-80: refused";
    down.evidence = json::array{json::object{{"vantage", "dc1"}, {"class", "refused"}}};
    engine.set_member_health("eu-1", down);
    const auto second = engine.evaluate(noon + 1204ms);
    const auto& record = *second.at(0).record;
    EXPECT_EQ(record.at("seq").as_int64(), 2);
    EXPECT_EQ(text_at(record, "at"), to_rfc3339(noon + 1204ms));
    EXPECT_EQ(text_at(record, "cause"), "probe");
    EXPECT_EQ(text_at(record, "fqdn"), "www.gslb.test");
    const auto& trigger = record.at("trigger").as_object();
    EXPECT_EQ(text_at(trigger, "from"), "up");
    EXPECT_EQ(text_at(trigger, "to"), "down");
    EXPECT_EQ(trigger.at("evidence").as_array().size(), 1U);
    EXPECT_EQ(to_json_text(record.at("before")),
              R"({"condition":"normal","pool":"eu","answers":["10.1.0.1","10.1.0.2"],"ttl":30,"panic":false})");
    EXPECT_EQ(to_json_text(record.at("after").at("answers")), R"(["10.1.0.2"])");
    EXPECT_THAT(to_json_text(record.at("messages")), HasSubstr("eu-1 in eu: http-80: refused"));
    // Entering and leaving panic have their own triggers.
    engine.set_member_health("eu-2", health(HealthState::down));
    EXPECT_EQ(text_at(*engine.evaluate(noon + 2s).at(0).record, "cause"), "panic_enter");
    engine.set_member_health("eu-2", health(HealthState::up));
    EXPECT_EQ(text_at(*engine.evaluate(noon + 3s).at(0).record, "cause"), "panic_leave");
    // And so has a person's word.
    auto member = *engine.member("eu-2");
    member.spec.override_ = {.action = Override::Action::drain, .reason = "upgrade", .by = "anna"};
    engine.set_member_health("eu-1", health(HealthState::up));
    engine.evaluate(noon + 4s);
    engine.set_member(member, {});
    const auto drained = engine.evaluate(noon + 5s);
    EXPECT_EQ(text_at(*drained.at(0).record, "cause"), "admin");
    EXPECT_EQ(text_at(*drained.at(0).record, "actor"), "anna");
    EXPECT_EQ(text_at(*drained.at(0).record, "reason"), "upgrade");
    EXPECT_THAT(members_of(drained[0].decision->answers[0]), ElementsAre("eu-1"));
}

TEST(GslbEngine, ARecordOfALoadHasItsEffectOnTheWeightOfEachMember) {
    Engine engine;
    auto pool = a_pool("eu", 1, 3, 3);
    pool.spec.load = PoolSpec::Load{.low = 50, .high = 90, .step = 100, .interval = 1s};
    add(engine, pool);
    engine.set_load_balancer(a_load_balancer({"eu"}), {}, {});
    engine.evaluate(noon);
    auto busy = health(HealthState::up);
    busy.message = "http-80: ok";
    busy.evidence = json::array{json::object{{"vantage", "dc1"}, {"class", "ok"}}};
    busy.load = 99;
    engine.set_member_health("eu-1", busy, Cause::load);
    busy.load = 70;
    engine.set_member_health("eu-2", busy, Cause::load);
    const auto changed = engine.evaluate(noon + 1s);
    const auto& record = *changed.at(0).record;
    EXPECT_EQ(text_at(record, "cause"), "load");
    EXPECT_EQ(
        to_json_text(record.at("trigger")),
        R"({"member":"eu-1","load":99.0,"weight_percent":0,"message":"load 99 changes its weight from 100 % to 0 %",)"
        R"("also":[{"member":"eu-2","load":70.0,"weight_percent":50,"message":"load 70 changes its weight from 100 % to 50 %"}]})");
    busy.load.reset();
    busy.load_expired = true;
    engine.set_member_health("eu-1", busy, Cause::load);
    EXPECT_EQ(text_at(engine.evaluate(noon + 3s).at(0).record->at("trigger").as_object(), "message"),
              "a load that has expired changes its weight from 0 % to 100 %");
}

TEST(GslbEngine, AnOverrideIsTheTriggerAlsoIfHealthChangesAtTheSameTime) {
    Engine engine;
    for (const auto* pool : {"eu", "us"}) add(engine, a_pool(pool, 1, 2, 2));
    engine.set_load_balancer(a_load_balancer({"eu", "us"}), {}, {});
    engine.evaluate(noon);
    auto member = *engine.member("eu-2");
    member.spec.override_ = {.action = Override::Action::drain, .reason = "upgrade", .by = "anna"};
    engine.set_member(member, {});
    auto noticed = health(HealthState::up);
    noticed.until_change = 2s;
    for (const auto* name : {"eu-1", "eu-2", "us-1"}) engine.set_member_health(name, noticed); // within the same few milliseconds
    auto outcomes = engine.evaluate(noon + 1s);
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_EQ(text_at(*outcomes[0].record, "cause"), "admin");
    EXPECT_EQ(text_at(*outcomes[0].record, "actor"), "anna");
    EXPECT_EQ(to_json_text(outcomes[0].record->at("trigger")), R"({"member":"eu-2","override":"drain"})");
    // Health changes at the same time are reported as well, in either order.
    for (const bool probe_first : {false, true}) {
        member.spec.override_ = {};
        engine.set_member(member, {});
        engine.set_member_health("eu-1", noticed);
        engine.evaluate(noon + 2s);
        member.spec.override_ = {.action = Override::Action::drain, .reason = "upgrade", .by = "anna"};
        if (!probe_first) engine.set_member(member, {});
        engine.set_member_health("eu-1", health(HealthState::down));
        if (probe_first) engine.set_member(member, {});
        outcomes = engine.evaluate(noon + 3s);
        ASSERT_EQ(outcomes.size(), 1U);
        EXPECT_EQ(text_at(*outcomes[0].record, "actor"), "anna");
        EXPECT_EQ(to_json_text(outcomes[0].record->at("trigger")),
                  R"({"member":"eu-2","override":"drain","also":[{"member":"eu-1","from":"up","to":"down","cause":"probe"}]})");
    }
}

TEST(GslbEngine, SimultaneousFailuresAreOneRecord) {
    Engine engine;
    add(engine, a_pool("eu", 1, 4, 4));
    engine.set_load_balancer(a_load_balancer({"eu"}), {}, {});
    engine.evaluate(noon);
    for (const auto* member : {"eu-1", "eu-2"}) engine.set_member_health(member, health(HealthState::down));
    const auto outcomes = engine.evaluate(noon + 1s);
    ASSERT_EQ(outcomes.size(), 1U);
    const auto& trigger = outcomes[0].record->at("trigger").as_object();
    EXPECT_EQ(text_at(trigger, "member"), "eu-2");
    EXPECT_EQ(text_at(trigger.at("also").at(0).as_object(), "member"), "eu-1");
}

TEST(GslbEngine, AWithheldChangeIsRecordedOnceAndReleasedByTime) {
    Engine engine;
    auto pool = a_pool("eu", 1, 2, 2);
    pool.spec.guard = PoolSpec::Guard{.max_ejections = {.share = false, .value = 1}, .window = 60s};
    add(engine, pool);
    engine.set_load_balancer(a_load_balancer({"eu"}), {}, {});
    engine.evaluate(noon);
    engine.set_member_health("eu-1", health(HealthState::down));
    engine.evaluate(noon + 1s);
    engine.set_member_health("eu-2", health(HealthState::down));
    auto outcomes = engine.evaluate(noon + 2s);
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_FALSE(outcomes[0].answers_changed);
    EXPECT_EQ(text_at(*outcomes[0].record, "cause"), "mass_guard_hold");
    EXPECT_FALSE(outcomes[0].record->at("changed").as_bool());
    EXPECT_EQ(to_json_text(outcomes[0].record->at("before").at("answers")),
              to_json_text(outcomes[0].record->at("after").at("answers")));
    EXPECT_EQ(engine.next(), noon + 61s);
    EXPECT_THAT(engine.evaluate(noon + 30s), IsEmpty());
    outcomes = engine.evaluate(noon + 61s);
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_EQ(text_at(*outcomes[0].record, "cause"), "panic_enter");
    EXPECT_EQ(engine.next(), std::nullopt);
}

TEST(GslbEngine, ARestartChangesNoAnswerAndWritesNoRecord) {
    auto spec = a_load_balancer({"eu", "us"});
    spec.failback = Failback::delayed;
    spec.failback_after = 60s;
    Engine before;
    add(before, a_pool("eu", 1, 1, 0));
    add(before, a_pool("us", 2, 1, 1));
    before.set_load_balancer(spec, {}, {});
    before.evaluate(noon);
    before.set_member_health("eu-1", health(HealthState::up));
    const auto last = before.evaluate(noon + 10s).at(0).decision;
    EXPECT_THAT(last->answers[0].pools, ElementsAre("us"));

    Engine after;
    add(after, a_pool("us", 2, 1, 1));
    auto eu = a_pool("eu", 1, 1, 1);
    eu.members[0].health.stale = true;
    add(after, eu);
    after.set_load_balancer(spec, {}, {});
    after.restore_lb("www", LoadBalancerState::from(last->state.to_json()), before.decisions("www"), last->summary());
    auto outcomes = after.evaluate(noon + 20s);
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_THAT(outcomes[0].decision->answers[0].pools, ElementsAre("us")) << "the wait continues";
    EXPECT_FALSE(outcomes[0].record);
    EXPECT_TRUE(outcomes[0].answers_changed) << "the publishers of the name must be notified";
    EXPECT_EQ(after.next(), noon + 70s);
    EXPECT_THAT(after.evaluate(noon + 70s).at(0).decision->answers[0].pools, ElementsAre("eu"));
}

TEST(GslbEngine, ResourcesCanBeCreatedAndDeletedInAnyOrder) {
    Engine engine;
    engine.set_load_balancer(a_load_balancer({"eu"}), {}, {});
    EXPECT_EQ(engine.evaluate(noon).at(0).decision->condition, Condition::empty);
    const auto pool = a_pool("eu", 1, 2, 1);
    for (const auto& member : pool.members) engine.set_member_health(member.spec.name, member.health);
    for (const auto& member : pool.members) engine.set_member(member, {});
    EXPECT_THAT(engine.evaluate(noon), IsEmpty()) << "no pool yet";
    engine.set_pool(pool.spec, {});
    EXPECT_THAT(members_of(engine.evaluate(noon).at(0).decision->answers[0]), ElementsAre("eu-1"));
    EXPECT_EQ(engine.lb_of_fqdn("WWW.gslb.test."), "www");
    auto moved = *engine.member("eu-1");
    moved.spec.pool = "us";
    engine.set_member(moved, {});
    EXPECT_EQ(engine.evaluate(noon).at(0).decision->condition, Condition::panic);
    engine.remove_pool("eu", {});
    EXPECT_EQ(engine.evaluate(noon).at(0).decision->condition, Condition::empty);
    engine.remove_load_balancer("www");
    const auto outcomes = engine.evaluate(noon);
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_TRUE(outcomes[0].removed);
    EXPECT_EQ(engine.decision("www"), nullptr);
    EXPECT_EQ(engine.lb_of_fqdn("www.gslb.test"), "");
}

namespace {

/// A site that lives: members fail and return, people say things, time passes.
class Life {
public:
    explicit Life(std::uint32_t seed) : random_(seed) {
        for (int at = 0; at < 4; ++at) {
            auto pool = a_pool(pool_name(at), at + 1, 4, 4);
            if (at % 2 == 0) pool.spec.guard = PoolSpec::Guard{.max_ejections = {.share = true, .value = 50}, .window = 20s};
            if (at == 1) pool.spec.load = PoolSpec::Load{.low = 10, .high = 90, .step = 25, .interval = 5s};
            for (auto& member : pool.members) {
                member.spec.weight = 1 + random_() % 5;
                member.site = "site" + std::to_string(at);
                member.spec.capacity = 30;
            }
            add(engine, pool);
        }
        auto failover = named("failover", a_load_balancer({"p0", "p1", "p2"}, Steering::failover, Answers::weighted));
        failover.failback = Failback::delayed;
        failover.failback_after = 15s;
        failover.demand = 100;
        auto spread = named("spread", a_load_balancer({"p1", "p2", "p3"}, Steering::spread, Answers::weighted_many));
        spread.pools[2].passive = true;
        spread.all_down = AllDown::last_good;
        auto topology = named("topology", a_load_balancer({"p0", "p3"}, Steering::topology, Answers::subset));
        topology.max_answers = 2;
        topology.classes = {{.label = "west", .pools = {"p3"}, .prefixes = {"10.0.0.0/8"}}};
        auto latency = named("latency", a_load_balancer({"p0", "p1", "p2"}, Steering::latency, Answers::sticky));
        latency.classes = {{.label = "v", .vantage = "dc1", .prefixes = {"10.0.0.0/8"}}};
        latency.failback = Failback::manual;
        latency.max_answers = 1;
        auto by_name = named("by-name", a_load_balancer({"p2", "p0"}, Steering::failover, Answers::sticky_by_name));
        by_name.max_answers = 2;
        for (const auto& spec : {failover, spread, topology, latency, by_name}) {
            auto clients = ClientClasses::of(spec.classes);
            engine.set_load_balancer(spec, std::move(clients), {});
        }
    }
    static std::string pool_name(int at) { return "p" + std::to_string(at); }
    std::string some_member() { return pool_name(static_cast<int>(random_() % 4)) + "-" + std::to_string(1 + random_() % 4); }

    void something() {
        now += std::chrono::milliseconds(random_() % 9000);
        const auto member = some_member();
        auto known = *engine.member(member);
        switch (random_() % 8) {
        case 0: {
            known.spec.override_ = random_() % 2 == 0
                                       ? Override{}
                                       : Override{.action = random_() % 2 == 0 ? Override::Action::drain : Override::Action::down,
                                                  .until = now + std::chrono::seconds(random_() % 60)};
            engine.set_member(known, {});
            return;
        }
        case 1: return; // only time passes
        default: {
            auto said = known.health;
            said.state = random_() % 5 < 3 ? HealthState::up : HealthState::down;
            said.until_change = std::chrono::seconds(random_() % 40);
            said.load = random_() % 120;
            said.rtt["dc1"] = static_cast<double>(random_() % 100);
            engine.set_member_health(member, said);
        }
        }
    }

    Engine engine;
    WallTime now = noon;
    std::mt19937 random_;
};

} // namespace

TEST(GslbEngine, ReplayingARecordGivesTheSameDecision) {
    Life life(11);
    int replayed = 0, held = 0;
    for (int step = 0; step < 400; ++step) {
        life.something();
        for (const auto& outcome : life.engine.evaluate(life.now)) {
            if (!outcome.record) continue;
            // As it comes back from the store.
            const auto record = parse_json(to_json_text(*outcome.record))->as_object();
            const auto again = replay(record);
            ASSERT_TRUE(again.ok());
            ASSERT_EQ(to_json_text(again->to_json()), to_json_text(record.at("after"))) << to_json_text(record);
            ++replayed;
            if (!record.at("changed").as_bool()) ++held;
        }
    }
    EXPECT_GE(replayed, 100);
    EXPECT_GT(held, 5);
}

TEST(GslbEngine, WhatIfPredictsTheOutcome) {
    Life life(23);
    life.engine.evaluate(life.now);
    for (int step = 0; step < 300; ++step) {
        life.something();
        life.engine.evaluate(life.now);
        const std::string name =
            std::vector<std::string>{"failover", "spread", "topology", "latency", "by-name"}[life.random_() % 5];
        ProposedChange change;
        std::string member;
        do member = life.some_member();
        while (std::none_of(life.engine.spec(name)->pools.begin(), life.engine.spec(name)->pools.end(),
                            [&](const auto& use) { return member.starts_with(use.pool); }));
        (step % 2 == 0 ? change.down_members : change.drained_members).insert(member);
        const auto foreseen = life.engine.what_if(name, change, life.now);
        ASSERT_TRUE(foreseen.ok());
        auto known = *life.engine.member(member);
        if (step % 2 == 0) {
            known.health.state = HealthState::down;
            life.engine.set_member_health(member, known.health);
        } else {
            known.spec.override_ = {.action = Override::Action::drain};
            life.engine.set_member(known, {});
        }
        life.engine.evaluate(life.now);
        ASSERT_EQ(to_json_text(foreseen->after.to_json()), to_json_text(life.engine.decision(name)->to_json())) << step;
        const auto then = predict(life.engine.decision(name)->answers[0]);
        EXPECT_EQ(to_json_text(foreseen->shares_after[0].to_json()), to_json_text(then.to_json()));
    }
}

TEST(GslbEngine, TheCostOfAChangeDoesNotDependOnTheNumberOfLoadBalancers) {
    Engine engine;
    constexpr int many = 10'000;
    for (int at = 0; at < 100; ++at) {
        PoolSpec pool;
        pool.name = "pool" + std::to_string(at);
        engine.set_pool(pool, {});
        for (int member = 0; member < 2; ++member) {
            const auto name = pool.name + "-" + std::to_string(member);
            engine.set_member(
                a_member(name, pool.name,
                         {"10." + std::to_string(at / 256) + "." + std::to_string(at % 256) + "." + std::to_string(member)}),
                {});
            engine.set_member_health(name, health(HealthState::up));
        }
    }
    for (int at = 0; at < many; ++at)
        engine.set_load_balancer(named("n" + std::to_string(at), a_load_balancer({"pool" + std::to_string(at % 100)})), {}, {});
    EXPECT_EQ(engine.evaluate(noon).size(), static_cast<std::size_t>(many));
    engine.set_member_health("pool7-0", health(HealthState::down));
    EXPECT_EQ(engine.evaluate(noon + 1s).size(), 100U) << "only those that use the pool";
}

} // namespace orrery::gslb
