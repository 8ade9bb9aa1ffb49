#include "core/json_fields.h"
#include "core/test_fixture.h"
#include "core/text.h"
#include "dns/message.h"
#include "gslb/decide/compile_answers.h"
#include "gslb/decide/decision_fixture.h"
#include "gslb/model/kinds.h"
#include "gslb/serve/name_service.h"
#include "gslb/serve/zone_records.h"
#include "resource/object.h"
#include "resource/resource_fixture.h"

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Context dora = Context::make("dora");

std::vector<resource::Kind> zone_kinds() {
    std::vector<resource::Kind> out;
    out.push_back(zone_kind());
    return out;
}

struct Names {
    explicit Names(asio::io_context& loop)
        : base(loop.get_executor(), std::make_shared<store::MemoryStore::Shared>(), zone_kinds()),
          leadership(loop.get_executor(), base.store, {.server = "a", .exclusive = true, .clock = &base.clock}),
          authority(std::make_shared<dns::Authority>(dns::Authority::Options{})),
          service(loop.get_executor(), *base.resources, leadership, base.clock, authority),
          group(loop.get_executor()) {
        group.spawn(leadership.run(dora));
        group.spawn(service.run(dora));
    }
    Task<resource::Outcome> zone(std::string name, std::string yaml) {
        auto documents = parse_yaml(yaml);
        auto object = resource::read_object(base.kind("zones"), name,
                                            json::object{{"kind", "Zone"}, {"name", name}, {"spec", documents->at(0).value}});
        if (!object.ok()) co_return std::move(object).error();
        if (base.resources->exists(base.kind("zones"), name))
            co_return co_await base.resources->replace(dora, base.kind("zones"), std::move(*object), {});
        co_return co_await base.resources->create(dora, base.kind("zones"), std::move(*object), {});
    }
    static AnswerPublisher::Change change(const std::string& fqdn, int healthy) {
        auto spec = testing::a_load_balancer({"p"});
        Snapshot snapshot{.spec = spec, .pools = {testing::view(testing::a_pool("p", 1, 2, healthy))}, .time = testing::noon};
        auto decision = std::make_shared<const Decision>(decide(snapshot));
        return {fqdn, "gslb.test", std::make_shared<const dns::DynamicName>(compile(*decision, {})), decision, 1};
    }
    void serve(const std::string& fqdn, int healthy) {
        std::vector<AnswerPublisher::Change> all;
        all.push_back(change(fqdn, healthy));
        service.serve(std::move(all));
    }
    /// What a client on the wire gets: addresses, or the rcode.
    std::vector<std::string> ask(const std::string& fqdn) const {
        const auto query = dns::write_query(1, *dns::Name::from_text(fqdn), dns::type::a);
        std::array<std::uint8_t, 1232> out{};
        const auto size = authority->respond(query, {}, out);
        const auto message = dns::read_message(dns::Bytes(out).first(size));
        if (!message.ok()) return {"no answer"};
        std::vector<std::string> all;
        for (const auto& record : message->answer)
            if (record.data.size() == 4)
                all.push_back(fmt::format("{}.{}.{}.{}", record.data[0], record.data[1], record.data[2], record.data[3]));
        if (all.empty()) all.push_back(fmt::format("rcode {}", static_cast<int>(message->rcode)));
        return all;
    }
    asio::awaitable<void> run_until_idle() {
        for (int round = 0; round < 20; ++round) {
            base.clock.advance(100ms);
            for (int i = 0; i < 20; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        }
    }
    resource::testing::ResourceFixture base;
    store::Leadership leadership;
    std::shared_ptr<dns::Authority> authority;
    NameService service;
    TaskGroup group;
};

std::string state_in(const json::array& published) { return text_at(published.at(0).as_object(), "state"); }
std::string why_in(const json::array& published) { return text_at(published.at(0).as_object(), "message"); }

} // namespace

