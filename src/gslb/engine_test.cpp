#include "core/text.h"
#include "gslb/engine.h"
#include "gslb/read.h"
#include "gslb/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using testing::a_member;
using testing::a_pool;
using testing::a_rule;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::members_of;
using testing::noon;
using ::testing::UnorderedElementsAre;

Rule named(std::string name, Rule rule) {
    rule.fqdn = name + ".gslb.test";
    rule.name = std::move(name);
    return rule;
}

void add(Engine& engine, const PoolInput& pool) {
    engine.set_pool(pool.spec, {});
    for (const auto& member : pool.members) {
        engine.set_member(member, {});
        engine.set_signal(member.spec.name, member.signal);
    }
}

Signal signal(Health health) {
    Signal out;
    out.monitored = true;
    out.standing = health;
    return out;
}

std::vector<std::string> names_in(const std::vector<Outcome>& outcomes) {
    std::vector<std::string> out;
    for (const auto& one : outcomes) out.push_back(one.name);
    return out;
}

} // namespace

TEST(GslbEngine, DistanceIsDecidedByOnlyWhereItMatters) {
    Engine engine;
    for (const auto* pool : {"a", "b"}) add(engine, a_pool(pool, 1, 1, 1));
    engine.set_rule(named("fixed", a_rule({"a", "b"})), {}, {});
    engine.set_rule(named("near", a_rule({"a", "b"}, Steering::latency)), {}, {});
    engine.turn(noon);
    engine.take_changed_pools();
    auto moved = signal(Health::up);
    moved.rtt["home"] = 40;
    engine.set_signal("a-1", moved);
    EXPECT_THAT(names_in(engine.turn(noon + 1s)), ElementsAre("near"));
    EXPECT_THAT(engine.take_changed_pools(), IsEmpty()) << "nothing to write";
    EXPECT_EQ(engine.snapshot("fixed", noon + 1s)->pools[0]->rtt.at("home"), 40);
}

TEST(GslbEngine, DecidesOnlyTheNamesWhoseInputsChanged) {
    Engine engine;
    for (const auto* pool : {"a", "b", "c"}) add(engine, a_pool(pool, 1, 2, 2));
    engine.set_rule(named("ab", a_rule({"a", "b"})), {}, {});
    engine.set_rule(named("b", a_rule({"b"})), {}, {});
    engine.set_rule(named("c", a_rule({"c"})), {}, {});
    EXPECT_EQ(engine.turn(noon).size(), 3U);
    EXPECT_FALSE(engine.has_work());
    engine.set_signal("b-1", signal(Health::down));
    auto outcomes = engine.turn(noon + 1s);
    EXPECT_THAT(names_in(outcomes), UnorderedElementsAre("ab", "b"));
    for (const auto& one : outcomes) {
        EXPECT_EQ(one.answers_changed, one.name == "b") << "ab answers from a";
        EXPECT_EQ(one.record.has_value(), one.name == "b");
    }
    engine.set_signal("b-1", signal(Health::down));
    EXPECT_FALSE(engine.has_work()) << "the same again is nothing";
    engine.set_signal("nobody", signal(Health::down));
    EXPECT_THAT(engine.turn(noon + 2s), IsEmpty());
}

TEST(GslbEngine, OtherNetworksOfTheSameClassesAreAnotherAnswer) {
    Engine engine;
    for (const auto* pool : {"a", "b"}) add(engine, a_pool(pool, 1, 1, 1));
    auto rule = named("www", a_rule({"a", "b"}, Steering::topology));
    rule.classes = {{.label = "west", .pools = {"b"}, .prefixes = {"10.0.0.0/8"}}};
    engine.set_rule(rule, Clients::of(rule.classes), {});
    engine.turn(noon);
    rule.classes[0].prefixes = {"172.16.0.0/12"};
    engine.set_rule(rule, Clients::of(rule.classes), {});
    const auto outcomes = engine.turn(noon + 1s);
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_TRUE(outcomes[0].answers_changed) << "clients of 10.0.0.0/8 no longer get b";
    EXPECT_TRUE(outcomes[0].record);
    engine.set_rule(rule, Clients::of(rule.classes), {});
    EXPECT_FALSE(engine.has_work());
}

