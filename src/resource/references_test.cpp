#include "core/test_fixture.h"
#include "core/text.h"
#include "resource/resource_fixture.h"
#include "resource/resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace orrery::resource {

namespace {

using resource::testing::a_node;
using resource::testing::a_secret;
using resource::testing::ResourceFixture;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Context someone = Context::make("bob");

/// References to secrets that are not there.
std::vector<std::string> dangling_references(const ResourceFixture& fixture) {
    std::vector<std::string> out;
    for (const auto& [key, record] : fixture.shared->records) {
        if (!key.starts_with("nodes/")) continue;
        const auto node = Node::from(*from_stored(*record));
        if (!node.ssh_key.empty() && !fixture.shared->records.contains("secrets/" + node.ssh_key))
            out.push_back(key + " -> " + node.ssh_key);
    }
    return out;
}

asio::awaitable<void> disturb(ResourceFixture& fixture, unsigned seed, int steps) {
    std::mt19937 random(seed);
    for (int i = 0; i < steps; ++i) {
        const auto secret = "s" + std::to_string(random() % 3);
        const auto node = "n" + std::to_string(random() % 4);
        switch (random() % 6) {
        case 0: (void)co_await fixture.resources->create(someone, fixture.secrets(), a_secret(secret, {{"k", "v"}}), {}); break;
        case 1: (void)co_await fixture.resources->remove(someone, fixture.secrets(), secret, {}); break;
        case 2: (void)co_await fixture.resources->create(someone, fixture.nodes(), a_node(node, {}, secret), {}); break;
        case 3: (void)co_await fixture.resources->replace(someone, fixture.nodes(), a_node(node, {}, secret), {}); break;
        case 4: (void)co_await fixture.resources->replace(someone, fixture.nodes(), a_node(node), {}); break;
        default: (void)co_await fixture.resources->remove(someone, fixture.nodes(), node, {}); break;
        }
    }
}

asio::awaitable<void> count_up(ResourceFixture& fixture, int times, int* failures) {
    for (int i = 0; i < times; ++i) {
        for (;;) {
            const auto now = fixture.resources->get(fixture.nodes(), "n1");
            WriteOptions options;
            options.if_revision = now->revision;
            const auto count = std::stoi(now->labels.at("count"));
            auto written = co_await fixture.resources->patch(
                someone, fixture.nodes(), "n1", json::object{{"labels", {{"count", std::to_string(count + 1)}}}}, options);
            if (written.ok()) break;
            if (written.error().fields.empty() || written.error().fields[0].path != "If-Match") ++*failures;
        }
    }
}

asio::awaitable<void> label_with(ResourceFixture& fixture, std::string label, int times) {
    for (int i = 0; i < times; ++i) {
        auto written = co_await fixture.resources->patch(someone, fixture.nodes(), "n1",
                                                         json::object{{"labels", {{label, std::to_string(i)}}}}, {});
        EXPECT_TRUE(written.ok()) << written.error().text();
    }
}

} // namespace

