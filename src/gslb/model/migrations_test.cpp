#include "core/json_fields.h"
#include "core/test_fixture.h"
#include "core/text.h"
#include "gslb/decide/decision_record.h"
#include "gslb/model/kinds.h"
#include "gslb/model/migrations.h"
#include "resource/migration.h"
#include "resource/resource_fixture.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace orrery::gslb {

namespace {

json::object parsed(std::string_view text) { return parse_json(text)->as_object(); }

asio::awaitable<void> migrate_one(asio::io_context& loop, std::string_view plural, resource::Object object, std::string& out) {
    resource::testing::ResourceFixture fixture(loop.get_executor(), std::make_shared<store::MemoryStore::Shared>(), all_kinds());
    const auto& kind = fixture.kind(plural);
    object.kind = kind.name();
    object.name = "x";
    store::Transaction transaction;
    transaction.put(kind.prefix() + "x", resource::to_stored(object));
    const auto context = Context::background();
    const auto stored = co_await fixture.store.apply(context, std::move(transaction));
    EXPECT_TRUE(stored.ok());
    const auto count = co_await resource::migrate_stored_fields(context, fixture.store, fixture.resources->registry());
    EXPECT_TRUE(count.ok() && *count == 1) << plural;
    const auto now = fixture.resources->get(kind, "x");
    out = to_json_text(json::object{{"spec", now->spec}, {"status", now->status}});
}

/// A stored object of an earlier version, after the migration of its kind: {"spec", "status"} as text.
std::string migrated(std::string_view plural, std::string_view spec, std::string_view status) {
    asio::io_context loop;
    resource::Object object;
    object.spec = parsed(spec);
    object.status = parsed(status);
    std::string out;
    asio::co_spawn(loop, migrate_one(loop, plural, std::move(object), out), asio::detached);
    loop.run();
    return out;
}

} // namespace

TEST(GslbMigrations, MonitorsGetTheNewNamesOfIntervalsAndLimits) {
    EXPECT_EQ(
        migrated("monitors", R"({"kind":"tls","interval":"9s","fast":"2s","slow":"1m","least_left":"7d"})", "{}"),
        R"({"spec":{"kind":"tls","interval":"9s","min_certificate_lifetime":"7d","fast_interval":"2s","down_interval":"1m"},"status":{}})");
    EXPECT_EQ(migrated("monitors", R"({"kind":"prometheus","query":"up","least":1,"most":5})", "{}"),
              R"({"spec":{"kind":"prometheus","query":"up","min":1,"max":5},"status":{}})");
}

TEST(GslbMigrations, PoolsGetMaxEjectionsAndAnInternalState) {
    EXPECT_EQ(migrated("pools", R"({"guard":{"most":"20%","window":"60s"}})",
                       R"({"state":"usable","why":"2 of 3 healthy, needs 2","memory":{"withdrawn":["a"]},)"
                       R"("withheld":[{"cause":"mass_guard_hold","about":"b","words":"held in"}]})"),
              R"({"spec":{"guard":{"window":"60s","max_ejections":"20%"}},)"
              R"("status":{"state":"usable","withheld":[{"cause":"mass_guard_hold","about":"b","message":"held in"}],)"
              R"("message":"2 of 3 healthy, needs 2","internal_state":{"withdrawn":["a"]}}})");
}

TEST(GslbMigrations, MembersGetDrainedAt) {
    EXPECT_EQ(
        migrated("members", R"({"pool":"eu"})",
                 R"({"state":"drained","why":"drained by carla","forgotten_at":"2026-11-16T05:00:00.000Z"})"),
        R"({"spec":{"pool":"eu"},"status":{"state":"drained","message":"drained by carla","drained_at":"2026-11-16T05:00:00.000Z"}})");
}

TEST(GslbMigrations, LoadBalancersGetMessagesAndPublicationTargets) {
    EXPECT_EQ(
        parsed(migrated("loadbalancers", R"({"fqdn":"www.gslb.test"})",
                        R"({"state":"normal","because":["eu answers"],"classes":[{"picking":"weighted","most":2}],)"
                        R"("published":[{"path":"pdns","state":"ERROR","why":"refused"}],"memory":{"leading":{"nl":"eu"}}})")),
        parsed(R"({"spec":{"fqdn":"www.gslb.test"},"status":{"state":"normal","classes":[{"policy":"weighted","max_answers":2}],)"
               R"("published":[{"state":"ERROR","target":"pdns","message":"refused"}],)"
               R"("messages":["eu answers"],"internal_state":{"leading":{"nl":"eu"}}}})"));
}

TEST(GslbMigrations, ZonesPublishersAndReportsGetAMessage) {
    EXPECT_EQ(migrated("zones", R"({"origin":"a.test"})", R"({"state":"refused","why":"line 3"})"),
              R"({"spec":{"origin":"a.test"},"status":{"state":"refused","message":"line 3"}})");
    EXPECT_EQ(migrated("publishers", R"({"driver":"powerdns","look_every":"5s"})", R"({"state":"ERROR","why":"refused"})"),
              R"({"spec":{"driver":"powerdns","poll_interval":"5s"},"status":{"state":"ERROR","message":"refused"}})");
    EXPECT_EQ(migrated("reports", R"({"member":"m","monitor":"own","state":"down","text":"disk full"})", "{}"),
              R"({"spec":{"member":"m","monitor":"own","state":"down","message":"disk full"},"status":{}})");
}

