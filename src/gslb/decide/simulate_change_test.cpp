#include "core/text.h"
#include "gslb/decide/decision_fixture.h"
#include "gslb/decide/failover_time.h"
#include "gslb/decide/simulate_change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using testing::a_load_balancer;
using testing::a_pool;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::noon;
using testing::view;

Decision decided(LoadBalancerSpec spec, const std::vector<PoolInput>& pools) {
    Snapshot snapshot{.spec = std::move(spec), .time = noon};
    for (const auto& pool : pools) snapshot.pools.push_back(view(pool));
    return decide(snapshot);
}

std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 31U)) * 0x7fb5d329728ea185U;
    x = (x ^ (x >> 27U)) * 0x81dadef4bc2dd44dU;
    return x ^ (x >> 33U);
}

dns::SelectionInput draw(std::uint64_t number) {
    return {mix(number * 2 + 1), static_cast<std::uint32_t>(number), mix(number + 77)};
}

std::map<std::string, int> count(const Decision& decision, int draws) {
    std::map<std::string, int> out;
    for (int at = 0; at < draws; ++at)
        for (const auto* one : select(decision, {}, std::nullopt, draw(static_cast<std::uint64_t>(at))).members) ++out[one->member];
    return out;
}

} // namespace

TEST(AnswerSetCompilation, EqualAnswersAreOneAnswerSetWithoutPrefixes) {
    auto spec = a_load_balancer({"eu", "us"}, Steering::topology);
    spec.classes = {{.label = "a", .pools = {"us"}, .prefixes = {"10.0.0.0/9"}},
                    {.label = "b", .pools = {"us"}, .prefixes = {"10.128.0.0/9"}}};
    const auto clients = ClientClasses::of(spec.classes);
    auto dynamic_name = compile(decided(spec, {a_pool("eu", 1, 1, 1), a_pool("us", 2, 1, 1)}), clients);
    ASSERT_EQ(dynamic_name.answer_sets.size(), 2U);
    ASSERT_EQ(dynamic_name.client_rules.size(), 1U);
    EXPECT_EQ(prefix_text(dynamic_name.client_rules[0].prefix), "10.0.0.0/8");
    dynamic_name = compile(decided(spec, {a_pool("eu", 1, 1, 1), a_pool("us", 2, 1, 0)}), clients);
    EXPECT_EQ(dynamic_name.answer_sets.size(), 1U);
    EXPECT_THAT(dynamic_name.client_rules, IsEmpty());
}

TEST(AnswerSetCompilation, IdentitiesAreTheMembersAndDomainsTheLargestThatDiffer) {
    auto pool = a_pool("eu", 1, 3, 3);
    for (auto& member : pool.members) member.site = "ams";
    pool.members[0].rack = pool.members[1].rack = "r1";
    pool.members[2].rack = "r2";
    auto choice = compile(decided(a_load_balancer({"eu"}), {pool}).answers[0]);
    EXPECT_EQ(choice.candidates[0].domain, choice.candidates[1].domain);
    EXPECT_NE(choice.candidates[0].domain, choice.candidates[2].domain);
    EXPECT_NE(choice.candidates[0].domain, 0U);
    EXPECT_NE(choice.candidates[0].identity, choice.candidates[1].identity);
    const auto before = choice.candidates[2].identity;
    pool.members[1].site = "fra";
    pool.members[0].health.state = HealthState::down;
    choice = compile(decided(a_load_balancer({"eu"}), {pool}).answers[0]);
    EXPECT_EQ(choice.candidates[1].identity, before) << "with any other members";
    EXPECT_NE(choice.candidates[0].domain, choice.candidates[1].domain) << "by site now";
}

