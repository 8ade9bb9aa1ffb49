#include "core/json_fields.h"
#include "core/test_fixture.h"
#include "core/text.h"
#include "gslb/decide/compile_answers.h"
#include "gslb/decide/decision_fixture.h"
#include "gslb/model/kinds.h"
#include "gslb/publish/fake_dns_provider.h"
#include "gslb/publish/publication_controller.h"
#include "resource/resource_fixture.h"

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const Context emil = Context::make("emil");

class OneFake final : public DnsProviderFactory {
public:
    Result<std::shared_ptr<DnsProvider>> make(const std::string&, const json::object& spec) override {
        ++made;
        if (!error.empty()) return Error{Code::not_found, error};
        last = spec;
        return std::shared_ptr<DnsProvider>(service);
    }
    std::shared_ptr<FakeDnsProvider> service = std::make_shared<FakeDnsProvider>();
    std::string error;
    json::object last;
    int made = 0;
};

std::vector<resource::Kind> publisher_kinds() {
    std::vector<resource::Kind> out;
    out.push_back(publisher_kind());
    return out;
}

struct Press {
    explicit Press(asio::io_context& loop)
        : base(loop.get_executor(), std::make_shared<store::MemoryStore::Shared>(), publisher_kinds()),
          leadership(loop.get_executor(), base.store, {.server = "a", .exclusive = true, .clock = &base.clock}),
          publishing(loop.get_executor(), *base.resources, leadership, base.clock, factory, nullptr),
          group(loop.get_executor()) {
        group.spawn(leadership.run(emil));
        group.spawn(publishing.run(emil));
    }
    Task<resource::Outcome> publisher(std::string name, std::string yaml) {
        auto documents = parse_yaml(yaml);
        auto object = resource::read_object(base.kind("publishers"), name,
                                            json::object{{"kind", "Publisher"}, {"name", name}, {"spec", documents->at(0).value}});
        if (!object.ok()) co_return std::move(object).error();
        co_return co_await base.resources->create(emil, base.kind("publishers"), std::move(*object), {});
    }
    void decided(const std::string& fqdn, int healthy, std::int64_t number) {
        Snapshot snapshot{.spec = testing::a_load_balancer({"p"}),
                          .pools = {testing::view(testing::a_pool("p", 1, 2, healthy))},
                          .time = testing::noon};
        std::vector<AnswerPublisher::Change> all;
        all.push_back({fqdn, "gslb.test", nullptr, std::make_shared<const Decision>(decide(snapshot)), number});
        publishing.serve(std::move(all));
    }
    asio::awaitable<void> run_until_idle(Duration time = 2s) {
        for (int round = 0; round < 20; ++round) {
            base.clock.advance(time / 20);
            for (int i = 0; i < 40; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        }
    }
    json::object status(std::string_view name) { return base.resources->get(base.kind("publishers"), name)->status; }
    json::object publication_status(const std::string& fqdn) const {
        const auto all = publishing.publication_status(fqdn);
        return all.empty() ? json::object() : all.at(0).as_object();
    }

    resource::testing::ResourceFixture base;
    store::Leadership leadership;
    OneFake factory;
    PublicationController publishing;
    TaskGroup group;
};

} // namespace

CO_TEST(PublicationController, DecisionsAreSentToThePublishersOfTheirZone) {
    Press press(loop);
    co_await press.run_until_idle();
    CO_ASSERT_OK(co_await press.publisher("pdns", "{driver: externaldns, url: \"http://127.0.0.1:1\", zones: [GSLB.test]}"));
    press.decided("www.gslb.test", 2, 1);
    co_await press.run_until_idle();
    EXPECT_EQ(text_of(press.factory.service->zone["www.gslb.test."]), "A 10.1.0.1 10.1.0.2 (ttl 30)");
    EXPECT_EQ(text_at(press.publication_status("www.gslb.test"), "state"), "IN_SYNC");
    EXPECT_EQ(press.publishing.slowest_publication("www.gslb.test"), 100ms) << "up to a tenth of a second";
    EXPECT_EQ(press.publishing.slowest_publication("other.gslb.test"), 0ms);
    EXPECT_EQ(text_at(press.status("pdns"), "state"), "IN_SYNC");
    EXPECT_EQ(count_at(press.status("pdns"), "in_sync", 0), 1U);
    press.decided("www.gslb.test", 1, 2);
    co_await press.run_until_idle();
    EXPECT_EQ(text_of(press.factory.service->zone["www.gslb.test."]), "A 10.1.0.1 (ttl 30)");
    std::vector<AnswerPublisher::Change> removed;
    removed.push_back({"www.gslb.test", "gslb.test", nullptr, nullptr});
    press.publishing.serve(std::move(removed));
    co_await press.run_until_idle();
    EXPECT_EQ(text_of(press.factory.service->zone["www.gslb.test."]), "nothing");
    co_await press.group.stop();
}

