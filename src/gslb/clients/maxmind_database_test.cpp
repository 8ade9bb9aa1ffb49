#include "gslb/clients/geo_classes.h"
#include "gslb/clients/maxmind_database.h"
#include "gslb/clients/maxmind_fixture.h"
#include "gslb/decide/decision.h"
#include "gslb/decide/decision_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace orrery::gslb {

namespace {

using testing::a_database;
using ::testing::ElementsAre;

boost::asio::ip::address at(const char* text) { return boost::asio::ip::make_address(text); }

} // namespace

TEST(Geo, LocationsAreFoundInTreesOfAnyRecordSize) {
    for (const auto size : {24U, 28U, 32U}) {
        const auto database = MaxmindDatabase::read(a_database(size));
        ASSERT_TRUE(database.ok()) << size;
        EXPECT_EQ(database->type(), "Test-City");
        EXPECT_EQ(to_rfc3339(database->built()), "2023-11-14T22:13:20.000Z");
        const auto place = database->find(at("192.0.2.7"));
        ASSERT_TRUE(place) << size;
        EXPECT_EQ(place->continent, "EU");
        EXPECT_EQ(place->country, "NL");
        EXPECT_EQ(place->subdivision, "NH");
        EXPECT_EQ(place->location->latitude, 52.4);
        EXPECT_EQ(database->find(at("192.0.2.200"))->country, "DE");
        EXPECT_EQ(database->find(at("192.0.2.200"))->continent, "EU");
        EXPECT_EQ(database->find(at("192.0.2.200"))->asn, 64500U);
        EXPECT_EQ(database->find(at("2001:db8:1::1"))->country, "NL");
        EXPECT_EQ(database->find(at("192.0.3.7")), std::nullopt);
        EXPECT_EQ(database->find(at("2001:db9::1")), std::nullopt);
    }
}

GeoClasses sorted(const GeoQuery& query, const std::vector<MaxmindDatabase>& databases) {
    std::vector<const MaxmindDatabase*> all;
    for (const auto& one : databases) all.push_back(&one);
    return geo_classes(query, all);
}

std::vector<std::string> labels_of(const GeoClasses& made) {
    std::vector<std::string> out;
    for (const auto& one : made.classes) out.push_back(one.label);
    return out;
}

TEST(Geo, RulesSelectThePoolAndTheNearestIsTheDefault) {
    auto database = MaxmindDatabase::read(a_database(24));
    ASSERT_TRUE(database.ok());
    auto rule = testing::a_load_balancer({"ams", "nyc"}, Steering::geo);
    rule.geo = {{.country = "DE", .label = "germany", .pools = {"ams"}, .strict = true}};
    rule.nearest = true;
    std::map<std::string, PoolSpec> pools;
    pools["ams"].location = PoolSpec::Location{52.4, 4.9};
    pools["nyc"].location = PoolSpec::Location{40.7, -74.0};
    const auto made = sorted(GeoQuery::of(rule, pools), {*database});
    EXPECT_THAT(labels_of(made), ElementsAre("germany", "near ams, nyc", "near nyc, ams"));
    EXPECT_EQ(made.clients.find(at("192.0.2.200")), 1U);
    EXPECT_EQ(made.clients.find(at("192.0.2.7")), 2U);
    EXPECT_EQ(made.clients.find(at("2001:db8:7::1")), 2U);
    EXPECT_EQ(made.clients.find(at("198.51.100.9")), 3U);
    EXPECT_EQ(made.clients.find(at("203.0.113.9")), 0U);
    EXPECT_EQ(made.clients.find(at("2001:db9::1")), 0U);
    rule.classes = made.classes;
    Snapshot snapshot{.spec = rule, .time = testing::noon};
    for (const auto* pool : {"ams", "nyc"}) snapshot.pools.push_back(testing::view(testing::a_pool(pool, 1, 1, 1)));
    const auto decision = decide(snapshot);
    EXPECT_THAT(decision.answers.at(0).pools, ElementsAre("ams"));
    EXPECT_THAT(decision.answers.at(3).pools, ElementsAre("nyc"));
}

TEST(Geo, TheFirstFullyMatchingRuleApplies) {
    const auto database = MaxmindDatabase::read(a_database(28));
    ASSERT_TRUE(database.ok());
    const GeoQuery query{.rules = {{.country = "NL", .subdivision = "ZH", .label = "south", .pools = {"a"}},
                                   {.country = "NL", .subdivision = "NH", .label = "north", .pools = {"b"}},
                                   {.continent = "EU", .label = "europe", .pools = {"c"}},
                                   {.asn = 64500, .label = "never", .pools = {"d"}},
                                   {.continent = "NA", .label = "america", .pools = {"e"}}}};
    const auto made = sorted(query, {*database});
    EXPECT_THAT(labels_of(made), ElementsAre("south", "north", "europe", "never", "america"));
    EXPECT_EQ(made.clients.find(at("192.0.2.7")), 2U);
    EXPECT_EQ(made.clients.find(at("192.0.2.200")), 3U);
    EXPECT_EQ(made.clients.find(at("198.51.100.1")), 5U);
}

