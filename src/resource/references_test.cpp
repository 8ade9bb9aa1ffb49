#include "core/testing.h"
#include "core/text.h"
#include "resource/resources.h"
#include "resource/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace orrery::resource {

namespace {

using resource::testing::a_node;
using resource::testing::a_secret;
using resource::testing::House;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Context someone = Context::make("bob");

/// References to secrets that are not there.
std::vector<std::string> dangling_references(const House& house) {
    std::vector<std::string> out;
    for (const auto& [key, record] : house.shared->records) {
        if (!key.starts_with("nodes/")) continue;
        const auto node = Node::from(*from_stored(*record));
        if (!node.ssh_key.empty() && !house.shared->records.contains("secrets/" + node.ssh_key))
            out.push_back(key + " -> " + node.ssh_key);
    }
    return out;
}

asio::awaitable<void> disturb(House& house, unsigned seed, int steps) {
    std::mt19937 random(seed);
    for (int i = 0; i < steps; ++i) {
        const auto secret = "s" + std::to_string(random() % 3);
        const auto node = "n" + std::to_string(random() % 4);
        switch (random() % 6) {
        case 0: (void)co_await house.resources->create(someone, house.secrets(), a_secret(secret, {{"k", "v"}}), {}); break;
        case 1: (void)co_await house.resources->remove(someone, house.secrets(), secret, {}); break;
        case 2: (void)co_await house.resources->create(someone, house.nodes(), a_node(node, {}, secret), {}); break;
        case 3: (void)co_await house.resources->replace(someone, house.nodes(), a_node(node, {}, secret), {}); break;
        case 4: (void)co_await house.resources->replace(someone, house.nodes(), a_node(node), {}); break;
        default: (void)co_await house.resources->remove(someone, house.nodes(), node, {}); break;
        }
    }
}

asio::awaitable<void> count_up(House& house, int times, int* failures) {
    for (int i = 0; i < times; ++i) {
        for (;;) {
            const auto now = house.resources->get(house.nodes(), "n1");
            WriteOptions options;
            options.if_revision = now->revision;
            const auto count = std::stoi(now->labels.at("count"));
            auto written = co_await house.resources->patch(
                someone, house.nodes(), "n1", json::object{{"labels", {{"count", std::to_string(count + 1)}}}}, options);
            if (written.ok()) break;
            if (written.error().fields.empty() || written.error().fields[0].path != "If-Match") ++*failures;
        }
    }
}

asio::awaitable<void> label_with(House& house, std::string label, int times) {
    for (int i = 0; i < times; ++i) {
        auto written = co_await house.resources->patch(someone, house.nodes(), "n1",
                                                       json::object{{"labels", {{label, std::to_string(i)}}}}, {});
        EXPECT_TRUE(written.ok()) << written.error().text();
    }
}

} // namespace

CO_TEST(References, MustExistAndKeepTheirTarget) {
    House house(loop.get_executor());
    auto& resources = *house.resources;
    auto early = co_await resources.create(someone, house.nodes(), a_node("n1", {}, "key"), {});
    EXPECT_EQ(early.error().code, Code::invalid);
    EXPECT_EQ(early.error().fields.at(0).message, "refers to Secret \"key\", which does not exist");
    {
        auto step = co_await resources.create(someone, house.secrets(), a_secret("key", {{"private_key", "x"}}), {});
        CO_ASSERT_OK(step);
    }
    {
        auto step = co_await resources.create(someone, house.nodes(), a_node("n1", {}, "key"), {});
        CO_ASSERT_OK(step);
    }
    EXPECT_THAT(resources.referrers(house.secrets(), "key"), ElementsAre("Node/n1 (spec.ssh.key)"));
    auto kept = co_await resources.remove(someone, house.secrets(), "key", {});
    EXPECT_EQ(kept.error().code, Code::conflict);
    EXPECT_THAT(kept.error().message, HasSubstr("is referred to by Node/n1 (spec.ssh.key)"));
    {
        auto step = co_await resources.patch(someone, house.nodes(), "n1", *parse_json(R"({"spec":{"ssh":{"key":null}}})"), {});
        CO_ASSERT_OK(step);
    }
    EXPECT_TRUE(resources.referrers(house.secrets(), "key").empty());
    {
        auto step = co_await resources.remove(someone, house.secrets(), "key", {});
        CO_ASSERT_OK(step);
    }
    EXPECT_EQ(house.store.count("references/"), 0U);
}