TEST(AnswerSetCompilation, AnEmptyAnswerIsGivenInTheConfiguredWay) {
    auto spec = a_load_balancer({"eu"});
    spec.all_down = AllDown::servfail;
    EXPECT_EQ(compile(decided(spec, {a_pool("eu", 1, 1, 0)}).answers[0]).when_empty, dns::AnswerSet::Empty::servfail);
    EXPECT_EQ(compile(decided(spec, {a_pool("eu", 1, 1, 0)}).answers[0]).extended_error, "no pool is usable");
    EXPECT_EQ(compile(decided(spec, {a_pool("eu", 1, 1, 1)}).answers[0]).extended_error, "");
    spec.all_down = AllDown::all;
    EXPECT_EQ(compile(decided(spec, {a_pool("eu", 1, 1, 0)}).answers[0]).extended_error, "panic: no pool is usable");
    spec.all_down = AllDown::refuse;
    EXPECT_EQ(compile(decided(spec, {a_pool("eu", 1, 1, 0)}).answers[0]).when_empty, dns::AnswerSet::Empty::refuse);
    spec.all_down = AllDown::fallback;
    spec.fallback_alias = "sorry.example";
    const auto choice = compile(decided(spec, {a_pool("eu", 1, 1, 0)}).answers[0]);
    EXPECT_EQ(choice.alias->to_text(), "sorry.example");
    EXPECT_THAT(choice.candidates, IsEmpty());
}

TEST(Selection, SharesFollowTheWeightsWithinStatisticalBounds) {
    auto pool = a_pool("p", 1, 4, 4);
    const std::vector<std::uint32_t> weights{1, 2, 3, 4};
    for (std::size_t at = 0; at < 4; ++at) pool.members[at].spec.weight = weights[at];
    constexpr int draws = 20'000;
    const auto decision = decided(a_load_balancer({"p"}, Steering::failover, Answers::weighted), {pool});
    auto seen = count(decision, draws);
    const auto shares = predict(decision.answers[0]);
    double chi_squared = 0;
    for (const auto& [member, share] : shares.by_member) {
        EXPECT_GT(share, 0);
        chi_squared += std::pow(seen[member] - share * draws, 2) / (share * draws);
    }
    EXPECT_LT(chi_squared, 16.27) << "3 degrees of freedom, one in a thousand";
    auto many = count(decided(a_load_balancer({"p"}, Steering::failover, Answers::weighted_many), {pool}), draws);
    EXPECT_EQ(many["p-4"], draws) << "the heaviest is always there";
    for (std::size_t at = 0; at < 3; ++at) {
        const auto expected = weights[at] / 4.0;
        EXPECT_NEAR(many["p-" + std::to_string(at + 1)] / static_cast<double>(draws), expected,
                    4 * std::sqrt(expected * (1 - expected) / draws));
    }
}

TEST(Selection, OnlyALostMembersClientsMove) {
    auto pool = a_pool("p", 1, 5, 5);
    pool.members[1].spec.weight = 3;
    const auto spec = [] {
        auto out = a_load_balancer({"p"}, Steering::failover, Answers::sticky);
        out.max_answers = 1;
        return out;
    }();
    const auto before = decided(spec, {pool});
    pool.members[2].health.state = HealthState::down;
    const auto after = decided(spec, {pool});
    int moved = 0, lost = 0;
    for (std::uint64_t client = 0; client < 5000; ++client) {
        const auto* was = select(before, {}, std::nullopt, draw(client)).members.at(0);
        const auto* is = select(after, {}, std::nullopt, draw(client)).members.at(0);
        if (was->member == "p-3") {
            ++lost;
            EXPECT_NE(is->member, "p-3");
        } else if (was->member != is->member) {
            ++moved;
        }
    }
    EXPECT_EQ(moved, 0);
    EXPECT_NEAR(lost / 5000.0, 1.0 / 7, 4 * std::sqrt(1.0 / 7 * 6 / 7 / 5000));
}

