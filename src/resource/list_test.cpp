#include "core/test_fixture.h"
#include "resource/resource_fixture.h"
#include "resource/resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace orrery::resource {

namespace {

using resource::testing::a_node;
using resource::testing::an_object;
using resource::testing::ResourceFixture;

const Context lister = Context::make("carol");

std::vector<std::string> names_of(const ListPage& page) {
    std::vector<std::string> out;
    for (const auto& record : page.records) out.push_back(record->key.substr(record->key.find('/') + 1));
    return out;
}

/// All pages of a list, each at most `limit` long.
std::vector<std::string> all_names(const ResourceFixture& fixture, const Kind& kind, ListQuery query) {
    std::vector<std::string> out;
    for (;;) {
        auto page = fixture.resources->list(kind, query);
        EXPECT_TRUE(page.ok()) << page.error().text();
        if (!page.ok()) return out;
        EXPECT_LE(page->records.size(), query.limit);
        for (auto& name : names_of(*page)) out.push_back(std::move(name));
        if (page->next.empty()) return out;
        EXPECT_EQ(page->next, out.back());
        query.after = page->next;
    }
}

/// The same by looking at everything.
std::vector<std::string> by_scan(const ResourceFixture& fixture, const Kind& kind, const ListQuery& query) {
    std::vector<std::string> out;
    for (const auto& record : fixture.store.range(kind.prefix(), 100'000, {}).records) {
        const auto object = *from_stored(*record);
        bool matches =
            query.labels.matches(object.labels) && object.name >= query.from && (query.until.empty() || object.name < query.until);
        for (const auto& [field, value] : query.fields) {
            const auto* held = object.spec.if_contains(field);
            matches = matches && held != nullptr && held->is_string() && held->get_string() == value;
        }
        if (matches) out.push_back(object.name);
    }
    if (query.newest_first) std::reverse(out.begin(), out.end());
    return out;
}

Kind tagged_kind() {
    Kind kind("Tagged", "taggeds", "T.");
    kind.spec(text("colour", "C.").indexed()).spec(text("size", "S.").indexed());
    return kind;
}

LabelSelector random_selector(std::mt19937& random) {
    static const std::vector<std::string> terms = {"",     "a",   "b",       "!a",     "!b",    "a=1",    "a=2", "b=1", "a!=1",
                                                   "b!=2", "c=1", "a=1,b=2", "a,b!=1", "!a,!b", "a=1,!c", "c",   "!c"};
    return *LabelSelector::parse(terms[random() % terms.size()]);
}

} // namespace

TEST(LabelSelector, ParsesItsTerms) {
    const auto matches = [](std::string_view selector, std::map<std::string, std::string> labels) {
        return LabelSelector::parse(selector)->matches(labels);
    };
    EXPECT_TRUE(matches("", {}));
    EXPECT_TRUE(matches("role=compute,zone!=b,gpu,!legacy", {{"role", "compute"}, {"gpu", ""}}));
    EXPECT_FALSE(matches("role=compute,zone!=b", {{"role", "compute"}, {"zone", "b"}}));
    EXPECT_FALSE(matches("gpu", {}));
    EXPECT_FALSE(matches("!gpu", {{"gpu", "1"}}));
    EXPECT_TRUE(matches(" a = 1 , b == 2 ", {{"a", "1"}, {"b", "2"}}));
    for (const auto* bad : {",", "a,", "=x", "!", "a b=c", "!a=b!=c=", "ä=1"})
        EXPECT_EQ(LabelSelector::parse(bad).ok(), false) << bad;
}

CO_TEST(Lists, PageInTheOrderOfNames) {
    ResourceFixture fixture(loop.get_executor());
    for (int i = 0; i < 25; ++i) {
        auto step = co_await fixture.resources->create(lister, fixture.nodes(), a_node(fmt::format("n{:02}", i)), {});
        CO_ASSERT_OK(step);
    }
    ListQuery query;
    query.limit = 10;
    auto page = fixture.resources->list(fixture.nodes(), query);
    CO_ASSERT_OK(page);
    EXPECT_EQ(page->next, "n09");
    EXPECT_EQ(page->revision, fixture.store.revision());
    EXPECT_EQ(all_names(fixture, fixture.nodes(), query).size(), 25U);
    query.limit = 25;
    page = fixture.resources->list(fixture.nodes(), query);
    EXPECT_EQ(page->next, ""); // exactly full is the end
    query.from = "n05";
    query.until = "n07";
    EXPECT_EQ(all_names(fixture, fixture.nodes(), query), (std::vector<std::string>{"n05", "n06"}));
    query.newest_first = true;
    EXPECT_EQ(fixture.resources->list(fixture.nodes(), query).error().code, Code::unsupported);
}

CO_TEST(Lists, AgreeWithAScanAfterRandomChanges) {
    ResourceFixture fixture(loop.get_executor(), std::make_shared<store::MemoryStore::Shared>(), {tagged_kind()});
    const auto& tagged = fixture.kind("Tagged");
    std::mt19937 random(7);
    const auto pick = [&](std::initializer_list<const char*> from) {
        return std::string(*(from.begin() + random() % from.size()));
    };
    for (int round = 0; round < 250; ++round) {
        std::map<std::string, std::string> labels;
        for (const auto* key : {"a", "b", "c"})
            if (random() % 2 == 0) labels[key] = pick({"1", "2", "3"});
        const auto name = fmt::format("x{:02}", random() % 40);
        auto node = a_node(name, labels);
        auto thing = an_object("Tagged", name, {{"colour", pick({"red", "blue"})}}, labels);
        if (random() % 2 == 0) thing.spec["size"] = pick({"s", "m", "l"});
        switch (random() % 4) {
        case 0:
            (void)co_await fixture.resources->create(lister, fixture.nodes(), node, {});
            (void)co_await fixture.resources->create(lister, tagged, thing, {});
            break;
        case 1: (void)co_await fixture.resources->replace(lister, fixture.nodes(), node, {}); break;
        case 2: (void)co_await fixture.resources->replace(lister, tagged, thing, {}); break;
        default:
            if (random() % 2 == 0)
                (void)co_await fixture.resources->remove(lister, fixture.nodes(), name, {});
            else
                (void)co_await fixture.resources->remove(lister, tagged, name, {});
        }
        ListQuery query;
        query.labels = random_selector(random);
        query.limit = 1 + random() % 12;
        if (random() % 3 == 0) query.from = fmt::format("x{:02}", random() % 40);
        if (random() % 3 == 0) query.until = fmt::format("x{:02}", random() % 40);
        EXPECT_EQ(all_names(fixture, fixture.nodes(), query), by_scan(fixture, fixture.nodes(), query)) << round;
        if (random() % 2 == 0) query.fields.emplace_back("colour", pick({"red", "blue", "none"}));
        if (random() % 3 == 0) query.fields.emplace_back("size", pick({"s", "m"}));
        query.newest_first = random() % 2 == 0;
        EXPECT_EQ(all_names(fixture, tagged, query), by_scan(fixture, tagged, query)) << round;
    }
}

CO_TEST(Lists, AnIndexBuiltFromTheStoreEqualsAnUpdatedOne) {
    auto shared = std::make_shared<store::MemoryStore::Shared>();
    ResourceFixture grown(loop.get_executor(), shared, {tagged_kind()});
    for (int i = 0; i < 50; ++i)
        CO_ASSERT_OK(
            co_await grown.resources->create(lister, grown.kind("Tagged"),
                                             an_object("Tagged", fmt::format("x{:02}", i),
                                                       {{"colour", i % 2 == 0 ? "red" : "blue"}}, {{"n", std::to_string(i % 5)}}),
                                             {}));
    ResourceFixture fresh(loop.get_executor(), shared, {tagged_kind()});
    ListQuery query;
    query.labels = *LabelSelector::parse("n=3");
    query.fields = {{"colour", "red"}};
    EXPECT_EQ(all_names(fresh, fresh.kind("Tagged"), query).size(), 5U);
    EXPECT_EQ(all_names(fresh, fresh.kind("Tagged"), query), all_names(grown, grown.kind("Tagged"), query));
}

} // namespace orrery::resource
