#include "dns/authority_fixture.h"

#include <atomic>
#include <set>
#include <string>
#include <thread>

namespace orrery::dns {

TEST(Authority, ClientSubnetSelectsTheAnswerSet) {
    AuthorityFixture fixture;
    DynamicName dynamic_name{.answer_sets = {addresses({1}), addresses({2}), addresses({3})},
                             .client_rules = {{prefix({10, 1, 0, 0}, 16), 1},
                                              {prefix({10, 1, 2, 0}, 24), 2},
                                              {prefix({10, 2, 0, 0}, 16), 1},
                                              {prefix({10, 3, 0, 0}, 16), 1}}};
    ASSERT_TRUE(fixture.set("geo.example.test", dynamic_name).ok());
    const auto with = [&](Octets options) {
        return fixture.ask({.of = "geo.example.test", .edns = 1232, .options = std::move(options)});
    };
    const auto check = [&](std::uint8_t source, Octets address, const std::string& wanted, int scope) {
        const auto message = with(subnet(1, source, address));
        ASSERT_EQ(message.answer.size(), 1U);
        EXPECT_EQ(message.answer[0].to_text(), "geo.example.test 30 A 198.51.100." + wanted);
        EXPECT_EQ(message.options, subnet(1, source, address, static_cast<std::uint8_t>(scope)));
    };
    check(24, {10, 1, 2}, "3", 24);
    check(24, {10, 1, 3}, "2", 24); // its sibling is the other
    check(24, {10, 1, 128}, "2", 17);
    check(24, {10, 2, 9}, "2", 15); // 10.2 and 10.3 merge
    check(24, {10, 3, 9}, "2", 15);
    check(32, {192, 0, 2, 1}, "1", 1); // half of all addresses: nothing in it differs
    check(8, {10}, "1", 16);           // it was too short for what is there
    check(0, {}, "1", 0);
    // Without ECS the source address counts, and the response has no ECS option.
    const auto plain = fixture.ask({.of = "geo.example.test", .edns = 1232, .from = {10, 1, 2, 9}});
    EXPECT_EQ(plain.answer.at(0).to_text(), "geo.example.test 30 A 198.51.100.3");
    EXPECT_TRUE(plain.options.empty());
    EXPECT_EQ(fixture.ask({.of = "geo.example.test", .from = {10, 1, 9, 9}}).answer.at(0).to_text(),
              "geo.example.test 30 A 198.51.100.2");
    // Static names and negative responses have scope 0.
    EXPECT_EQ(fixture.ask({.of = "www.example.test", .edns = 1232, .options = subnet(1, 24, {10, 1, 2})}).options,
              subnet(1, 24, {10, 1, 2}, 0));
    EXPECT_EQ(fixture.ask({.of = "geo.example.test", .type = type::mx, .edns = 1232, .options = subnet(1, 24, {10, 1, 2})}).options,
              subnet(1, 24, {10, 1, 2}, 0));
    EXPECT_EQ(
        fixture.ask({.of = "geo.example.test", .type = type::aaaa, .edns = 1232, .options = subnet(1, 24, {10, 1, 2})}).options,
        subnet(1, 24, {10, 1, 2}, 0));
    const Octets v6{0x20, 0x01, 0x0d, 0xb8, 0, 0, 1};
    EXPECT_EQ(with(subnet(2, 56, v6)).options, subnet(2, 56, v6, 0));
    for (const auto& bad :
         {subnet(3, 24, {10, 1, 2}), subnet(1, 24, {10, 1, 2}, 1), subnet(1, 33, {10, 1, 2, 0, 0}), subnet(1, 23, {10, 1, 3}),
          subnet(1, 24, {10, 1, 2, 0}), subnet(1, 24, {10, 1}), Octets{0, 8, 0, 3, 0, 1, 0}})
        EXPECT_EQ(summary(with(bad)), "FORMERR | | |");
}

TEST(Authority, EachFamilySelectsAmongCandidatesThatHaveIt) {
    AuthorityFixture fixture;
    const auto mixed_families = [](SelectionPolicy policy, std::size_t max_answers) {
        auto out = addresses({1, 2, 3, 4}, policy);
        out.max_answers = max_answers;
        for (std::size_t i = 0; i < 4; ++i) out.candidates[i].weight = static_cast<std::uint32_t>(i + 1);
        out.candidates[0].v6 = std::array<std::uint8_t, 16>{0x20, 1, 0x0d, 0xb8, 1};
        out.candidates[1].v6 = std::array<std::uint8_t, 16>{0x20, 1, 0x0d, 0xb8, 2};
        return out;
    };
    const auto texts_of = [&](std::uint16_t wanted) {
        std::set<std::string> out;
        for (int i = 0; i < 200; ++i) {
            const auto message = fixture.ask({.of = "mixed.example.test", .type = wanted});
            EXPECT_FALSE(message.answer.empty()) << "an answer without an address of the family";
            for (const auto& record : message.answer) out.insert(record.to_text());
        }
        return out;
    };
    for (const auto& [policy, most] : {std::pair(SelectionPolicy::weighted, 0), std::pair(SelectionPolicy::weighted_many, 0),
                                       std::pair(SelectionPolicy::subset, 2), std::pair(SelectionPolicy::subset, 1),
                                       std::pair(SelectionPolicy::round_robin, 1), std::pair(SelectionPolicy::all, 1)}) {
        ASSERT_TRUE(
            fixture.set("mixed.example.test", {.answer_sets = {mixed_families(policy, static_cast<std::size_t>(most))}}).ok());
        EXPECT_EQ(texts_of(type::aaaa).size(), policy == SelectionPolicy::all ? 1U : 2U);
        EXPECT_EQ(texts_of(type::a).size(), policy == SelectionPolicy::all ? 1U : 4U);
    }
    // A client of a sticky name keeps its member, even if that has no address of the family.
    auto sticky = mixed_families(SelectionPolicy::sticky, 1);
    ASSERT_TRUE(fixture.set("mixed.example.test", {.answer_sets = {sticky}}).ok());
    bool empty = false;
    for (std::uint8_t i = 0; i < 40; ++i)
        empty = empty || fixture.ask({.of = "mixed.example.test", .type = type::aaaa, .from = {10, i, 0, 1}}).answer.empty();
    EXPECT_TRUE(empty);
}

TEST(Authority, StickyNamesReturnTheirScope) {
    AuthorityFixture fixture;
    auto answer_set = addresses({1, 2, 3, 4, 5, 6, 7, 8}, SelectionPolicy::sticky);
    answer_set.max_answers = 1;
    ASSERT_TRUE(fixture.set("sticky.example.test", {.answer_sets = {answer_set}}).ok());
    const auto first = fixture.ask({.of = "sticky.example.test", .edns = 1232, .options = subnet(1, 24, {10, 1, 2})});
    EXPECT_EQ(first.options, subnet(1, 24, {10, 1, 2}, 24));
    for (int i = 0; i < 20; ++i) {
        const auto again = fixture.ask({.of = "sticky.example.test", .from = {10, 1, 2, static_cast<std::uint8_t>(i)}});
        EXPECT_EQ(texts(again.answer), texts(first.answer)); // the same network, from the option or from the address
    }
}

TEST(Authority, NamesBelowAWildcardAreSpreadAndAllClientsOfOneGetTheSame) {
    AuthorityFixture fixture;
    auto answer_set = addresses({1, 2, 3, 4, 5, 6, 7, 8}, SelectionPolicy::sticky_by_name);
    answer_set.max_answers = 1;
    ASSERT_TRUE(fixture.set("*.cdn.example.test", {.answer_sets = {answer_set}}).ok());
    std::set<std::string> all;
    for (int i = 0; i < 40; ++i) {
        const auto asked = "shop" + std::to_string(i) + ".cdn.example.test",
                   loud = "SHOP" + std::to_string(i) + ".cdn.Example.test";
        const auto first = fixture.ask({.of = asked, .edns = 1232, .options = subnet(1, 24, {10, 1, 2})});
        EXPECT_EQ(first.options, subnet(1, 24, {10, 1, 2}, 0)) << "for every client";
        ASSERT_EQ(first.answer.size(), 1U);
        const auto address = [](const Message& message) {
            return message.answer.at(0).to_text().substr(message.answer.at(0).to_text().rfind(' '));
        };
        EXPECT_EQ(address(fixture.ask({.of = loud, .from = {192, 0, 2, 9}})), address(first));
        all.insert(address(first));
    }
    EXPECT_GT(all.size(), 4U);
}

TEST(Authority, DynamicNamesBesideStaticOnes) {
    AuthorityFixture fixture;
    auto both = addresses({1, 2});
    both.candidates[0].v6 = std::array<std::uint8_t, 16>{0x20, 1};
    ASSERT_TRUE(fixture.set("app.example.test", {.answer_sets = {both}}).ok());
    EXPECT_THAT(texts(fixture.ask({"app.example.test"}).answer),
                testing::ElementsAre("app.example.test 30 A 198.51.100.1", "app.example.test 30 A 198.51.100.2"));
    EXPECT_EQ(fixture.ask({"app.example.test", type::aaaa}).answer.size(), 1U);
    EXPECT_EQ(summary(fixture.ask({"app.example.test", type::mx})), no_data);
    ASSERT_TRUE(fixture.set("example.test", {.answer_sets = {addresses({5})}}).ok()); // the apex, beside SOA and MX
    EXPECT_EQ(fixture.ask({"example.test"}).answer.at(0).to_text(), "example.test 30 A 198.51.100.5");
    EXPECT_EQ(fixture.ask({"example.test", type::mx}).answer.size(), 1U);
    ASSERT_TRUE(fixture.set("*.dyn.example.test", {.answer_sets = {addresses({6}, SelectionPolicy::weighted)}}).ok());
    EXPECT_EQ(summary(fixture.ask({"any.dyn.example.test"})), "NOERROR aa | any.dyn.example.test 30 A 198.51.100.6, | |");
    ASSERT_TRUE(fixture.set("cname.example.test", {.answer_sets = {{.ttl = 5, .alias = name("app.example.test")}}}).ok());
    EXPECT_EQ(summary(fixture.ask({"cname.example.test", type::mx})),
              "NOERROR aa | cname.example.test 5 CNAME app.example.test, | |");
    for (const auto& [empty, wanted] :
         {std::pair(AnswerSet::Empty::nodata, no_data), std::pair(AnswerSet::Empty::servfail, std::string("SERVFAIL | | |")),
          std::pair(AnswerSet::Empty::refuse, std::string("REFUSED | | |"))}) {
        ASSERT_TRUE(fixture.set("none.example.test", {.answer_sets = {{.when_empty = empty}}}).ok());
        EXPECT_EQ(summary(fixture.ask({"none.example.test"})), wanted);
        EXPECT_EQ(summary(fixture.ask({"none.example.test", type::txt})), no_data);
    }
    const auto turning = addresses({1, 2, 3}, SelectionPolicy::round_robin);
    ASSERT_TRUE(fixture.set("turn.example.test", {.answer_sets = {turning}}).ok());
    const auto one = texts(fixture.ask({"turn.example.test"}).answer), two = texts(fixture.ask({"turn.example.test"}).answer);
    EXPECT_EQ(one.size(), 3U);
    EXPECT_EQ(one[1], two[0]);
    // Two candidates with the same address give one record.
    ASSERT_TRUE(fixture.set("twice.example.test", {.answer_sets = {addresses({4, 4, 5}, SelectionPolicy::round_robin)}}).ok());
    EXPECT_THAT(texts(fixture.ask({"twice.example.test"}).answer),
                testing::UnorderedElementsAre("twice.example.test 30 A 198.51.100.4", "twice.example.test 30 A 198.51.100.5"));
    // Invalid updates are rejected with a reason.
    const auto refused = [&](std::string_view of, DynamicName dynamic_name) {
        const auto done = fixture.set(of, std::move(dynamic_name));
        return done.ok() ? std::string("ok") : done.error().message;
    };
    EXPECT_EQ(refused("www.other.test", {.answer_sets = {addresses({1})}}), "www.other.test is in no zone of this server");
    EXPECT_EQ(refused("www.example.test", {.answer_sets = {addresses({1})}}),
              "www.example.test cannot be a dynamic name: its zone has A records at it");
    EXPECT_EQ(refused("x.sub.example.test", {.answer_sets = {addresses({1})}}),
              "x.sub.example.test cannot be a dynamic name: sub.example.test is delegated");
    EXPECT_EQ(refused("example.test", {.answer_sets = {{.alias = name("a.test")}}}),
              "example.test cannot be a dynamic name: the origin of a zone cannot have an alias");
    EXPECT_EQ(
        refused("odd.example.test", {.answer_sets = {{.alias = name("a.test")}}}),
        "odd.example.test cannot be a dynamic name: its zone has records at the same name, and an alias allows no other records");
    EXPECT_EQ(refused("new.example.test", {}), "new.example.test: it has no answer set");
    Authority::Update clash{.revision = 20};
    clash.zones.push_back(example_zone("app A 192.0.2.200\n"));
    const auto clashed = fixture.authority.apply(std::move(clash));
    ASSERT_FALSE(clashed.ok());
    EXPECT_EQ(clashed.error().message,
              "the zone example.test conflicts with the dynamic name app.example.test: its zone has A records at it");
    EXPECT_EQ(fixture.ask({"app.example.test"}).answer.size(), 2U);
}

/// Names change while readers query without pause: each response is entirely old or entirely new, and replaced data is freed.
TEST(Authority, UpdatesUnderLoadGiveNoWrongAnswer) {
    AuthorityFixture fixture;
    const auto generation = [](int i) {
        std::vector<int> out;
        for (int k = 0; k < 8; ++k) out.push_back(i % 2 == 0 ? k + 1 : k + 101);
        return DynamicName{.answer_sets = {addresses(out)}};
    };
    ASSERT_TRUE(fixture.set("app.example.test", generation(0)).ok());
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> readers;
    for (int t = 0; t < 2; ++t)
        readers.emplace_back([&] {
            const auto query = TestQuery{.of = "app.example.test", .edns = 1232}.bytes();
            Octets out(4096);
            while (!stop) {
                const auto size = fixture.authority.respond(query, {}, out);
                const auto message = read_message(Bytes(out).first(size));
                bool good = message.ok() && message->answer.size() == 8;
                for (std::size_t i = 1; good && i < 8; ++i)
                    good = (message->answer[i].data[3] > 100) == (message->answer[0].data[3] > 100);
                if (!good) ++wrong;
            }
        });
    for (int i = 1; i <= 300; ++i) {
        Authority::Update update{.revision = static_cast<std::uint64_t>(100 + i)};
        update.dynamic_names.emplace_back(name("app.example.test"), generation(i));
        if (i % 10 == 0) update.zones.push_back(example_zone(i % 20 == 0 ? "extra A 192.0.2.200\n" : ""));
        ASSERT_TRUE(fixture.authority.apply(std::move(update)).ok());
    }
    stop = true;
    for (auto& reader : readers) reader.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(fixture.authority.pending_garbage(), 0U);
}

} // namespace orrery::dns