TEST(GslbEngine, ARecordSaysWhatWhenWhyAndFromWhat) {
    Engine engine;
    add(engine, a_pool("eu", 1, 2, 2));
    engine.set_rule(a_rule({"eu"}), {}, {});
    auto first = engine.turn(noon);
    ASSERT_EQ(first.size(), 1U);
    EXPECT_EQ(text_at(*first[0].record, "cause"), "config");
    EXPECT_FALSE(first[0].record->contains("before"));
    auto down = signal(Health::down);
    down.words = "http-80: refused";
    down.evidence = json::array{json::object{{"vantage", "dc1"}, {"class", "refused"}}};
    engine.set_signal("eu-1", down);
    const auto second = engine.turn(noon + 1204ms);
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
    EXPECT_THAT(to_json_text(record.at("because")), HasSubstr("eu-1 in eu: http-80: refused"));
    // Panic has a name of its own, in both directions.
    engine.set_signal("eu-2", signal(Health::down));
    EXPECT_EQ(text_at(*engine.turn(noon + 2s).at(0).record, "cause"), "panic_enter");
    engine.set_signal("eu-2", signal(Health::up));
    EXPECT_EQ(text_at(*engine.turn(noon + 3s).at(0).record, "cause"), "panic_leave");
    // And so has a person's word.
    auto member = *engine.member("eu-2");
    member.spec.override_ = {.what = Override::What::drain, .reason = "upgrade", .by = "anna"};
    engine.set_signal("eu-1", signal(Health::up));
    engine.turn(noon + 4s);
    engine.set_member(member, {});
    const auto drained = engine.turn(noon + 5s);
    EXPECT_EQ(text_at(*drained.at(0).record, "cause"), "admin");
    EXPECT_EQ(text_at(*drained.at(0).record, "actor"), "anna");
    EXPECT_EQ(text_at(*drained.at(0).record, "reason"), "upgrade");
    EXPECT_THAT(members_of(drained[0].decision->answers[0]), ElementsAre("eu-1"));
}

TEST(GslbEngine, APersonsWordIsNotLostAmongWhatProbesNotice) {
    Engine engine;
    for (const auto* pool : {"eu", "us"}) add(engine, a_pool(pool, 1, 2, 2));
    engine.set_rule(a_rule({"eu", "us"}), {}, {});
    engine.turn(noon);
    auto member = *engine.member("eu-2");
    member.spec.override_ = {.what = Override::What::drain, .reason = "upgrade", .by = "anna"};
    engine.set_member(member, {});
    auto noticed = signal(Health::up);
    noticed.until_change = 2s;
    for (const auto* name : {"eu-1", "eu-2", "us-1"}) engine.set_signal(name, noticed); // within the same few milliseconds
    auto outcomes = engine.turn(noon + 1s);
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_EQ(text_at(*outcomes[0].record, "cause"), "admin");
    EXPECT_EQ(text_at(*outcomes[0].record, "actor"), "anna");
    EXPECT_EQ(to_json_text(outcomes[0].record->at("trigger")), R"({"member":"eu-2","said":"drain"})");
    // What was found otherwise at the same time is told as well, in whichever order they came.
    for (const bool probe_first : {false, true}) {
        member.spec.override_ = {};
        engine.set_member(member, {});
        engine.set_signal("eu-1", noticed);
        engine.turn(noon + 2s);
        member.spec.override_ = {.what = Override::What::drain, .reason = "upgrade", .by = "anna"};
        if (!probe_first) engine.set_member(member, {});
        engine.set_signal("eu-1", signal(Health::down));
        if (probe_first) engine.set_member(member, {});
        outcomes = engine.turn(noon + 3s);
        ASSERT_EQ(outcomes.size(), 1U);
        EXPECT_EQ(text_at(*outcomes[0].record, "actor"), "anna");
        EXPECT_EQ(to_json_text(outcomes[0].record->at("trigger")),
                  R"({"member":"eu-2","said":"drain","also":[{"member":"eu-1","from":"up","to":"down","cause":"probe"}]})");
    }
}

TEST(GslbEngine, SeveralThatFailTogetherAreOneRecord) {
    Engine engine;
    add(engine, a_pool("eu", 1, 4, 4));
    engine.set_rule(a_rule({"eu"}), {}, {});
    engine.turn(noon);
    for (const auto* member : {"eu-1", "eu-2"}) engine.set_signal(member, signal(Health::down));
    const auto outcomes = engine.turn(noon + 1s);
    ASSERT_EQ(outcomes.size(), 1U);
    const auto& trigger = outcomes[0].record->at("trigger").as_object();
    EXPECT_EQ(text_at(trigger, "member"), "eu-2");
    EXPECT_EQ(text_at(trigger.at("also").at(0).as_object(), "member"), "eu-1");
}