CO_TEST(GslbNames, AreAnsweredInTheirZones) {
    Names names(loop);
    names.serve("www.gslb.test", 2);
    EXPECT_EQ(state_in(names.service.publication_status("www.gslb.test")), "ERROR");
    EXPECT_THAT(why_in(names.service.publication_status("www.gslb.test")), HasSubstr("no Zone"));
    CO_ASSERT_OK(
        co_await names.zone("gslb", "{origin: gslb.test, nameservers: [ns1.gslb.test], records: \"ns1 A 192.0.2.53\\n\"}"));
    EXPECT_THAT(names.ask("www.gslb.test"), ElementsAre("10.1.0.1", "10.1.0.2"));
    EXPECT_THAT(names.ask("ns1.gslb.test"), ElementsAre("192.0.2.53"));
    EXPECT_EQ(state_in(names.service.publication_status("www.gslb.test")), "IN_SYNC");
    names.serve("www.gslb.test", 1);
    EXPECT_THAT(names.ask("www.gslb.test"), ElementsAre("10.1.0.1"));
    co_await names.run_until_idle();
    auto status = names.base.resources->get(names.base.kind("zones"), "gslb")->status;
    EXPECT_EQ(text_at(status, "state"), "served");
    EXPECT_EQ(count_at(status, "names", 0), 1U);
    std::vector<AnswerPublisher::Change> gone;
    gone.push_back({"www.gslb.test", "gslb.test", nullptr, nullptr});
    names.service.serve(std::move(gone));
    EXPECT_THAT(names.ask("www.gslb.test"), ElementsAre("rcode 3"));
    CO_ASSERT_OK(co_await names.base.resources->remove(dora, names.base.kind("zones"), "gslb", {}));
    EXPECT_THAT(names.ask("ns1.gslb.test"), ElementsAre("rcode 5"));
    co_await names.group.stop();
}

CO_TEST(GslbNames, AreNotAnErrorIfOnlyAPublisherServesThem) {
    Names names(loop);
    names.serve("www.gslb.test", 2);
    EXPECT_EQ(state_in(names.service.publication_status("www.gslb.test")), "ERROR") << "it is not served";
    std::vector<std::string> told;
    names.service.report_to([&](const std::string& fqdn) { told.push_back(fqdn); });
    store::Transaction transaction;
    resource::Object publisher;
    publisher.kind = "Publisher";
    publisher.name = "pdns";
    publisher.spec = {{"zones", json::array{"gslb.test"}}};
    transaction.put("publishers/pdns", resource::to_stored(publisher));
    CO_ASSERT_OK(co_await names.base.store.apply(dora, std::move(transaction)));
    EXPECT_THAT(names.service.publication_status("www.gslb.test"), IsEmpty());
    EXPECT_THAT(told, ElementsAre("www.gslb.test"));
    names.service.report_to({});
    co_await names.group.stop();
}

CO_TEST(GslbNames, AZoneReportsNameServersWithoutAddress) {
    Names names(loop);
    CO_ASSERT_OK(co_await names.zone("gslb", "{origin: gslb.test, nameservers: [ns1.gslb.test, ns.other.test]}"));
    co_await names.run_until_idle();
    auto status = names.base.resources->get(names.base.kind("zones"), "gslb")->status;
    EXPECT_THAT(to_json_text(status), HasSubstr("name server ns1.gslb.test is in the zone and has no address there"));
    CO_ASSERT_OK(co_await names.zone(
        "gslb", "{origin: gslb.test, nameservers: [ns1.gslb.test, ns.other.test], records: \"ns1 A 192.0.2.53\\n\"}"));
    co_await names.run_until_idle();
    status = names.base.resources->get(names.base.kind("zones"), "gslb")->status;
    EXPECT_FALSE(status.contains("warnings")) << to_json_text(status);
    co_await names.group.stop();
}

