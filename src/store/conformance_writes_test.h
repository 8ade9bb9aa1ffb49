#pragma once

#include "store/conformance_test.h"

namespace orrery::store::conformance {

CONFORMANCE(EachTransactionTakesTheNextRevision) {
    CONFORMANCE_OPEN(store);
    const auto start = store->revision();
    Revision last = start;
    for (int i = 0; i < 20; ++i) {
        auto revision = co_await store->apply(ctx, Transaction().put("k", std::to_string(i)).put(fmt::format("k{}", i), ""));
        CO_ASSERT_OK(revision);
        if (fixture.is_dense()) EXPECT_EQ(*revision, last + 1);
        EXPECT_GT(*revision, last);
        EXPECT_EQ(store->revision(), *revision);
        CO_ASSERT(store->find("k"));
        EXPECT_EQ(store->find("k")->modified, *revision);
        EXPECT_EQ(store->find("k")->version, i + 1);
        EXPECT_EQ(store->find("k")->created, store->find("k0")->created);
        last = *revision;
    }
    co_await store->stop();
}

CONFORMANCE(RemovingAMissingKeyChangesNothing) {
    CONFORMANCE_OPEN(store);
    auto made = co_await store->apply(ctx, Transaction().put("a", "1"));
    CO_ASSERT_OK(made);
    auto removed = co_await store->apply(ctx, Transaction().remove("never"));
    CO_ASSERT_OK(removed);
    EXPECT_EQ(*removed, *made);
    removed = co_await store->apply(ctx, Transaction().remove("a").remove("never"));
    CO_ASSERT_OK(removed);
    EXPECT_GT(*removed, *made);
    EXPECT_EQ(store->find("a"), nullptr);
    co_await store->stop();
}

CONFORMANCE(AStaleCompareWritesNothing) {
    CONFORMANCE_OPEN(store);
    auto first = co_await store->apply(ctx, Transaction().put("a", "1"));
    CO_ASSERT_OK(first);
    auto second = co_await store->apply(ctx, Transaction().expect("a", *first).put("a", "2"));
    CO_ASSERT_OK(second);
    auto stale = co_await store->apply(ctx, Transaction().expect("a", *first).put("a", "3").put("b", "3").remove("a0"));
    CO_ASSERT(!stale.ok());
    EXPECT_EQ(stale.error().code, Code::conflict) << stale.error().text();
    EXPECT_FALSE(stale.error().message.empty());
    EXPECT_EQ(store->find("a")->value, "2");
    EXPECT_EQ(store->find("b"), nullptr);
    EXPECT_EQ(store->revision(), *second);
    auto missing = co_await store->apply(ctx, Transaction().expect("never", *second).put("b", "4"));
    CO_ASSERT(!missing.ok());
    EXPECT_EQ(missing.error().code, Code::conflict);
    co_await store->stop();
}

CONFORMANCE(CreatedDistinguishesAKeyFromItsSuccessor) {
    CONFORMANCE_OPEN(store);
    auto first = co_await store->apply(ctx, Transaction().put("a", "1"));
    CO_ASSERT_OK(first);
    auto changed = co_await store->apply(ctx, Transaction().expect_created("a", *first).put("a", "2"));
    CO_ASSERT_OK(changed);
    auto removed = co_await store->apply(ctx, Transaction().remove("a"));
    CO_ASSERT_OK(removed);
    auto again = co_await store->apply(ctx, Transaction().expect_created("a", 0).put("a", "3"));
    CO_ASSERT_OK(again);
    EXPECT_EQ(store->find("a")->created, *again);
    EXPECT_EQ(store->find("a")->version, 1);
    auto stale = co_await store->apply(ctx, Transaction().expect_created("a", *first).put("a", "4"));
    CO_ASSERT(!stale.ok());
    EXPECT_EQ(stale.error().code, Code::conflict);
    co_await store->stop();
}

CONFORMANCE(OneOfManyCreatesAKey) {
    CONFORMANCE_OPEN(store);
    TaskGroup group(loop.get_executor());
    std::vector<Result<Revision>> outcomes;
    for (int i = 0; i < 50; ++i)
        group.spawn(keep_outcome(*store, Transaction().expect("a", 0).put("a", std::to_string(i)), outcomes));
    co_await group.join();
    int won = 0;
    for (const auto& outcome : outcomes) {
        won += outcome.ok();
        if (!outcome.ok()) EXPECT_EQ(outcome.error().code, Code::conflict) << outcome.error().text();
    }
    EXPECT_EQ(outcomes.size(), 50u);
    EXPECT_EQ(won, 1);
    EXPECT_EQ(store->find("a")->version, 1);
    co_await store->stop();
}

CONFORMANCE(NoIncrementIsLostUnderContention) {
    CONFORMANCE_OPEN(store);
    TaskGroup group(loop.get_executor());
    for (int i = 0; i < 8; ++i) group.spawn(increment_by_compare(*store, "counter", 25));
    co_await group.join();
    EXPECT_EQ(store->find("counter")->value, "200");
    EXPECT_EQ(store->find("counter")->version, 200);
    co_await store->stop();
}

CONFORMANCE(ATransactionIsAllOrNothingAtOneRevision) {
    CONFORMANCE_OPEN(store);
    Transaction many;
    for (std::size_t i = 0; i < max_changes; ++i) many.put(fmt::format("m/{:03}", i), "v");
    auto written = co_await store->apply(ctx, many);
    CO_ASSERT_OK(written);
    EXPECT_EQ(store->count("m/"), max_changes);
    for (const auto& record : store->range("m/", 0).records) EXPECT_EQ(record->modified, *written);
    auto mixed = co_await store->apply(ctx, Transaction().remove("m/000").put("m/001", "w").put("m/new", "n"));
    CO_ASSERT_OK(mixed);
    EXPECT_EQ(store->count("m/"), max_changes);
    EXPECT_EQ(store->find("m/001")->version, 2);
    EXPECT_EQ(store->find("m/new")->modified, store->find("m/001")->modified);
    co_await store->stop();
}

CONFORMANCE(UncachedKeysAreReadFromTheEngine) {
    CONFORMANCE_OPEN(store);
    auto first = co_await store->fetch(ctx, "~x/", 10, {}, Store::Values::yes);
    if (!first.ok()) { // an engine without uncached keys reports that
        EXPECT_EQ(first.error().code, Code::unsupported);
        co_await store->stop();
        co_return;
    }
    EXPECT_TRUE(first->records.empty());
    auto watch = store->watch("", store->revision());
    Transaction many;
    for (int i = 0; i < 10; ++i) many.put(fmt::format("~x/{}", i), std::string(1000, static_cast<char>('a' + i)));
    auto written = co_await store->apply(ctx, many.put("beside", "1").put("~y", "other"));
    CO_ASSERT_OK(written);
    EXPECT_EQ(store->find("~x/3"), nullptr);
    EXPECT_EQ(keys_in(store->range("", 0)), Keys{"beside"});
    auto seen = co_await watch->next(ctx.with_timeout(30s));
    CO_ASSERT_OK(seen);
    EXPECT_EQ(seen->size(), 1u);
    auto page = co_await store->fetch(ctx, "~x/", 4, {}, Store::Values::yes);
    CO_ASSERT_OK(page);
    EXPECT_EQ(keys_in(*page), (Keys{"~x/0", "~x/1", "~x/2", "~x/3"}));
    EXPECT_EQ(page->records[3]->value, std::string(1000, 'd'));
    EXPECT_EQ(page->records[3]->modified, *written);
    page = co_await store->fetch(ctx, "~x/", 100, page->next, Store::Values::no);
    CO_ASSERT_OK(page);
    EXPECT_EQ(page->records.size(), 6u);
    EXPECT_EQ(page->next, "");
    EXPECT_EQ(page->records[0]->value, "");
    // They are part of the transaction, and can be compared like other keys.
    auto stale = co_await store->apply(ctx, Transaction().expect("~x/1", 0).put("~x/1", "late"));
    EXPECT_EQ(stale.error().code, Code::conflict);
    auto removed = co_await store->apply(ctx, Transaction().expect("~x/1", *written).remove("~x/1").remove("~x/2"));
    CO_ASSERT_OK(removed);
    page = co_await store->fetch(ctx, "~x/", 0, {}, Store::Values::no);
    CO_ASSERT_OK(page);
    EXPECT_EQ(page->records.size(), 8u);
    // A store that is opened later does not load them.
    auto again = co_await fixture.open(loop.get_executor(), Mirror::Options{});
    CO_ASSERT_OK(again);
    EXPECT_EQ(keys_in((*again)->range("", 0)), Keys{"beside"});
    co_await (*again)->stop();
    co_await store->stop();
}

CONFORMANCE(InvalidTransactionsAreRefusedWithAReason) {
    CONFORMANCE_OPEN(store);
    const auto before = store->revision();
    struct Case {
        Transaction transaction;
        Code code;
    };
    std::vector<Case> cases;
    cases.push_back({Transaction().put("a", "1").put("a", "2"), Code::invalid});
    cases.push_back({Transaction().put("a", "1").remove("a"), Code::invalid});
    cases.push_back({Transaction().put("", "1"), Code::invalid});
    cases.push_back({Transaction().put("/a", "1"), Code::invalid});
    cases.push_back({Transaction().put("\x7f", "1"), Code::invalid});
    cases.push_back({Transaction().expect("", 0).put("a", "1"), Code::invalid});
    cases.push_back({Transaction().put(std::string(max_key_size + 1, 'k'), "1"), Code::too_large});
    cases.push_back({Transaction().put("a", std::string(max_value_size + 1, 'v')), Code::too_large});
    cases.push_back(
        {Transaction().put("a", std::string(max_value_size, 'v')).put("b", std::string(max_value_size, 'v')), Code::too_large});
    Transaction long_one, twice;
    for (std::size_t i = 0; i <= max_changes; ++i) long_one.put(fmt::format("{}", i), "");
    cases.push_back({long_one, Code::too_large});
    for (std::size_t i = 0; i < max_changes; ++i) twice.put(fmt::format("{}", i % 100), "");
    cases.push_back({twice, Code::invalid});
    for (std::size_t i = 0; i < cases.size(); ++i) {
        auto refused = co_await store->apply(ctx, cases[i].transaction);
        CO_ASSERT(!refused.ok());
        EXPECT_EQ(refused.error().code, cases[i].code) << i << ": " << refused.error().text();
        EXPECT_GT(refused.error().message.size(), 10u);
    }
    EXPECT_EQ(store->revision(), before);
    co_await store->stop();
}

CONFORMANCE(SizesAtTheLimitsAreStored) {
    CONFORMANCE_OPEN(store);
    const std::string key(max_key_size, 'k'), value(max_value_size, 'v');
    auto written = co_await store->apply(ctx, Transaction().put(key, value));
    CO_ASSERT_OK(written);
    EXPECT_EQ(store->find(key)->value, value);
    co_await store->stop();
}

CONFORMANCE(ArbitraryBytesAreStoredUnchanged) {
    CONFORMANCE_OPEN(store);
    std::string bytes;
    for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
    auto written = co_await store->apply(ctx, Transaction().put("empty", "").put("bytes", bytes).put("key\xff\x01", "odd"));
    CO_ASSERT_OK(written);
    co_await store->stop();
    store.reset();
    CONFORMANCE_OPEN(again);
    CO_ASSERT(again->find("empty") && again->find("bytes"));
    EXPECT_EQ(again->find("empty")->value, "");
    EXPECT_EQ(again->find("bytes")->value, bytes);
    CO_ASSERT(again->find("key\xff\x01"));
    EXPECT_EQ(again->find("key\xff\x01")->value, "odd");
    co_await again->stop();
}

CONFORMANCE(ATransactionWithoutChangesOnlyChecks) {
    CONFORMANCE_OPEN(store);
    auto made = co_await store->apply(ctx, Transaction().put("a", "1"));
    CO_ASSERT_OK(made);
    auto checked = co_await store->apply(ctx, Transaction().expect("a", *made).expect("b", 0));
    CO_ASSERT_OK(checked);
    EXPECT_EQ(*checked, *made);
    checked = co_await store->apply(ctx, Transaction().expect("b", 7));
    CO_ASSERT(!checked.ok());
    EXPECT_EQ(checked.error().code, Code::conflict);
    EXPECT_EQ(store->revision(), *made);
    co_await store->stop();
}

CONFORMANCE(ReopeningKeepsEverything) {
    CONFORMANCE_OPEN(store);
    const auto identity = store->identity();
    EXPECT_EQ(identity.size(), 16u);
    auto lease = co_await store->grant(ctx, 1h);
    CO_ASSERT_OK(lease);
    auto first = co_await store->apply(ctx, Transaction().put("a", "1").put("b", "1").put("leased", "1", *lease));
    CO_ASSERT_OK(first);
    auto second = co_await store->apply(ctx, Transaction().put("a", "2").remove("b"));
    CO_ASSERT_OK(second);
    co_await store->stop();
    store.reset();

    CONFORMANCE_OPEN(again);
    EXPECT_EQ(again->identity(), identity);
    EXPECT_GE(again->revision(), *second);
    if (fixture.is_dense()) EXPECT_EQ(again->revision(), *second);
    CO_ASSERT(again->find("a") && again->find("leased"));
    EXPECT_EQ(again->find("a")->value, "2");
    EXPECT_EQ(again->find("a")->created, *first);
    EXPECT_EQ(again->find("a")->modified, *second);
    EXPECT_EQ(again->find("a")->version, 2);
    EXPECT_EQ(again->find("leased")->lease, *lease);
    EXPECT_EQ(again->find("b"), nullptr);
    auto renewed = co_await again->keep_alive(ctx, *lease);
    CO_ASSERT_OK(renewed);
    auto next = co_await again->apply(ctx, Transaction().expect("a", *second).put("a", "3"));
    CO_ASSERT_OK(next);
    EXPECT_GT(*next, *second);
    co_await again->stop();
}

CONFORMANCE(StopCompletesAcceptedWrites) {
    CONFORMANCE_OPEN(store);
    TaskGroup group(loop.get_executor());
    std::vector<Result<Revision>> outcomes;
    for (int i = 0; i < 100; ++i) group.spawn(keep_outcome(*store, Transaction().put(fmt::format("k/{}", i), "v"), outcomes));
    co_await asio::post(loop, asio::use_awaitable);
    co_await store->stop();
    co_await group.join();
    std::size_t accepted = 0;
    for (const auto& outcome : outcomes) accepted += outcome.ok();
    store.reset();
    CONFORMANCE_OPEN(again);
    EXPECT_GE(again->count("k/"), accepted);
    EXPECT_EQ(outcomes.size(), 100u);
    co_await again->stop();
}

CONFORMANCE(AnExpiredLeaseRemovesItsKeysAtomically) {
    CONFORMANCE_OPEN(store);
    auto lease = co_await store->grant(ctx, fixture.short_lease());
    CO_ASSERT_OK(lease);
    auto made = co_await store->apply(ctx, Transaction().put("l/1", "1", *lease).put("l/2", "1", *lease).put("l/3", "1"));
    CO_ASSERT_OK(made);
    auto overwritten = co_await store->apply(ctx, Transaction().put("l/2", "2"));
    CO_ASSERT_OK(overwritten);
    EXPECT_EQ(store->find("l/2")->lease, 0);
    made = co_await store->apply(ctx, Transaction().put("l/4", "1", *lease));
    CO_ASSERT_OK(made);
    auto watch = store->watch("l/", store->revision());
    co_await fixture.advance(fixture.short_lease() + fixture.lease_slack());
    auto events = co_await watch->next(ctx.with_timeout(30s));
    CO_ASSERT_OK(events);
    CO_ASSERT(events->size() == 2);
    std::set<std::string> removed;
    for (const auto& event : *events) {
        EXPECT_EQ(event.record, nullptr);
        EXPECT_EQ(event.revision, events->front().revision);
        CO_ASSERT(event.previous);
        EXPECT_EQ(event.previous->lease, *lease);
        removed.insert(event.key);
    }
    EXPECT_EQ(removed, (std::set<std::string>{"l/1", "l/4"}));
    EXPECT_EQ(store->count("l/"), 2u);
    auto renewed = co_await store->keep_alive(ctx, *lease);
    CO_ASSERT(!renewed.ok());
    EXPECT_EQ(renewed.error().code, Code::not_found);
    auto late = co_await store->apply(ctx, Transaction().put("l/5", "1", *lease));
    CO_ASSERT(!late.ok());
    EXPECT_EQ(late.error().code, Code::not_found) << late.error().text();
    co_await store->stop();
}

CONFORMANCE(ARenewedLeaseStays) {
    CONFORMANCE_OPEN(store);
    auto lease = co_await store->grant(ctx, fixture.short_lease());
    CO_ASSERT_OK(lease);
    auto made = co_await store->apply(ctx, Transaction().put("l/1", "1", *lease));
    CO_ASSERT_OK(made);
    for (int i = 0; i < 6; ++i) {
        co_await fixture.advance(fixture.short_lease() / 3);
        auto renewed = co_await store->keep_alive(ctx, *lease);
        CO_ASSERT_OK(renewed);
    }
    EXPECT_NE(store->find("l/1"), nullptr);
    auto revoked = co_await store->revoke(ctx, *lease);
    CO_ASSERT_OK(revoked);
    auto caught_up = co_await store->catch_up(ctx);
    CO_ASSERT_OK(caught_up);
    EXPECT_EQ(store->find("l/1"), nullptr);
    revoked = co_await store->revoke(ctx, *lease);
    CO_ASSERT(!revoked.ok());
    EXPECT_EQ(revoked.error().code, Code::not_found);
    auto unknown = co_await store->keep_alive(ctx, 123456);
    CO_ASSERT(!unknown.ok());
    EXPECT_EQ(unknown.error().code, Code::not_found);
    co_await store->stop();
}

CONFORMANCE(HealthAndMetricsAreAvailable) {
    CONFORMANCE_OPEN(store);
    auto health = store->health();
    CO_ASSERT_OK(health);
    std::set<std::string> names;
    for (const auto& [name, value] : store->metrics()) names.insert(name);
    for (const auto* name : {"keys", "watches", "revision"}) EXPECT_TRUE(names.contains(name)) << name;
    co_await store->stop();
}

} // namespace orrery::store::conformance