TEST(Geo, TwoDatabasesAreCombined) {
    const auto cities = MaxmindDatabase::read(a_database(24));
    testing::GeoWriter writer(32);
    const auto one = writer.data(testing::GeoWriter::map({{"autonomous_system_number", testing::GeoWriter::whole(6, 64496)}}));
    writer.network("192.0.2.64/26", one);
    writer.network("203.0.113.0/24", one);
    const auto systems = MaxmindDatabase::read(writer.finish());
    ASSERT_TRUE(cities.ok() && systems.ok());
    const GeoQuery query{.rules = {{.country = "NL", .asn = 64496, .label = "both", .pools = {"a"}},
                                   {.asn = 64496, .label = "asn", .pools = {"b"}},
                                   {.country = "NL", .label = "nl", .pools = {"c"}}}};
    const auto made = sorted(query, {*cities, *systems});
    EXPECT_EQ(made.clients.find(at("192.0.2.7")), 3U);
    EXPECT_EQ(made.clients.find(at("192.0.2.65")), 1U);
    EXPECT_EQ(made.clients.find(at("192.0.2.200")), 0U);
    EXPECT_EQ(made.clients.find(at("203.0.113.7")), 2U);
    EXPECT_EQ(made.clients.find(at("2001:db8::7")), 3U);
}

TEST(Geo, ScopesAreAsLargeAsTheAnswersPermit) {
    const auto database = MaxmindDatabase::read(a_database(24));
    ASSERT_TRUE(database.ok());
    const GeoQuery query{
        .rules = {{.country = "NL", .label = "nl", .pools = {"a"}}, {.country = "DE", .label = "de", .pools = {"b"}}}};
    const auto made = sorted(query, {*database});
    dns::ClientMap::Address client{192, 0, 2, 7};
    dns::DynamicName apart, together;
    made.clients.write_to(std::vector<std::uint32_t>{0, 1, 2}, apart);
    EXPECT_EQ(apart.clients->v4.find(client).scope, 25);
    EXPECT_EQ(apart.clients->v4.find(client).answer_set, 1U);
    // If both countries get the same answer, the scope is a /24.
    made.clients.write_to(std::vector<std::uint32_t>{0, 1, 1}, together);
    EXPECT_EQ(together.clients->v4.find(client).scope, 24);
    made.clients.write_to(std::vector<std::uint32_t>{0, 0, 0}, together);
    EXPECT_EQ(together.clients->v4.find(client).scope, 0);
    EXPECT_TRUE(together.clients->is_trivial());
    dns::DynamicName again;
    made.clients.write_to(std::vector<std::uint32_t>{0, 1, 2}, again);
    EXPECT_EQ(again.clients, apart.clients) << "names that are answered alike share one table";
}

TEST(Geo, DistancesAreGreatCircleDistances) {
    EXPECT_NEAR(distance({52.37, 4.90}, {40.71, -74.01}), 5860, 15);
    EXPECT_NEAR(distance({0, 179}, {0, -179}), 222, 1);
    EXPECT_EQ(distance({10, 10}, {10, 10}), 0);
}

TEST(Geo, DamagedFilesAreRefusedOrReadWithinTheirBounds) {
    const auto whole = a_database(28);
    const auto use = [](const std::string& bytes) {
        const auto database = MaxmindDatabase::read(bytes);
        if (!database.ok()) return;
        const auto made =
            sorted({.rules = {{.country = "NL", .label = "nl", .pools = {"a"}}}, .near = {{"b", {50, 5}}}}, {*database});
        dns::DynamicName answers;
        made.clients.write_to(std::vector<std::uint32_t>{0, 1, 2}, answers);
        for (const auto* client : {"192.0.2.7", "192.0.2.200", "2001:db8::1"}) std::ignore = database->find(at(client));
        EXPECT_LT(answers.clients->size(), 10'000U);
    };
    for (std::size_t size = 0; size < whole.size(); ++size) use(whole.substr(0, size));
    std::mt19937 random(5);
    for (int round = 0; round < 3000; ++round) {
        auto bytes = whole;
        for (int change = 0; change < 3; ++change) bytes[random() % bytes.size()] = static_cast<char>(random());
        use(bytes);
    }
}

} // namespace orrery::gslb