TEST(Selection, StickyByNameGivesAllClientsTheSameMemberAndWhatIfPredictsIt) {
    auto pool = a_pool("p", 1, 5, 5);
    auto spec = a_load_balancer({"p"}, Steering::failover, Answers::sticky_by_name);
    spec.max_answers = 1;
    const auto before = decided(spec, {pool});
    const auto first = select(before, {}, std::nullopt, draw(1)).members.at(0)->member;
    for (std::uint64_t client = 0; client < 100; ++client)
        EXPECT_EQ(select(before, {}, std::nullopt, draw(client)).members.at(0)->member, first);
    EXPECT_EQ(predict(before.answers[0]).by_member.at(first), 1) << "all of its clients";
    ProposedChange change;
    change.down_members.insert(first);
    const auto seen = simulate_change(spec, {{pool, {}}}, {}, change, noon);
    for (auto& member : pool.members)
        if (member.spec.name == first) member.health.state = HealthState::down;
    const auto after = decided(spec, {pool});
    const auto second = select(after, {}, std::nullopt, draw(1)).members.at(0)->member;
    EXPECT_NE(second, first);
    ASSERT_TRUE(seen.ok());
    EXPECT_EQ(seen->shares_after.at(0).by_member.at(second), 1) << "as it then is";
    // The names of a wildcard are many: by weight.
    spec.fqdn = "*.cdn.gslb.test";
    const auto spread = predict(decided(spec, {a_pool("p", 1, 5, 5)}).answers[0]);
    for (const auto& [member, share] : spread.by_member) EXPECT_NEAR(share, 0.2, 0.001);
    // What is replayed from a record picks the same.
    Snapshot snapshot{.spec = spec, .pools = {view(a_pool("p", 1, 5, 5))}, .time = noon};
    EXPECT_EQ(Snapshot::from(snapshot.to_json())->spec.answers, Answers::sticky_by_name);
}

TEST(Selection, ASubsetIsSpreadOverSites) {
    auto spec = a_load_balancer({"eu", "us"}, Steering::spread, Answers::subset);
    spec.max_answers = 2;
    auto eu = a_pool("eu", 1, 6, 6), us = a_pool("us", 2, 2, 2);
    for (auto& member : eu.members) member.site = "ams";
    for (auto& member : us.members) member.site = "nyc";
    const auto decision = decided(spec, {eu, us});
    for (std::uint64_t at = 0; at < 500; ++at) {
        const auto picked = select(decision, {}, std::nullopt, draw(at)).members;
        ASSERT_EQ(picked.size(), 2U);
        EXPECT_NE(picked[0]->site, picked[1]->site);
    }
    const auto shares = predict(decision.answers[0]);
    EXPECT_NEAR(shares.by_site.at("ams"), 0.5, 0.001);
    EXPECT_NEAR(shares.by_member.at("us-1"), 0.25, 0.02);
}

TEST(Selection, TheLongestPrefixSelectsTheAnswer) {
    auto spec = a_load_balancer({"eu", "us"}, Steering::topology);
    spec.classes = {{.label = "a", .pools = {"us"}, .prefixes = {"192.0.2.0/24"}}};
    const auto decision = decided(spec, {a_pool("eu", 1, 1, 1), a_pool("us", 2, 1, 1)});
    const auto clients = ClientClasses::of(spec.classes);
    const auto ask = [&](const char* client) {
        return select(decision, clients, boost::asio::ip::make_address(client), draw(1)).members.at(0)->member;
    };
    EXPECT_EQ(ask("192.0.2.9"), "us-1");
    EXPECT_EQ(ask("192.0.3.9"), "eu-1");
}

TEST(SimulateChange, TheWorstFailoverTimeIsTheSumOfDetectionPublicationAndTtl) {
    auto spec = a_load_balancer({"eu"});
    spec.ttl_max = 30;
    spec.ttl_min = 5;
    const MonitorSpec quick{.name = "q", .interval = 2s, .timeout = 1s, .fall = 3},
        slow{.name = "s", .interval = 10s, .timeout = 5s, .fall = 3};
    auto time = worst_failover(spec, {.monitors = {{"a", {quick}}, {"b", {quick}}}, .publication = 1s});
    EXPECT_EQ(time.detection, 7s);
    EXPECT_EQ(time.ttl, 6s) << "no longer than the quickest change";
    EXPECT_EQ(time.total(), 14s);
    EXPECT_THAT(time.warnings, IsEmpty());
    time = worst_failover(spec, {.monitors = {{"a", {quick, slow}}}, .publication = 0s});
    EXPECT_EQ(time.detection, 35s);
    const MonitorSpec hurried{.name = "h", .interval = 10s, .timeout = 1s, .fast_interval = 1s, .fall = 3};
    EXPECT_EQ(worst_failover(spec, {.monitors = {{"a", {hurried}}}, .publication = 0s}).detection, 13s)
        << "probes are fast after the first failure";
    spec.ttl_min = 25;
    time = worst_failover(spec, {.monitors = {{"a", {quick}}}, .publication = 0s});
    EXPECT_EQ(time.ttl, 25s);
    EXPECT_THAT(time.warnings, ElementsAre(HasSubstr("lower spec.ttl.max")));
    spec.failover_within = 20s;
    time = worst_failover(spec, {.monitors = {{"a", {quick}}}, .publication = 0s});
    EXPECT_THAT(time.warnings, Contains(HasSubstr("set spec.ttl.max to 13s or less")));
    spec.failover_within = 5s;
    EXPECT_THAT(worst_failover(spec, {.monitors = {{"a", {quick}}}, .publication = 0s}).warnings,
                Contains(HasSubstr("shorten the monitors' interval")));
    time = worst_failover(spec, {.monitors = {{"a", {quick}}, {"b", {}}}, .publication = 0s});
    EXPECT_FALSE(time.bounded);
    EXPECT_THAT(time.warnings, Contains(HasSubstr("a failure of b is never seen")));
}

