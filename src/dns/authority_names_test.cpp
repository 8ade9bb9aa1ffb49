#include "dns/authority_testing.h"

#include <atomic>
#include <set>
#include <string>
#include <thread>

namespace orrery::dns {

TEST(Authority, SubnetsOfClients) {
    World world;
    Tailored tailored{.choices = {addresses({1}), addresses({2}), addresses({3})},
                      .by_client = {{prefix({10, 1, 0, 0}, 16), 1},
                                    {prefix({10, 1, 2, 0}, 24), 2},
                                    {prefix({10, 2, 0, 0}, 16), 1},
                                    {prefix({10, 3, 0, 0}, 16), 1}}};
    ASSERT_TRUE(world.set("geo.example.test", tailored).ok());
    const auto with = [&](Octets options) {
        return world.ask({.of = "geo.example.test", .edns = 1232, .options = std::move(options)});
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
    // No subnet: the asker's own address, and no option in the answer.
    const auto plain = world.ask({.of = "geo.example.test", .edns = 1232, .from = {10, 1, 2, 9}});
    EXPECT_EQ(plain.answer.at(0).to_text(), "geo.example.test 30 A 198.51.100.3");
    EXPECT_TRUE(plain.options.empty());
    EXPECT_EQ(world.ask({.of = "geo.example.test", .from = {10, 1, 9, 9}}).answer.at(0).to_text(),
              "geo.example.test 30 A 198.51.100.2");
    // Static names and negative answers are the same for all.
    EXPECT_EQ(world.ask({.of = "www.example.test", .edns = 1232, .options = subnet(1, 24, {10, 1, 2})}).options,
              subnet(1, 24, {10, 1, 2}, 0));
    EXPECT_EQ(world.ask({.of = "geo.example.test", .type = type::mx, .edns = 1232, .options = subnet(1, 24, {10, 1, 2})}).options,
              subnet(1, 24, {10, 1, 2}, 0));
    EXPECT_EQ(world.ask({.of = "geo.example.test", .type = type::aaaa, .edns = 1232, .options = subnet(1, 24, {10, 1, 2})}).options,
              subnet(1, 24, {10, 1, 2}, 0));
    const Octets v6{0x20, 0x01, 0x0d, 0xb8, 0, 0, 1};
    EXPECT_EQ(with(subnet(2, 56, v6)).options, subnet(2, 56, v6, 0));
    for (const auto& bad :
         {subnet(3, 24, {10, 1, 2}), subnet(1, 24, {10, 1, 2}, 1), subnet(1, 33, {10, 1, 2, 0, 0}), subnet(1, 23, {10, 1, 3}),
          subnet(1, 24, {10, 1, 2, 0}), subnet(1, 24, {10, 1}), Octets{0, 8, 0, 3, 0, 1, 0}})
        EXPECT_EQ(gist(with(bad)), "FORMERR | | |");
}

TEST(Authority, StickyNamesSayHowMuchOfTheClientCounts) {
    World world;
    auto choice = addresses({1, 2, 3, 4, 5, 6, 7, 8}, Picking::sticky);
    choice.most = 1;
    ASSERT_TRUE(world.set("sticky.example.test", {.choices = {choice}}).ok());
    const auto first = world.ask({.of = "sticky.example.test", .edns = 1232, .options = subnet(1, 24, {10, 1, 2})});
    EXPECT_EQ(first.options, subnet(1, 24, {10, 1, 2}, 24));
    for (int i = 0; i < 20; ++i) {
        const auto again = world.ask({.of = "sticky.example.test", .from = {10, 1, 2, static_cast<std::uint8_t>(i)}});
        EXPECT_EQ(texts(again.answer), texts(first.answer)); // the same network, told or seen
    }
}

TEST(Authority, NamesOfAWildcardAreSpreadAndAllClientsOfOneGetTheSame) {
    World world;
    auto choice = addresses({1, 2, 3, 4, 5, 6, 7, 8}, Picking::by_name);
    choice.most = 1;
    ASSERT_TRUE(world.set("*.cdn.example.test", {.choices = {choice}}).ok());
    std::set<std::string> all;
    for (int i = 0; i < 40; ++i) {
        const auto asked = "shop" + std::to_string(i) + ".cdn.example.test",
                   loud = "SHOP" + std::to_string(i) + ".cdn.Example.test";
        const auto first = world.ask({.of = asked, .edns = 1232, .options = subnet(1, 24, {10, 1, 2})});
        EXPECT_EQ(first.options, subnet(1, 24, {10, 1, 2}, 0)) << "whoever asks";
        ASSERT_EQ(first.answer.size(), 1U);
        const auto address = [](const Message& message) {
            return message.answer.at(0).to_text().substr(message.answer.at(0).to_text().rfind(' '));
        };
        EXPECT_EQ(address(world.ask({.of = loud, .from = {192, 0, 2, 9}})), address(first));
        all.insert(address(first));
    }
    EXPECT_GT(all.size(), 4U);
}

TEST(Authority, DynamicNamesBesideStaticOnes) {
    World world;
    auto both = addresses({1, 2});
    both.candidates[0].v6 = std::array<std::uint8_t, 16>{0x20, 1};
    ASSERT_TRUE(world.set("app.example.test", {.choices = {both}}).ok());
    EXPECT_THAT(texts(world.ask({"app.example.test"}).answer),
                testing::ElementsAre("app.example.test 30 A 198.51.100.1", "app.example.test 30 A 198.51.100.2"));
    EXPECT_EQ(world.ask({"app.example.test", type::aaaa}).answer.size(), 1U);
    EXPECT_EQ(gist(world.ask({"app.example.test", type::mx})), no_data);
    ASSERT_TRUE(world.set("example.test", {.choices = {addresses({5})}}).ok()); // the apex, beside SOA and MX
    EXPECT_EQ(world.ask({"example.test"}).answer.at(0).to_text(), "example.test 30 A 198.51.100.5");
    EXPECT_EQ(world.ask({"example.test", type::mx}).answer.size(), 1U);
    ASSERT_TRUE(world.set("*.dyn.example.test", {.choices = {addresses({6}, Picking::one)}}).ok());
    EXPECT_EQ(gist(world.ask({"any.dyn.example.test"})), "NOERROR aa | any.dyn.example.test 30 A 198.51.100.6, | |");
    ASSERT_TRUE(world.set("cname.example.test", {.choices = {{.ttl = 5, .alias = name("app.example.test")}}}).ok());
    EXPECT_EQ(gist(world.ask({"cname.example.test", type::mx})), "NOERROR aa | cname.example.test 5 CNAME app.example.test, | |");
    for (const auto& [empty, wanted] :
         {std::pair(Choice::Empty::nodata, no_data), std::pair(Choice::Empty::servfail, std::string("SERVFAIL | | |")),
          std::pair(Choice::Empty::refuse, std::string("REFUSED | | |"))}) {
        ASSERT_TRUE(world.set("none.example.test", {.choices = {{.when_empty = empty}}}).ok());
        EXPECT_EQ(gist(world.ask({"none.example.test"})), wanted);
        EXPECT_EQ(gist(world.ask({"none.example.test", type::txt})), no_data);
    }
    const auto turning = addresses({1, 2, 3}, Picking::rotate);
    ASSERT_TRUE(world.set("turn.example.test", {.choices = {turning}}).ok());
    const auto one = texts(world.ask({"turn.example.test"}).answer), two = texts(world.ask({"turn.example.test"}).answer);
    EXPECT_EQ(one.size(), 3U);
    EXPECT_EQ(one[1], two[0]);
    // Two members behind one address are one record.
    ASSERT_TRUE(world.set("twice.example.test", {.choices = {addresses({4, 4, 5}, Picking::rotate)}}).ok());
    EXPECT_THAT(texts(world.ask({"twice.example.test"}).answer),
                testing::UnorderedElementsAre("twice.example.test 30 A 198.51.100.4", "twice.example.test 30 A 198.51.100.5"));
    // And refused, with a reason, is what cannot be.
    const auto refused = [&](std::string_view of, Tailored tailored) {
        const auto done = world.set(of, std::move(tailored));
        return done.ok() ? std::string("ok") : done.error().message;
    };
    EXPECT_EQ(refused("www.other.test", {.choices = {addresses({1})}}), "www.other.test is in none of our zones");
    EXPECT_EQ(refused("www.example.test", {.choices = {addresses({1})}}),
              "www.example.test cannot be a dynamic name: its zone has A records at it");
    EXPECT_EQ(refused("x.sub.example.test", {.choices = {addresses({1})}}),
              "x.sub.example.test cannot be a dynamic name: sub.example.test is delegated");
    EXPECT_EQ(refused("example.test", {.choices = {{.alias = name("a.test")}}}),
              "example.test cannot be a dynamic name: the origin of a zone cannot have an alias");
    EXPECT_EQ(refused("odd.example.test", {.choices = {{.alias = name("a.test")}}}),
              "odd.example.test cannot be a dynamic name: its zone has records at it, and an alias stands alone");
    EXPECT_EQ(refused("new.example.test", {}), "new.example.test: there is no choice for it");
    Authority::Update clash{.revision = 20};
    clash.zones.push_back(example_zone("app A 192.0.2.200\n"));
    const auto clashed = world.authority.apply(std::move(clash));
    ASSERT_FALSE(clashed.ok());
    EXPECT_EQ(clashed.error().message,
              "the zone example.test does not go with the dynamic name app.example.test: its zone has A records at it");
    EXPECT_EQ(world.ask({"app.example.test"}).answer.size(), 2U);
}

/// While readers read without pause, names change: each answer is wholly the old or wholly the new, and what was replaced is freed.
TEST(Authority, ChangesUnderLoadGiveNoWrongAnswer) {
    World world;
    const auto generation = [](int i) {
        std::vector<int> out;
        for (int k = 0; k < 8; ++k) out.push_back(i % 2 == 0 ? k + 1 : k + 101);
        return Tailored{.choices = {addresses(out)}};
    };
    ASSERT_TRUE(world.set("app.example.test", generation(0)).ok());
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> readers;
    for (int t = 0; t < 2; ++t)
        readers.emplace_back([&] {
            const auto query = Ask{.of = "app.example.test", .edns = 1232}.bytes();
            Octets out(4096);
            while (!stop) {
                const auto size = world.authority.respond(query, {}, out);
                const auto message = read_message(Bytes(out).first(size));
                bool good = message.ok() && message->answer.size() == 8;
                for (std::size_t i = 1; good && i < 8; ++i)
                    good = message->answer[i].data[3] > 100 == message->answer[0].data[3] > 100;
                if (!good) ++wrong;
            }
        });
    for (int i = 1; i <= 300; ++i) {
        Authority::Update update{.revision = static_cast<std::uint64_t>(100 + i)};
        update.names.emplace_back(name("app.example.test"), generation(i));
        if (i % 10 == 0) update.zones.push_back(example_zone(i % 20 == 0 ? "extra A 192.0.2.200\n" : ""));
        ASSERT_TRUE(world.authority.apply(std::move(update)).ok());
    }
    stop = true;
    for (auto& reader : readers) reader.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(world.authority.waiting_garbage(), 0U);
}

} // namespace orrery::dns