CO_TEST(References, ATextMayBeAValueOfASecret) {
    Kind visit("Visit", "visits", "A request.");
    visit.spec(map("headers", "Header fields.", text("value", "A value.").or_secret().format(Format::one_line)))
        .spec(text("body", "What to send.").or_secret());
    std::vector<Kind> more;
    more.push_back(std::move(visit));
    ResourceFixture fixture(loop.get_executor(), std::make_shared<store::MemoryStore::Shared>(), std::move(more));
    auto& resources = *fixture.resources;
    const auto& kind = fixture.kind("Visit");
    CO_ASSERT_OK(fixture.registry.check());
    const auto visit_with = [](json::value value) {
        return resource::testing::an_object("Visit", "v", {{"headers", json::object{{"X-Key", std::move(value)}}}});
    };
    const auto refusal = [&](json::value value) -> Task<std::string> {
        const auto made = co_await resources.create(someone, kind, visit_with(std::move(value)), {});
        if (made.ok() || made.error().fields.empty()) co_return std::string("taken");
        co_return made.error().fields[0].path + " " + made.error().fields[0].message;
    };
    EXPECT_EQ(*co_await refusal(json::object{{"secret", "site.key"}}),
              "spec.headers.X-Key.secret refers to Secret \"site\", which does not exist");
    CO_ASSERT_OK(co_await resources.create(someone, fixture.secrets(), a_secret("site", {{"key", "v"}, {"other", "w"}}), {}));
    EXPECT_EQ(*co_await refusal(json::object{{"secret", "site.password"}}),
              "spec.headers.X-Key.secret Secret \"site\" has no value \"password\"; it has key, other");
    for (const auto* bad : {"site", "site.", ".key", "Site.key"})
        EXPECT_THAT(*co_await refusal(json::object{{"secret", bad}}), HasSubstr("must name a Secret and one of its values")) << bad;
    EXPECT_THAT(*co_await refusal(json::object{{"secret", "site.key"}, {"value", "x"}}),
                HasSubstr("spec.headers.X-Key.value unknown field"));
    EXPECT_THAT(*co_await refusal(json::object{}), HasSubstr("spec.headers.X-Key.secret must name"));
    EXPECT_THAT(*co_await refusal(5), HasSubstr("must be a text"));
    EXPECT_THAT(*co_await refusal("a\nb"), HasSubstr("must be one line"));

    CO_ASSERT_OK(co_await resources.create(someone, kind, visit_with(json::object{{"secret", "site.key"}}), {}));
    const auto kept = co_await resources.remove(someone, fixture.secrets(), "site", {});
    EXPECT_EQ(kept.error().code, Code::conflict);
    EXPECT_THAT(kept.error().text(), HasSubstr("Visit/v (spec.headers.X-Key.secret)"));
    // A value that is gone does not keep other fields from being changed.
    CO_ASSERT_OK(co_await resources.replace(someone, fixture.secrets(), a_secret("site", {{"other", "w"}}), {}));
    CO_ASSERT_OK(co_await resources.patch(someone, kind, "v", json::object{{"spec", {{"body", "x"}}}}, {}));
    CO_ASSERT_OK(co_await resources.replace(someone, kind, visit_with("plain"), {}));
    CO_ASSERT_OK(co_await resources.remove(someone, fixture.secrets(), "site", {}));
}

CO_TEST(References, MustExistAndKeepTheirTarget) {
    ResourceFixture fixture(loop.get_executor());
    auto& resources = *fixture.resources;
    auto early = co_await resources.create(someone, fixture.nodes(), a_node("n1", {}, "key"), {});
    EXPECT_EQ(early.error().code, Code::invalid);
    EXPECT_EQ(early.error().fields.at(0).message, "refers to Secret \"key\", which does not exist");
    {
        auto step = co_await resources.create(someone, fixture.secrets(), a_secret("key", {{"private_key", "x"}}), {});
        CO_ASSERT_OK(step);
    }
    {
        auto step = co_await resources.create(someone, fixture.nodes(), a_node("n1", {}, "key"), {});
        CO_ASSERT_OK(step);
    }
    EXPECT_THAT(resources.referrers(fixture.secrets(), "key"), ElementsAre("Node/n1 (spec.ssh.key)"));
    auto kept = co_await resources.remove(someone, fixture.secrets(), "key", {});
    EXPECT_EQ(kept.error().code, Code::conflict);
    EXPECT_THAT(kept.error().message, HasSubstr("is referred to by Node/n1 (spec.ssh.key)"));
    CO_ASSERT(kept.error().fields.size() == 1);
    EXPECT_EQ(kept.error().fields[0].path, "Node/n1");
    EXPECT_EQ(kept.error().fields[0].message, "spec.ssh.key");
    for (const auto* name : {"n2", "n3", "n4"}) {
        auto step = co_await resources.create(someone, fixture.nodes(), a_node(name, {}, "key"), {});
        CO_ASSERT_OK(step);
    }
    auto many = co_await resources.remove(someone, fixture.secrets(), "key", {});
    EXPECT_EQ(many.error().message, "Secret key is referred to by 4 resources"); // the fields list them, once
    EXPECT_EQ(many.error().fields.size(), 4U);
    for (const auto* name : {"n2", "n3", "n4"}) {
        auto step = co_await resources.remove(someone, fixture.nodes(), name, {});
        CO_ASSERT_OK(step);
    }
    {
        auto step = co_await resources.patch(someone, fixture.nodes(), "n1", *parse_json(R"({"spec":{"ssh":{"key":null}}})"), {});
        CO_ASSERT_OK(step);
    }
    EXPECT_TRUE(resources.referrers(fixture.secrets(), "key").empty());
    {
        auto step = co_await resources.remove(someone, fixture.secrets(), "key", {});
        CO_ASSERT_OK(step);
    }
    EXPECT_EQ(fixture.store.count("references/"), 0U);
}

