#include "core/test_fixture.h"
#include "core/text.h"
#include "resource/migration.h"
#include "resource/object.h"
#include "resource/resource_fixture.h"
#include "store/memory_store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::resource {

namespace {

Kind old_probe_kind() {
    Kind kind("Probe", "probes", "For tests.");
    kind.spec(duration("fast", "Interval."))
        .spec(list("steps", "Steps.", object("step", "One.").with(integer("least", "Minimum."))))
        .spec(map("limits", "Limits.", object("limit", "One.").with(integer("most", "Maximum."))))
        .spec(text("title", "Unchanged."))
        .status(text("why", "Message."));
    return kind;
}

Kind new_probe_kind() {
    Kind kind("Probe", "probes", "For tests.");
    kind.spec(duration("fast_interval", "Interval.").renamed_from("fast"))
        .spec(list("steps", "Steps.", object("step", "One.").with(integer("min", "Minimum.").renamed_from("least"))))
        .spec(map("limits", "Limits.", object("limit", "One.").with(integer("max", "Maximum.").renamed_from("most"))))
        .spec(text("title", "Unchanged."))
        .status(text("message", "Message.").renamed_from("why"))
        .migrate([](json::object& spec, json::object&) {
            if (auto* title = spec.if_contains("title"); title != nullptr && *title == "old") *title = "new";
        });
    return kind;
}

std::vector<Kind> only(Kind kind) {
    std::vector<Kind> out;
    out.push_back(std::move(kind));
    return out;
}

json::object spec_of(const resource::testing::ResourceFixture& fixture, std::string_view name) {
    return from_stored(*fixture.resources->find(fixture.kind("probes"), name))->spec;
}

} // namespace

CO_TEST(Migration, RenamesStoredFieldsAtEveryDepthAndKeepsTheRest) {
    auto shared = std::make_shared<store::MemoryStore::Shared>();
    {
        resource::testing::ResourceFixture old(loop.get_executor(), shared, only(old_probe_kind()));
        auto object = resource::testing::an_object(
            "Probe", "p1",
            parse_json(R"({"fast":"2s","steps":[{"least":1},{"least":2}],"limits":{"a":{"most":7}},"title":"old"})")->as_object(),
            {{"rack", "r1"}});
        CO_ASSERT_OK(co_await old.resources->create(Context::background(), old.kind("probes"), std::move(object), {}));
        CO_ASSERT_OK(co_await old.resources->set_status(Context::background(), old.kind("probes"), "p1", {{"why", "slow"}}, {}));
    }
    resource::testing::ResourceFixture fixture(loop.get_executor(), shared, only(new_probe_kind()));
    const auto before = from_stored(*fixture.resources->find(fixture.kind("probes"), "p1"));
    const auto count = co_await migrate_stored_fields(Context::background(), fixture.store, fixture.registry);
    CO_ASSERT_OK(count);
    EXPECT_EQ(*count, 1U);
    const auto after = from_stored(*fixture.resources->find(fixture.kind("probes"), "p1"));
    EXPECT_EQ(json::value(after->spec),
              *parse_json(R"({"fast_interval":"2s","steps":[{"min":1},{"min":2}],"limits":{"a":{"max":7}},"title":"new"})"));
    EXPECT_EQ(json::value(after->status), *parse_json(R"({"message":"slow"})"));
    EXPECT_EQ(after->labels, before->labels);
    EXPECT_EQ(after->created_at, before->created_at);
    EXPECT_EQ(after->updated_at, before->updated_at);

    const auto revision = fixture.store.revision();
    const auto again = co_await migrate_stored_fields(Context::background(), fixture.store, fixture.registry);
    CO_ASSERT_OK(again);
    EXPECT_EQ(*again, 0U);
    EXPECT_EQ(fixture.store.revision(), revision) << "a migrated store is not written again";
}

CO_TEST(Migration, RewritesMoreResourcesThanFitInOneTransaction) {
    auto shared = std::make_shared<store::MemoryStore::Shared>();
    {
        resource::testing::ResourceFixture old(loop.get_executor(), shared, only(old_probe_kind()));
        for (int i = 0; i < 350; ++i) {
            auto object = resource::testing::an_object("Probe", fmt::format("p{}", i),
                                                       {{"fast", "2s"}, {"title", std::string(i < 10 ? 200'000 : 10, 'x')}});
            CO_ASSERT_OK(co_await old.resources->create(Context::background(), old.kind("probes"), std::move(object), {}));
        }
    }
    resource::testing::ResourceFixture fixture(loop.get_executor(), shared, only(new_probe_kind()));
    const auto count = co_await migrate_stored_fields(Context::background(), fixture.store, fixture.registry);
    CO_ASSERT_OK(count);
    EXPECT_EQ(*count, 350U);
    for (const auto* name : {"p0", "p9", "p10", "p349"}) EXPECT_EQ(spec_of(fixture, name).at("fast_interval"), "2s") << name;
}

CO_TEST(Migration, RewritesEventsOfAnEarlierVersion) {
    resource::testing::ResourceFixture fixture(loop.get_executor());
    constexpr int events = 5000; // more than one batch of concurrent transactions
    for (int first = 0; first < events; first += 100) {
        store::Transaction transaction;
        for (int i = first; i < first + 100; ++i)
            transaction.put(
                fmt::format("events/{:06}", i),
                fmt::format(R"({{"kind":"Event","name":"{:06}","labels":{{}},"spec":{{"subject":"Node/n","what":"updated",)"
                            R"("actor":"a","context":"c","because":"r{}","at":"2026-01-01T00:00:00.000Z"}},"status":{{}},)"
                            R"("created_at":"2026-01-01T00:00:00.000Z","updated_at":"2026-01-01T00:00:00.000Z"}})",
                            i, i));
        CO_ASSERT_OK(co_await fixture.store.apply(Context::background(), std::move(transaction)));
    }
    const auto count = co_await migrate_stored_fields(Context::background(), fixture.store, fixture.registry);
    CO_ASSERT_OK(count);
    EXPECT_EQ(*count, static_cast<std::size_t>(events));
    for (const int i : {0, 99, 100, 3199, 3200, 4999}) {
        const auto event = from_stored(*fixture.resources->find(fixture.events(), fmt::format("{:06}", i)));
        CO_ASSERT_OK(event);
        EXPECT_EQ(event->spec.at("action"), "updated");
        EXPECT_EQ(event->spec.at("reason"), json::value(fmt::format("r{}", i)));
        EXPECT_FALSE(event->spec.contains("what") || event->spec.contains("because"));
    }
}

TEST(Migration, AUserWhoSendsTheOldNameReadsTheNewOne) {
    const auto kind = new_probe_kind();
    const auto read = read_object(kind, "", *parse_json(R"({"kind":"Probe","name":"p","spec":{"fast":"2s"}})"));
    ASSERT_FALSE(read.ok());
    ASSERT_EQ(read.error().fields.size(), 1U);
    EXPECT_EQ(read.error().fields[0].path, "spec.fast");
    EXPECT_EQ(read.error().fields[0].message, "this field is called \"fast_interval\" now");
}

TEST(Migration, ASecretCannotBeRenamed) {
    Registry registry;
    Kind kind("Sample", "samples", "For tests.");
    kind.spec(text("passphrase", "A secret.").secret().renamed_from("password"));
    registry.add(std::move(kind));
    EXPECT_FALSE(registry.check().ok());
}

} // namespace orrery::resource
