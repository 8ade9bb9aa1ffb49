#include "core/test_fixture.h"
#include "gslb/clients/geo_databases.h"
#include "gslb/clients/maxmind_fixture.h"
#include "gslb/runtime/gslb_fixture.h"

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

const GeoQuery by_country{
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

CO_TEST(GeoDatabases, AReplacedFileIsLoadedAndADamagedOneIsIgnored) {
    orrery::testing::TemporaryFolder folder;
    const auto file = folder.path() / "geo.mmdb";
    put_file(file, testing::a_database(28));
    VirtualClock clock;
    GeoDatabases geo(loop.get_executor(), clock, {.files = {file}});
    auto held = geo.classify(by_country);
    CO_ASSERT(held);
    EXPECT_EQ(held->clients.find(client("192.0.2.7")), 1U);
    EXPECT_THAT(held->message, HasSubstr("geo databases: Test-City of 2023-11-14"));
    int told = 0;
    geo.report_to([&] {
        ++told;
        held = geo.classify(by_country);
    });
    TaskGroup group(loop.get_executor());
    group.spawn(geo.run(Context::background()));

    put_file(file, "no database at all");
    const auto refused = [&] { return geo.gauges().at(1).second; };
    EXPECT_TRUE(co_await comes(clock, [&] { return refused() == 1; }));
    EXPECT_EQ(geo.gauges().at(2).second, 1) << "one file has an error";
    EXPECT_EQ(geo.classify(by_country), held) << "the last good one is used";
    std::filesystem::remove(file);
    EXPECT_TRUE(co_await comes(clock, [&] { return refused() == 2; }));
    EXPECT_EQ(told, 0);

    put_file(file, moved_database());
    EXPECT_TRUE(co_await comes(clock, [&] { return told == 1; }));
    EXPECT_EQ(held->clients.find(client("192.0.2.7")), 2U);
    EXPECT_EQ(geo.gauges().at(2).second, 0);

    // What was not asked before is worked out beside the loop.
    GeoQuery another = by_country;
    another.rules.pop_back();
    EXPECT_FALSE(geo.classify(another));
    EXPECT_TRUE(co_await comes(clock, [&] { return told == 2; }));
    co_await group.stop();
}

CO_TEST(GeoDatabases, WithoutAFileNoLocationIsKnownAndThatIsReported) {
    VirtualClock clock;
    GeoDatabases none(loop.get_executor(), clock, {});
    EXPECT_THAT(none.classify(by_country)->message, HasSubstr("dns.geo_databases is not set"));
    EXPECT_EQ(none.classify(by_country)->clients.find(client("192.0.2.7")), 0U);
    GeoDatabases missing(loop.get_executor(), clock, {.files = {"/nonexistent/geo.mmdb"}});
    EXPECT_THAT(missing.classify(by_country)->message, HasSubstr("there is no file /nonexistent/geo.mmdb"));
    co_return;
}

CO_TEST(GeoDatabases, NamesAreAnsweredByTheLocationOfTheClient) {
    orrery::testing::TemporaryFolder folder;
    const auto file = folder.path() / "geo.mmdb";
    put_file(file, testing::a_database(28));
    testing::GslbFixture fixture(loop, std::make_shared<store::MemoryStore::Shared>(), "a", {.files = {file}});
    CO_ASSERT((co_await testing::create_sample_site(fixture)).ok());
    CO_ASSERT(
        (co_await fixture.put("pools", "us", "{site: nyc, monitors: [web], location: {latitude: 40.7, longitude: -74}}")).ok());
    CO_ASSERT(
        (co_await fixture.put("pools", "eu", "{site: ams, monitors: [web], location: {latitude: 52.4, longitude: 4.9}}")).ok());
    CO_ASSERT((co_await fixture.put("loadbalancers", "geo",
                                    "{fqdn: geo.gslb.test, pools: [{pool: eu}, {pool: us}], steering: geo, "
                                    "geo: {rules: [{country: DE, pools: [us], strict: true}], nearest: true}}"))
                  .ok());
    const auto& engine = fixture.controller.engine();
    CO_ASSERT(co_await comes(fixture.base.clock, [&] { return fixture.publisher.names.contains("geo.gslb.test"); }));
    const auto pool_for = [&](const char* who) {
        const auto place = engine.clients("geo")->find(client(who));
        return engine.decision("geo")->answers.at(place).pools.at(0);
    };
    EXPECT_EQ(pool_for("192.0.2.7"), "eu");
    EXPECT_EQ(pool_for("192.0.2.200"), "us");
    EXPECT_EQ(pool_for("198.51.100.7"), "us");
    EXPECT_EQ(pool_for("203.0.113.1"), "eu");
    const auto answers = fixture.publisher.names.at("geo.gslb.test").answers;
    EXPECT_EQ(answers->answer_sets.size(), 2U);
    EXPECT_TRUE(answers->clients);
    const auto message = fixture.controller.why("geo", client("192.0.2.200"), std::nullopt);
    CO_ASSERT(message.ok());
    EXPECT_EQ(message->at("client").at("class"), "DE");
    EXPECT_THAT(to_json_text(message->at("messages")), HasSubstr("geo databases: Test-City of 2023-11-14"));

    // Only the networks move: the answers change, and the change is recorded.
    const auto records = fixture.decisions("geo").size();
    const auto before = fixture.base.clock.wall();
    co_await fixture.run_until_idle();
    put_file(file, moved_database());
    EXPECT_TRUE(co_await comes(fixture.base.clock, [&] { return pool_for("192.0.2.7") == "us"; }));
    co_await fixture.run_until_idle();
    EXPECT_NE(fixture.publisher.names.at("geo.gslb.test").answers->clients, answers->clients);
    EXPECT_GT(fixture.decisions("geo").size(), records);
    const auto then = fixture.controller.why("geo", client("192.0.2.7"), before);
    CO_ASSERT(then.ok());
    EXPECT_TRUE(then->at("replayed_exactly").as_bool());
    EXPECT_EQ(then->at("client").at("class"), "near us, eu") << "explained with the current networks";
    EXPECT_TRUE(then->at("client").as_object().contains("classified_by"));
    co_await fixture.group.stop();
}

} // namespace orrery::gslb