TEST(GslbEngine, WhatIsWithheldIsRecordedOnceAndReleasedByTime) {
    Engine engine;
    auto pool = a_pool("eu", 1, 2, 2);
    pool.spec.guard = PoolSpec::Guard{.most = {.share = false, .value = 1}, .window = 60s};
    add(engine, pool);
    engine.set_rule(a_rule({"eu"}), {}, {});
    engine.turn(noon);
    engine.set_signal("eu-1", signal(Health::down));
    engine.turn(noon + 1s);
    engine.set_signal("eu-2", signal(Health::down));
    auto outcomes = engine.turn(noon + 2s);
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_FALSE(outcomes[0].answers_changed);
    EXPECT_EQ(text_at(*outcomes[0].record, "cause"), "mass_guard_hold");
    EXPECT_FALSE(outcomes[0].record->at("changed").as_bool());
    EXPECT_EQ(to_json_text(outcomes[0].record->at("before").at("answers")),
              to_json_text(outcomes[0].record->at("after").at("answers")));
    EXPECT_EQ(engine.next(), noon + 61s);
    EXPECT_THAT(engine.turn(noon + 30s), IsEmpty());
    outcomes = engine.turn(noon + 61s);
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_EQ(text_at(*outcomes[0].record, "cause"), "panic_enter");
    EXPECT_EQ(engine.next(), std::nullopt);
}

TEST(GslbEngine, ARestartChangesNoAnswerAndWritesNoRecord) {
    auto rule = a_rule({"eu", "us"});
    rule.failback = Failback::delayed;
    rule.failback_after = 60s;
    Engine before;
    add(before, a_pool("eu", 1, 1, 0));
    add(before, a_pool("us", 2, 1, 1));
    before.set_rule(rule, {}, {});
    before.turn(noon);
    before.set_signal("eu-1", signal(Health::up));
    const auto last = before.turn(noon + 10s).at(0).decision;
    EXPECT_THAT(last->answers[0].pools, ElementsAre("us"));

    Engine after;
    add(after, a_pool("us", 2, 1, 1));
    auto eu = a_pool("eu", 1, 1, 1);
    eu.members[0].signal.stale = true;
    add(after, eu);
    after.set_rule(rule, {}, {});
    after.remember("www", Memory::from(last->memory.to_json()), before.decisions("www"), last->summary());
    auto outcomes = after.turn(noon + 20s);
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_THAT(outcomes[0].decision->answers[0].pools, ElementsAre("us")) << "the wait goes on where it was";
    EXPECT_FALSE(outcomes[0].record);
    EXPECT_TRUE(outcomes[0].answers_changed) << "whoever serves the name must be told";
    EXPECT_EQ(after.next(), noon + 70s);
    EXPECT_THAT(after.turn(noon + 70s).at(0).decision->answers[0].pools, ElementsAre("eu"));
}

TEST(GslbEngine, ThingsMayComeInAnyOrderAndGo) {
    Engine engine;
    engine.set_rule(a_rule({"eu"}), {}, {});
    EXPECT_EQ(engine.turn(noon).at(0).decision->condition, Condition::empty);
    const auto pool = a_pool("eu", 1, 2, 1);
    for (const auto& member : pool.members) engine.set_signal(member.spec.name, member.signal);
    for (const auto& member : pool.members) engine.set_member(member, {});
    EXPECT_THAT(engine.turn(noon), IsEmpty()) << "no pool yet";
    engine.set_pool(pool.spec, {});
    EXPECT_THAT(members_of(engine.turn(noon).at(0).decision->answers[0]), ElementsAre("eu-1"));
    EXPECT_EQ(engine.name_of_fqdn("WWW.gslb.test."), "www");
    auto moved = *engine.member("eu-1");
    moved.spec.pool = "us";
    engine.set_member(moved, {});
    EXPECT_EQ(engine.turn(noon).at(0).decision->condition, Condition::panic);
    engine.remove_pool("eu", {});
    EXPECT_EQ(engine.turn(noon).at(0).decision->condition, Condition::empty);
    engine.remove_rule("www");
    const auto outcomes = engine.turn(noon);
    ASSERT_EQ(outcomes.size(), 1U);
    EXPECT_TRUE(outcomes[0].gone);
    EXPECT_EQ(engine.decision("www"), nullptr);
    EXPECT_EQ(engine.name_of_fqdn("www.gslb.test"), "");
}