CO_TEST(References, ManyReferrersAreCountedAndSomeNamed) {
    ResourceFixture fixture(loop.get_executor());
    auto& resources = *fixture.resources;
    {
        auto step = co_await resources.create(someone, fixture.secrets(), a_secret("key", {{"k", "x"}}), {});
        CO_ASSERT_OK(step);
    }
    for (int i = 0; i < 30; ++i) {
        auto step = co_await resources.create(someone, fixture.nodes(), a_node(fmt::format("n{:02}", i), {}, "key"), {});
        CO_ASSERT_OK(step);
    }
    auto kept = co_await resources.remove(someone, fixture.secrets(), "key", {});
    EXPECT_THAT(kept.error().message, HasSubstr("is referred to by 30 resources, of which 20 are listed"));
    EXPECT_EQ(kept.error().fields.size(), 20U);
}

CO_TEST(References, NoneIsLeftDanglingByConcurrentWriters) {
    for (unsigned seed = 1; seed <= 8; ++seed) {
        ResourceFixture fixture(loop.get_executor());
        TaskGroup writers(loop.get_executor());
        for (unsigned writer = 0; writer < 6; ++writer) writers.spawn(disturb(fixture, seed * 100 + writer, 60));
        co_await writers.join();
        EXPECT_THAT(dangling_references(fixture), ::testing::IsEmpty()) << "seed " << seed;
    }
}

CO_TEST(References, NoneIsLeftDanglingByServersWithDelayedWatches) {
    const auto sealer = Sealer::ephemeral();
    for (unsigned seed = 1; seed <= 8; ++seed) {
        auto shared = std::make_shared<store::MemoryStore::Shared>();
        ResourceFixture first(loop.get_executor(), shared, {}, sealer.get()), second(loop.get_executor(), shared, {}, sealer.get());
        TaskGroup writers(loop.get_executor());
        for (unsigned writer = 0; writer < 6; ++writer)
            writers.spawn(disturb(writer % 2 == 0 ? first : second, seed * 100 + writer, 60));
        co_await writers.join();
        EXPECT_THAT(dangling_references(first), ::testing::IsEmpty()) << "seed " << seed;
    }
}

CO_TEST(Writes, AReferenceIsSearchedInTheStoreBeforeAWriteIsRefused) {
    auto shared = std::make_shared<store::MemoryStore::Shared>();
    const auto sealer = Sealer::ephemeral();
    ResourceFixture first(loop.get_executor(), shared, {}, sealer.get()), second(loop.get_executor(), shared, {}, sealer.get());
    {
        auto step = co_await first.resources->create(someone, first.secrets(), a_secret("key", {{"k", "v"}}), {});
        CO_ASSERT_OK(step);
    }
    CO_ASSERT(!second.resources->exists(second.secrets(), "key")); // has not seen it
    {
        auto step = co_await second.resources->create(someone, second.nodes(), a_node("n1", {}, "key"), {});
        CO_ASSERT_OK(step);
    }
    auto updated = co_await second.resources->patch(someone, second.nodes(), "n1", *parse_json(R"({"labels":{"a":"b"}})"), {});
    CO_ASSERT_OK(updated);
    WriteOptions at;
    at.if_revision = updated->object.revision;
    {
        auto step = co_await first.resources->patch(someone, first.nodes(), "n1", *parse_json(R"({"labels":{"a":"c"}})"), at);
        CO_ASSERT_OK(step);
    }
    auto kept = co_await first.resources->remove(someone, first.secrets(), "key", {});
    EXPECT_EQ(kept.error().code, Code::conflict);
}

CO_TEST(Writes, NoIncrementIsLostUnderCompareAndSet) {
    ResourceFixture fixture(loop.get_executor());
    {
        auto step = co_await fixture.resources->create(someone, fixture.nodes(), a_node("n1", {{"count", "0"}}), {});
        CO_ASSERT_OK(step);
    }
    TaskGroup writers(loop.get_executor());
    int failures = 0;
    for (int i = 0; i < 8; ++i) writers.spawn(count_up(fixture, 25, &failures));
    co_await writers.join();
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(fixture.resources->get(fixture.nodes(), "n1")->labels.at("count"), "200");
}

CO_TEST(Writes, WithoutAConditionAreRetriedAfterAConflict) {
    ResourceFixture fixture(loop.get_executor());
    {
        auto step = co_await fixture.resources->create(someone, fixture.nodes(), a_node("n1"), {});
        CO_ASSERT_OK(step);
    }
    TaskGroup writers(loop.get_executor());
    for (int i = 0; i < 6; ++i) writers.spawn(label_with(fixture, "l" + std::to_string(i), 20));
    co_await writers.join();
    const auto labels = fixture.resources->get(fixture.nodes(), "n1")->labels;
    EXPECT_EQ(labels.size(), 6U);
    for (const auto& [key, value] : labels) EXPECT_EQ(value, "19") << key;
}

} // namespace orrery::resource
