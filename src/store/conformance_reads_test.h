#pragma once

#include "store/conformance_test.h"

namespace orrery::store::conformance {

CONFORMANCE(ARangeContinuesAfterItsLastKey) {
    CONFORMANCE_OPEN(store);
    Transaction some;
    for (int i = 0; i < 100; ++i) some.put(fmt::format("r/{:03}", i), std::to_string(i));
    auto written = co_await store->apply(ctx, some);
    CO_ASSERT_OK(written);
    Keys seen;
    std::string after;
    do {
        const auto page = store->range("r/", 30, after);
        EXPECT_LE(page.records.size(), 30u);
        EXPECT_EQ(page.revision, store->revision());
        for (const auto& key : keys_in(page)) seen.push_back(key);
        after = page.next;
        // Writes between the pages: behind the reader, ahead of it, and to its current key.
        if (seen.size() == 30) {
            auto changed =
                co_await store->apply(ctx, Transaction().remove("r/010").remove("r/029").remove("r/050").put("r/0505", "new"));
            CO_ASSERT_OK(changed);
        }
    } while (!after.empty());
    EXPECT_EQ(seen.size(), 100u);
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), seen.size());
    EXPECT_EQ(std::count(seen.begin(), seen.end(), "r/050"), 0);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), "r/0505"), 1);
    co_await store->stop();
}

CONFORMANCE(PrefixesEndWhereTheyShould) {
    CONFORMANCE_OPEN(store);
    Transaction some;
    for (const auto* key : {"a", "a/", "a/b", "a/b/c", "a0", "a/\xff", "a/\xff\xff", "b"}) some.put(key, "");
    auto written = co_await store->apply(ctx, some);
    CO_ASSERT_OK(written);
    EXPECT_EQ(keys_in(store->range("a/", 0)), (Keys{"a/", "a/b", "a/b/c", "a/\xff", "a/\xff\xff"}));
    EXPECT_EQ(store->count("a/"), 5u);
    EXPECT_EQ(store->count("a/b/"), 1u);
    EXPECT_EQ(keys_in(store->range("a/\xff", 0)), (Keys{"a/\xff", "a/\xff\xff"}));
    EXPECT_EQ(keys_in(store->range("", 2)), (Keys{"a", "a/"}));
    EXPECT_EQ(store->count(""), 8u);
    EXPECT_EQ(store->count("c"), 0u);
    EXPECT_TRUE(store->range("c/", 0).records.empty());
    EXPECT_EQ(keys_in(store->range("a", 3, "a/b")), (Keys{"a/b/c", "a/\xff", "a/\xff\xff"}));
    co_await store->stop();
}

CONFORMANCE(LargeRangesAreComplete) {
    CONFORMANCE_OPEN(store);
    constexpr int keys = 20'000;
    TaskGroup group(loop.get_executor());
    std::vector<Result<Revision>> outcomes;
    for (int i = 0; i < keys;) {
        Transaction some;
        for (int j = 0; j < 100; ++j, ++i) some.put(fmt::format("big/{:06}", i), fmt::format("value {}", i));
        group.spawn(keep_outcome(*store, std::move(some), outcomes));
        if (group.size() >= 16) co_await group.join();
    }
    co_await group.join();
    for (const auto& outcome : outcomes) CO_ASSERT_OK(outcome);
    EXPECT_EQ(store->count("big/"), static_cast<std::size_t>(keys));
    int seen = 0;
    std::string after;
    do {
        const auto page = store->range("big/", 1000, after);
        for (const auto& record : page.records) {
            CO_ASSERT(record->key == fmt::format("big/{:06}", seen));
            ++seen;
        }
        after = page.next;
    } while (!after.empty());
    EXPECT_EQ(seen, keys);
    co_await store->stop();
    store.reset();
    CONFORMANCE_OPEN(again);
    EXPECT_EQ(again->count("big/"), static_cast<std::size_t>(keys));
    CO_ASSERT(again->find("big/019999"));
    EXPECT_EQ(again->find("big/019999")->value, "value 19999");
    co_await again->stop();
}

CONFORMANCE(CatchUpShowsAllAcknowledgedWrites) {
    CONFORMANCE_OPEN(store);
    for (int i = 0; i < 20; ++i) {
        auto written = co_await store->apply(ctx, Transaction().put("k", std::to_string(i)));
        CO_ASSERT_OK(written);
        auto revision = co_await store->catch_up(ctx);
        CO_ASSERT_OK(revision);
        EXPECT_GE(*revision, *written);
        EXPECT_EQ(store->find("k")->value, std::to_string(i));
    }
    co_await store->stop();
}

CONFORMANCE(AnObserverIsAsCurrentAsTheCopy) {
    CONFORMANCE_OPEN(store);
    auto before = co_await store->apply(ctx, Transaction().put("o/1", "red").put("o/2", "blue").put("p/1", "red"));
    CO_ASSERT_OK(before);
    std::map<std::string, std::set<std::string>> by_colour;
    auto handle = store->observe("o/", [&](const Event& event) {
        if (event.previous) by_colour[event.previous->value].erase(event.key);
        if (event.record) by_colour[event.record->value].insert(event.key);
    });
    EXPECT_EQ(by_colour["red"], (std::set<std::string>{"o/1"}));
    auto changed = co_await store->apply(ctx, Transaction().put("o/1", "blue").put("o/3", "green").put("p/2", "green"));
    CO_ASSERT_OK(changed);
    EXPECT_TRUE(by_colour["red"].empty());
    EXPECT_EQ(by_colour["blue"], (std::set<std::string>{"o/1", "o/2"}));
    EXPECT_EQ(by_colour["green"], (std::set<std::string>{"o/3"}));
    changed = co_await store->apply(ctx, Transaction().remove("o/2"));
    CO_ASSERT_OK(changed);
    EXPECT_EQ(by_colour["blue"], (std::set<std::string>{"o/1"}));
    handle.reset();
    changed = co_await store->apply(ctx, Transaction().remove("o/1"));
    CO_ASSERT_OK(changed);
    EXPECT_EQ(by_colour["blue"], (std::set<std::string>{"o/1"}));
    co_await store->stop();
}

} // namespace orrery::store::conformance