CO_TEST(PublicationController, ANewPublisherGetsTheCurrentDecisionsAndARemovedOneLeavesItsRecords) {
    Press press(loop);
    co_await press.run_until_idle();
    press.decided("www.gslb.test", 2, 1);
    CO_ASSERT_OK(co_await press.publisher("pdns", "{driver: externaldns, url: \"http://127.0.0.1:1\", zones: [gslb.test]}"));
    co_await press.run_until_idle();
    EXPECT_EQ(text_of(press.factory.service->zone["www.gslb.test."]), "A 10.1.0.1 10.1.0.2 (ttl 30)");
    CO_ASSERT_OK(co_await press.base.resources->remove(emil, press.base.kind("publishers"), "pdns", {}));
    press.decided("www.gslb.test", 1, 2);
    co_await press.run_until_idle();
    EXPECT_EQ(text_of(press.factory.service->zone["www.gslb.test."]), "A 10.1.0.1 10.1.0.2 (ttl 30)");
    EXPECT_TRUE(press.publishing.publication_status("www.gslb.test").empty());
    co_await press.group.stop();
}

CO_TEST(PublicationController, AProviderThatCannotBeCreatedIsReportedAndRetriedWhenTheSecretChanges) {
    Press press(loop);
    co_await press.run_until_idle();
    CO_ASSERT_OK(
        co_await press.base.resources->create(emil, press.base.secrets(), resource::testing::a_secret("s", {{"x", "y"}}), {}));
    press.factory.error = "Secret s has no value \"key\"";
    CO_ASSERT_OK(
        co_await press.publisher("pdns", "{driver: powerdns, url: \"http://127.0.0.1:1\", credentials: s, zones: [gslb.test]}"));
    co_await press.run_until_idle();
    EXPECT_EQ(text_at(press.status("pdns"), "state"), "ERROR");
    EXPECT_THAT(text_at(press.status("pdns"), "message"), HasSubstr("has no value"));
    press.factory.error.clear();
    CO_ASSERT_OK(
        co_await press.base.resources->replace(emil, press.base.secrets(), resource::testing::a_secret("s", {{"key", "z"}}), {}));
    co_await press.run_until_idle();
    EXPECT_EQ(text_at(press.status("pdns"), "state"), "idle");
    co_await press.group.stop();
}

CO_TEST(PublicationController, APublisherNamesItsMissingSettings) {
    Press press(loop);
    for (const auto& [yaml, expected] : std::vector<std::pair<std::string, std::string>>{
             {"{driver: powerdns, zones: [a.test]}", "spec.url: is required by driver powerdns"},
             {"{driver: rfc2136, zones: [a.test]}", "spec.server: is required by driver rfc2136"},
             {"{driver: externaldns, url: \"http://x\", server: a, zones: [a.test]}", "spec.server: does not apply to externaldns"},
             {"{driver: externaldns, url: \"http://x\", zones: [a.test, A.test]}", "spec.zones[1]: is listed twice"},
             {"{driver: externaldns, url: \"http://x\", zones: [a.test], owner: \"a b\"}", "spec.owner"}}) {
        const auto refused = co_await press.publisher("p", yaml);
        EXPECT_FALSE(refused.ok()) << yaml;
        if (!refused.ok()) EXPECT_THAT(refused.error().text(), HasSubstr(expected));
    }
    co_await press.group.stop();
}

TEST(DesiredRecords, IsTheAnswerOfTheDefaultClientClass) {
    auto spec = testing::a_load_balancer({"p"}, Steering::failover, Answers::weighted);
    spec.all_down = AllDown::nodata;
    Snapshot snapshot{.spec = spec, .pools = {testing::view(testing::a_pool("p", 1, 3, 2))}, .time = testing::noon};
    EXPECT_EQ(text_of(desired_of(decide(snapshot), 7).sets), "A 10.1.0.1 10.1.0.2 (ttl 30)")
        << "one at a time there is all of them here";
    EXPECT_EQ(desired_of(decide(snapshot), 7).decision, 7U);
    snapshot.spec.answers = Answers::sticky_by_name;
    snapshot.spec.max_answers = 1;
    const auto chosen = select(decide(snapshot), {}, std::nullopt, {}).members.at(0)->addresses.texts().at(0);
    EXPECT_EQ(text_of(desired_of(decide(snapshot), 7).sets), "A " + chosen + " (ttl 30)") << "as the server here answers";
    snapshot.spec.answers = Answers::weighted;
    snapshot.pools = {testing::view(testing::a_pool("p", 1, 3, 0))};
    EXPECT_TRUE(desired_of(decide(snapshot), 8).empty_is_meant);
    snapshot.spec.all_down = AllDown::servfail;
    EXPECT_FALSE(desired_of(decide(snapshot), 9).empty_is_meant);
    snapshot.spec.all_down = AllDown::fallback;
    snapshot.spec.fallback_alias = "sorry.example";
    EXPECT_THAT(text_of(desired_of(decide(snapshot), 9).sets), HasSubstr("CNAME sorry.example."));
}

} // namespace orrery::gslb