namespace {

/// A site that lives: members fail and return, people say things, time passes.
class Life {
public:
    explicit Life(std::uint32_t seed) : random_(seed) {
        for (int at = 0; at < 4; ++at) {
            auto pool = a_pool(pool_name(at), at + 1, 4, 4);
            if (at % 2 == 0) pool.spec.guard = PoolSpec::Guard{.most = {.share = true, .value = 50}, .window = 20s};
            if (at == 1) pool.spec.load = PoolSpec::Load{.low = 10, .high = 90, .step = 25, .interval = 5s};
            for (auto& member : pool.members) {
                member.spec.weight = 1 + random_() % 5;
                member.site = "site" + std::to_string(at);
                member.spec.capacity = 30;
            }
            add(engine, pool);
        }
        auto failover = named("failover", a_rule({"p0", "p1", "p2"}, Steering::failover, Answers::weighted));
        failover.failback = Failback::delayed;
        failover.failback_after = 15s;
        failover.demand = 100;
        auto spread = named("spread", a_rule({"p1", "p2", "p3"}, Steering::spread, Answers::weighted_many));
        spread.pools[2].passive = true;
        spread.all_down = AllDown::last_good;
        auto topology = named("topology", a_rule({"p0", "p3"}, Steering::topology, Answers::subset));
        topology.max_answers = 2;
        topology.classes = {{.label = "west", .pools = {"p3"}, .prefixes = {"10.0.0.0/8"}}};
        auto latency = named("latency", a_rule({"p0", "p1", "p2"}, Steering::latency, Answers::sticky));
        latency.classes = {{.label = "v", .vantage = "dc1", .prefixes = {"10.0.0.0/8"}}};
        latency.failback = Failback::manual;
        latency.max_answers = 1;
        auto by_name = named("by-name", a_rule({"p2", "p0"}, Steering::failover, Answers::sticky_by_name));
        by_name.max_answers = 2;
        for (auto rule : {failover, spread, topology, latency, by_name}) {
            auto clients = Clients::of(rule.classes);
            engine.set_rule(rule, std::move(clients), {});
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
                                       : Override{.what = random_() % 2 == 0 ? Override::What::drain : Override::What::down,
                                                  .until = now + std::chrono::seconds(random_() % 60)};
            engine.set_member(known, {});
            return;
        }
        case 1: return; // only time passes
        default: {
            auto said = known.signal;
            said.standing = random_() % 5 < 3 ? Health::up : Health::down;
            said.until_change = std::chrono::seconds(random_() % 40);
            said.load = random_() % 120;
            said.rtt["dc1"] = static_cast<double>(random_() % 100);
            engine.set_signal(member, said);
        }
        }
    }

    Engine engine;
    WallTime now = noon;
    std::mt19937 random_;
};

} // namespace

TEST(GslbEngine, RecordedDecisionsAreDecidedAgainExactly) {
    Life life(11);
    int replayed = 0, held = 0;
    for (int step = 0; step < 400; ++step) {
        life.something();
        for (const auto& outcome : life.engine.turn(life.now)) {
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

TEST(GslbEngine, WhatIfIsWhatThenHappens) {
    Life life(23);
    life.engine.turn(life.now);
    for (int step = 0; step < 300; ++step) {
        life.something();
        life.engine.turn(life.now);
        const std::string name =
            std::vector<std::string>{"failover", "spread", "topology", "latency", "by-name"}[life.random_() % 5];
        Hypothesis change;
        std::string member;
        do member = life.some_member();
        while (std::none_of(life.engine.rule(name)->pools.begin(), life.engine.rule(name)->pools.end(),
                            [&](const auto& use) { return member.starts_with(use.pool); }));
        (step % 2 == 0 ? change.down_members : change.drained_members).insert(member);
        const auto foreseen = life.engine.what_if(name, change, life.now);
        ASSERT_TRUE(foreseen.ok());
        auto known = *life.engine.member(member);
        if (step % 2 == 0) {
            known.signal.standing = Health::down;
            life.engine.set_signal(member, known.signal);
        } else {
            known.spec.override_ = {.what = Override::What::drain};
            life.engine.set_member(known, {});
        }
        life.engine.turn(life.now);
        ASSERT_EQ(to_json_text(foreseen->after.to_json()), to_json_text(life.engine.decision(name)->to_json())) << step;
        const auto then = predict(life.engine.decision(name)->answers[0]);
        EXPECT_EQ(to_json_text(foreseen->shares_after[0].to_json()), to_json_text(then.to_json()));
    }
}

TEST(GslbEngine, ThousandsOfOtherNamesDoNotMatterToAChange) {
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
            engine.set_signal(name, signal(Health::up));
        }
    }
    for (int at = 0; at < many; ++at)
        engine.set_rule(named("n" + std::to_string(at), a_rule({"pool" + std::to_string(at % 100)})), {}, {});
    EXPECT_EQ(engine.turn(noon).size(), static_cast<std::size_t>(many));
    engine.set_signal("pool7-0", signal(Health::down));
    EXPECT_EQ(engine.turn(noon + 1s).size(), 100U) << "those that use the pool, and nobody else";
}

} // namespace orrery::gslb