namespace {

/// A Decision as an earlier version stored it.
constexpr std::string_view old_decision = R"({
  "loadbalancer": "www", "fqdn": "www.gslb.test", "seq": 7, "at": "2026-11-16T05:00:00.000Z", "cause": "probe", "changed": true,
  "trigger": {"member": "eu-1", "from": "up", "to": "down", "words": "web: refused",
              "evidence": [{"vantage": "a", "says": "down", "class": "refused"}],
              "also": [{"member": "eu-2", "said": "nothing", "taken_back": {"said": "drain", "actor": "carla"}}]},
  "before": {"condition": "normal", "pool": "eu", "answers": ["192.0.2.1", "192.0.2.2"], "ttl": 30, "panic": false},
  "after": {"condition": "normal", "pool": "eu", "answers": ["192.0.2.2"], "ttl": 15, "panic": false,
            "classes": [{"pools": ["eu"], "answers": [{"member": "eu-2", "pool": "eu", "addresses": ["192.0.2.2"]}],
                         "picking": "all", "most": 4, "ttl": 15, "panic": false}]},
  "withheld": [{"cause": "failback", "about": "us", "words": "clients return later"}],
  "because": ["pool eu is usable: 1 of 2 healthy, needs 1", "eu-1 in eu: web: refused", "eu answers"],
  "inputs": {"name": "www", "time": "2026-11-16T05:00:00.000Z",
             "rule": {"fqdn": "www.gslb.test", "steering": "failover", "answers": "all", "zone": "gslb.test",
                      "pools": [{"pool": "eu"}], "max_answers": 4, "ttl": {"max": "30s", "min": "15s"},
                      "all_down": {"answer": "all"}},
             "places": "where clients are is not known",
             "pools": [{"name": "eu", "min_healthy": "50%",
                        "members": [{"name": "eu-1", "addresses": ["192.0.2.1"], "healthy": false, "why": "web: refused"},
                                    {"name": "eu-2", "addresses": ["192.0.2.2"], "until_change": "5s"}]}],
             "memory": {"left": {"us": {"since": "2026-11-16T04:00:00.000Z"}}}}})";

} // namespace

TEST(GslbMigrations, DecisionsOfEarlierVersionsStayReplayable) {
    const auto before = parsed(old_decision);
    const auto replayed = replay(before);
    ASSERT_TRUE(replayed.ok()) << replayed.error().text();
    auto now = before;
    migrate_decision(now);
    EXPECT_EQ(replayed->to_json(), object_at(now, "after")) << "exactly as it was decided";
    const auto again = replay(now);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(to_json_text(again->to_json()), to_json_text(replayed->to_json()));
    EXPECT_THAT(replayed->messages, ::testing::Contains("eu-1 in eu: web: refused"));
    EXPECT_EQ(Snapshot::from(object_at(before, "inputs"))->state.left.size(), 1U);
}

TEST(GslbMigrations, DecisionsAreRewrittenInTheStore) {
    const auto out = parsed(migrated("decisions", old_decision, "{}"));
    const auto& spec = object_at(out, "spec");
    EXPECT_EQ(texts_at(spec, "messages").size(), 3U);
    EXPECT_EQ(
        object_at(spec, "trigger"),
        parsed(
            R"({"member":"eu-1","from":"up","to":"down","evidence":[{"vantage":"a","class":"refused","state":"down"}],)"
            R"("also":[{"member":"eu-2","override":"nothing","cleared":{"actor":"carla","override":"drain"}}],"message":"web: refused"})"));
    EXPECT_EQ(text_at(array_at(spec, "withheld")[0].as_object(), "message"), "clients return later");
    auto once_more = spec;
    migrate_decision(once_more);
    EXPECT_EQ(once_more, spec) << "a current record is left as it is";
    for (const auto* old : {"because", "\"words\"", "\"rule\"", "memory", "picking", "said"})
        EXPECT_EQ(to_json_text(spec).find(old), std::string::npos) << old;
}

TEST(GslbMigrations, TasksThatDrainGetTheNewNameOfTheirExecutor) {
    auto spec = parsed(R"({"tasks":[{"name":"a","run":{"names":{"drain":"kernel"}},"undo":{"names":{"return":true}}},)"
                       R"({"name":"b","run":{"shell":"names"}}]})");
    migrate_tasks(spec);
    EXPECT_EQ(to_json_text(spec), R"({"tasks":[{"name":"a","run":{"gslb":{"drain":"kernel"}},"undo":{"gslb":{"undrain":true}}},)"
                                  R"({"name":"b","run":{"shell":"names"}}]})");
}

} // namespace orrery::gslb