TEST(SimulateChange, TheFailoverTimeIncludesDeadVantagesAndChecksThatCannotRun) {
    auto spec = a_load_balancer({"eu"});
    spec.ttl_max = spec.ttl_min = 5;
    const MonitorSpec quick{.name = "q", .interval = 2s, .timeout = 1s, .fall = 3};
    auto time = worst_failover(spec, {.monitors = {{"a", {quick}}}, .vantage_expiry = 7s});
    EXPECT_EQ(time.vantages, 7s);
    EXPECT_EQ(time.total(), 7s + 7s + 5s);
    EXPECT_EQ(to_json_text(time.to_json()),
              R"({"bounded":true,"worst":"19s","detection":"7s","vantages":"7s","publication":"0s","ttl":"5s"})");
    time =
        worst_failover(spec, {.monitors = {{"a", {quick}}}, .unchecked = {{"a", "disk: exit code 3"}, {"b", "disk: exit code 3"}}});
    EXPECT_FALSE(time.bounded);
    EXPECT_THAT(time.warnings, ElementsAre("a failure of a, b is not seen, because a check cannot run: disk: exit code 3"));
}

TEST(SimulateChange, AChangeThatLeavesTooLittleCapacityIsUnsafe) {
    auto spec = a_load_balancer({"eu", "us"}, Steering::spread, Answers::weighted);
    auto eu = a_pool("eu", 1, 2, 2), us = a_pool("us", 2, 2, 2);
    std::vector<PoolSnapshot> pools{{eu, {}}, {us, {}}};
    auto seen = simulate_change(spec, pools, {}, {.drained_pools = {"us"}}, noon);
    ASSERT_TRUE(seen.ok());
    EXPECT_EQ(seen->verdict, ImpactReport::Verdict::unknown);
    EXPECT_THAT(seen->messages, ElementsAre(HasSubstr("set spec.demand")));
    spec.demand = 100;
    EXPECT_THAT(simulate_change(spec, pools, {}, {.drained_pools = {"us"}}, noon)->messages,
                Contains(HasSubstr("set spec.capacity of Member eu-1")));
    for (auto& pool : pools)
        for (auto& member : pool.input.members) member.spec.capacity = 40;
    seen = simulate_change(spec, pools, {}, {.drained_pools = {"us"}}, noon);
    EXPECT_EQ(seen->verdict, ImpactReport::Verdict::unsafe);
    EXPECT_THAT(seen->messages, Contains("eu-1 would get 50.0 of 100, and can carry 40"));
    EXPECT_NEAR(seen->shares_before[0].by_site.at("us"), 0.5, 1e-9);
    EXPECT_NEAR(seen->shares_after[0].by_site.at("eu"), 1.0, 1e-9);
    spec.demand = 80;
    EXPECT_EQ(simulate_change(spec, pools, {}, {.drained_pools = {"us"}}, noon)->verdict, ImpactReport::Verdict::safe);
    seen = simulate_change(spec, pools, {}, {.drained_pools = {"us"}, .down_members = {"eu-1", "eu-2"}}, noon);
    EXPECT_EQ(seen->verdict, ImpactReport::Verdict::unsafe);
    EXPECT_THAT(seen->messages, Contains(HasSubstr("PANIC")));
    EXPECT_FALSE(simulate_change(spec, pools, {}, {.drained_pools = {"asia"}}, noon).ok());
    EXPECT_FALSE(simulate_change(spec, pools, {}, {.down_members = {"nobody"}}, noon).ok());
}

} // namespace orrery::gslb