CO_TEST(GslbNames, ANameWithStaticRecordsIsTheOnlyOneThatIsNotServed) {
    Names names(loop);
    CO_ASSERT_OK(
        co_await names.zone("gslb", "{origin: gslb.test, nameservers: [ns1.gslb.test], records: \"ns1 A 192.0.2.53\\n\"}"));
    std::vector<AnswerPublisher::Change> all;
    all.push_back(Names::change("ns1.gslb.test", 2));
    all.push_back(Names::change("www.gslb.test", 2));
    names.service.serve(std::move(all));
    EXPECT_EQ(state_in(names.service.publication_status("ns1.gslb.test")), "ERROR");
    EXPECT_THAT(names.ask("ns1.gslb.test"), ElementsAre("192.0.2.53"));
    EXPECT_THAT(names.ask("www.gslb.test"), ElementsAre("10.1.0.1", "10.1.0.2"));
    // The record goes, and the name comes; another record comes, and that name goes.
    CO_ASSERT_OK(
        co_await names.zone("gslb", "{origin: gslb.test, nameservers: [ns1.gslb.test], records: \"www A 192.0.2.80\\n\"}"));
    EXPECT_THAT(names.ask("ns1.gslb.test"), ElementsAre("10.1.0.1", "10.1.0.2"));
    EXPECT_THAT(names.ask("www.gslb.test"), ElementsAre("192.0.2.80"));
    EXPECT_EQ(state_in(names.service.publication_status("www.gslb.test")), "ERROR");
    co_await names.group.stop();
}

CO_TEST(GslbNames, AnInvalidZoneIsRefusedWithItsLine) {
    Names names(loop);
    const auto refused = co_await names.zone(
        "gslb", "{origin: gslb.test, nameservers: [ns1.gslb.test], records: \"a A 192.0.2.1\\nb A 300.1.1.1\\n\"}");
    CO_ASSERT(!refused.ok());
    EXPECT_THAT(refused.error().text(), HasSubstr("spec.records"));
    EXPECT_THAT(refused.error().text(), HasSubstr("line 2"));
    CO_ASSERT_OK(co_await names.zone("gslb", "{origin: GSLB.test., nameservers: [ns1.gslb.test]}"));
    EXPECT_FALSE((co_await names.zone("other", "{origin: gslb.test, nameservers: [ns1.gslb.test]}")).ok());
    EXPECT_FALSE((co_await names.zone("third", "{origin: \"-\", nameservers: [ns1.gslb.test]}")).ok());
    co_await names.group.stop();
}

CO_TEST(GslbNames, AZoneIsSignedWithItsSecretAndReportsItsDsRecord) {
    Names names(loop);
    const auto pem = dns::SigningKey::generate_pem();
    CO_ASSERT_OK(pem);
    CO_ASSERT_OK(co_await names.base.resources->create(dora, names.base.secrets(),
                                                       resource::testing::a_secret("zsk", {{"private_key", *pem}}), {}));
    CO_ASSERT_OK(co_await names.zone("gslb", "{origin: gslb.test, nameservers: [ns1.gslb.test], signing_key: zsk}"));
    co_await names.run_until_idle();
    auto status = names.base.resources->get(names.base.kind("zones"), "gslb")->status;
    EXPECT_THAT(text_at(status, "ds"), HasSubstr(" 13 2 "));
    EXPECT_THAT(to_json_text(status), ::testing::Not(HasSubstr("PRIVATE")));
    CO_ASSERT_OK(co_await names.base.resources->replace(dora, names.base.secrets(),
                                                        resource::testing::a_secret("zsk", {{"private_key", "no key"}}), {}));
    co_await names.run_until_idle();
    status = names.base.resources->get(names.base.kind("zones"), "gslb")->status;
    EXPECT_THAT(text_at(status, "message"), HasSubstr("not signed with the present key"));
    EXPECT_THAT(text_at(status, "ds"), HasSubstr(" 13 2 ")) << "the previous key continues to sign";
    co_await names.group.stop();
}

} // namespace orrery::gslb
