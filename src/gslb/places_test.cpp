#include "core/testing.h"
#include "gslb/geo_for_tests.h"
#include "gslb/places.h"
#include "gslb/plant_for_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;

/// Replaces it as `mv` does: at once, and another file.
void put_file(const std::filesystem::path& file, const std::string& bytes) {
    const auto beside = file.string() + ".new";
    std::ofstream(beside, std::ios::binary) << bytes;
    std::filesystem::rename(beside, file);
}

/// Amsterdam's database, or one in which its networks are American.
std::string moved_database() {
    testing::GeoWriter writer(24);
    const auto us = writer.data(testing::an_entry("NA", "US", 40.7, -74.0));
    writer.network("192.0.2.0/24", us);
    return writer.finish();
}

const GeoQuestion by_country{
    .rules = {{.country = "NL", .label = "NL", .pools = {"eu"}}, {.country = "US", .label = "US", .pools = {"us"}}}};

/// Until something holds that a thread has to do its part for.
template <class F> asio::awaitable<bool> comes(VirtualClock& clock, F holds) {
    for (int round = 0; round < 5000 && !holds(); ++round) {
        clock.advance(1s);
        std::this_thread::sleep_for(1ms);
        for (int i = 0; i < 5; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    }
    co_return holds();
}

boost::asio::ip::address client(const char* text) { return boost::asio::ip::make_address(text); }

} // namespace

CO_TEST(Places, AFileThatIsReplacedIsReadAgainAndADamagedOneChangesNothing) {
    orrery::testing::TemporaryFolder folder;
    const auto file = folder.path() / "places.mmdb";
    put_file(file, testing::a_database(28));
    VirtualClock clock;
    Places places(loop.get_executor(), clock, {.files = {file}});
    auto held = places.sort(by_country);
    CO_ASSERT(held);
    EXPECT_EQ(held->clients.find(client("192.0.2.7")), 1U);
    EXPECT_THAT(held->words, HasSubstr("known from Test-City of 2023-11-14"));
    int told = 0;
    places.report_to([&] {
        ++told;
        held = places.sort(by_country);
    });
    TaskGroup group(loop.get_executor());
    group.spawn(places.run(Context::background()));

    put_file(file, "no database at all");
    const auto refused = [&] { return places.gauges().at(1).second; };
    EXPECT_TRUE(co_await comes(clock, [&] { return refused() == 1; }));
    EXPECT_EQ(places.gauges().at(2).second, 1) << "one file is in trouble";
    EXPECT_EQ(places.sort(by_country), held) << "the last good one is used";
    std::filesystem::remove(file);
    EXPECT_TRUE(co_await comes(clock, [&] { return refused() == 2; }));
    EXPECT_EQ(told, 0);

    put_file(file, moved_database());
    EXPECT_TRUE(co_await comes(clock, [&] { return told == 1; }));
    EXPECT_EQ(held->clients.find(client("192.0.2.7")), 2U);
    EXPECT_EQ(places.gauges().at(2).second, 0);

    // What was not asked before is worked out beside the loop.
    GeoQuestion another = by_country;
    another.rules.pop_back();
    EXPECT_FALSE(places.sort(another));
    EXPECT_TRUE(co_await comes(clock, [&] { return told == 2; }));
    co_await group.stop();
}

CO_TEST(Places, WithoutAFileNobodysPlaceIsKnownAndThatIsSaid) {
    VirtualClock clock;
    Places none(loop.get_executor(), clock, {});
    EXPECT_THAT(none.sort(by_country)->words, HasSubstr("no dns.geo_databases are configured"));
    EXPECT_EQ(none.sort(by_country)->clients.find(client("192.0.2.7")), 0U);
    Places missing(loop.get_executor(), clock, {.files = {"/nonexistent/places.mmdb"}});
    EXPECT_THAT(missing.sort(by_country)->words, HasSubstr("there is no file /nonexistent/places.mmdb"));
    co_return;
}

CO_TEST(Places, NamesAreAnsweredByWhereClientsAre) {
    orrery::testing::TemporaryFolder folder;
    const auto file = folder.path() / "places.mmdb";
    put_file(file, testing::a_database(28));
    testing::Plant plant(loop, std::make_shared<store::MemoryStore::Shared>(), "a", {.files = {file}});
    CO_ASSERT((co_await testing::furnish(plant)).ok());
    CO_ASSERT((co_await plant.put("pools", "us", "{site: nyc, monitors: [web], location: {latitude: 40.7, longitude: -74}}")).ok());
    CO_ASSERT((co_await plant.put("pools", "eu", "{site: ams, monitors: [web], location: {latitude: 52.4, longitude: 4.9}}")).ok());
    CO_ASSERT((co_await plant.put("loadbalancers", "geo",
                                  "{fqdn: geo.gslb.test, pools: [{pool: eu}, {pool: us}], steering: geo, "
                                  "geo: {rules: [{country: DE, pools: [us], strict: true}], nearest: true}}"))
                  .ok());
    const auto& engine = plant.controller.engine();
    CO_ASSERT(co_await comes(plant.house.clock, [&] { return plant.sink.names.contains("geo.gslb.test"); }));
    const auto pool_for = [&](const char* who) {
        const auto place = engine.clients("geo")->find(client(who));
        return engine.decision("geo")->answers.at(place).pools.at(0);
    };
    EXPECT_EQ(pool_for("192.0.2.7"), "eu");
    EXPECT_EQ(pool_for("192.0.2.200"), "us");
    EXPECT_EQ(pool_for("198.51.100.7"), "us");
    EXPECT_EQ(pool_for("203.0.113.1"), "eu");
    const auto answers = plant.sink.names.at("geo.gslb.test").answers;
    EXPECT_EQ(answers->choices.size(), 2U);
    EXPECT_TRUE(answers->clients);
    const auto why = plant.controller.why("geo", client("192.0.2.200"), std::nullopt);
    CO_ASSERT(why.ok());
    EXPECT_EQ(why->at("client").at("class"), "DE");
    EXPECT_THAT(to_json_text(why->at("because")), HasSubstr("known from Test-City of 2023-11-14"));

    // The networks move, and nothing else: answers are others, and that has a record.
    const auto records = plant.decisions("geo").size();
    const auto before = plant.house.clock.wall();
    co_await plant.settle();
    put_file(file, moved_database());
    EXPECT_TRUE(co_await comes(plant.house.clock, [&] { return pool_for("192.0.2.7") == "us"; }));
    co_await plant.settle();
    EXPECT_NE(plant.sink.names.at("geo.gslb.test").answers->clients, answers->clients);
    EXPECT_GT(plant.decisions("geo").size(), records);
    const auto then = plant.controller.why("geo", client("192.0.2.7"), before);
    CO_ASSERT(then.ok());
    EXPECT_TRUE(then->at("replayed_exactly").as_bool());
    EXPECT_EQ(then->at("client").at("class"), "near us, eu") << "told by the networks of today";
    EXPECT_TRUE(then->at("client").as_object().contains("told_by"));
    co_await plant.group.stop();
}

} // namespace orrery::gslb