CO_TEST(References, ManyReferrersAreCountedAndSomeNamed) {
    House house(loop.get_executor());
    auto& resources = *house.resources;
    {
        auto step = co_await resources.create(someone, house.secrets(), a_secret("key", {{"k", "x"}}), {});
        CO_ASSERT_OK(step);
    }
    for (int i = 0; i < 30; ++i) {
        auto step = co_await resources.create(someone, house.nodes(), a_node(fmt::format("n{:02}", i), {}, "key"), {});
        CO_ASSERT_OK(step);
    }
    auto kept = co_await resources.remove(someone, house.secrets(), "key", {});
    EXPECT_THAT(kept.error().message, HasSubstr("and 10 more"));
    EXPECT_EQ(kept.error().fields.size(), 20U);
}

CO_TEST(References, NoneIsLeftDanglingByManyWritersAtOnce) {
    for (unsigned seed = 1; seed <= 8; ++seed) {
        House house(loop.get_executor());
        TaskGroup writers(loop.get_executor());
        for (unsigned writer = 0; writer < 6; ++writer) writers.spawn(disturb(house, seed * 100 + writer, 60));
        co_await writers.join();
        EXPECT_THAT(dangling_references(house), ::testing::IsEmpty()) << "seed " << seed;
    }
}

CO_TEST(References, NoneIsLeftDanglingByServersThatSeeEachOtherLate) {
    const auto sealer = Sealer::ephemeral();
    for (unsigned seed = 1; seed <= 8; ++seed) {
        auto shared = std::make_shared<store::MemoryStore::Shared>();
        House first(loop.get_executor(), shared, {}, sealer.get()), second(loop.get_executor(), shared, {}, sealer.get());
        TaskGroup writers(loop.get_executor());
        for (unsigned writer = 0; writer < 6; ++writer)
            writers.spawn(disturb(writer % 2 == 0 ? first : second, seed * 100 + writer, 60));
        co_await writers.join();
        EXPECT_THAT(dangling_references(first), ::testing::IsEmpty()) << "seed " << seed;
    }
}

CO_TEST(Writes, WhatAnotherServerWroteIsLookedForBeforeSayingNo) {
    auto shared = std::make_shared<store::MemoryStore::Shared>();
    const auto sealer = Sealer::ephemeral();
    House first(loop.get_executor(), shared, {}, sealer.get()), second(loop.get_executor(), shared, {}, sealer.get());
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
    House house(loop.get_executor());
    {
        auto step = co_await house.resources->create(someone, house.nodes(), a_node("n1", {{"count", "0"}}), {});
        CO_ASSERT_OK(step);
    }
    TaskGroup writers(loop.get_executor());
    int failures = 0;
    for (int i = 0; i < 8; ++i) writers.spawn(count_up(house, 25, &failures));
    co_await writers.join();
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(house.resources->get(house.nodes(), "n1")->labels.at("count"), "200");
}

CO_TEST(Writes, WithoutAConditionAreRepeatedUntilTheyFit) {
    House house(loop.get_executor());
    {
        auto step = co_await house.resources->create(someone, house.nodes(), a_node("n1"), {});
        CO_ASSERT_OK(step);
    }
    TaskGroup writers(loop.get_executor());
    for (int i = 0; i < 6; ++i) writers.spawn(label_with(house, "l" + std::to_string(i), 20));
    co_await writers.join();
    const auto labels = house.resources->get(house.nodes(), "n1")->labels;
    EXPECT_EQ(labels.size(), 6U);
    for (const auto& [key, value] : labels) EXPECT_EQ(value, "19") << key;
}

} // namespace orrery::resource
