#pragma once

#include "store/conformance_test.h"

namespace orrery::store::conformance {

CONFORMANCE(WatchesHaveNeitherGapNorDuplicateWhileWritersRun) {
    CONFORMANCE_OPEN(store);
    const auto start = store->revision();
    std::vector<Revision> written;
    auto early = store->watch("w/", start);
    TaskGroup writers(loop.get_executor());
    for (int i = 0; i < 16; ++i) writers.spawn(write_many(*store, fmt::format("w/{}/", i), 60, written));
    // One watch starts later, from a past revision.
    while (written.size() < 300) co_await asio::post(loop, asio::use_awaitable);
    const auto middle = written[150];
    auto late = store->watch("w/", middle);
    co_await writers.join();
    std::sort(written.begin(), written.end());
    CO_ASSERT(written.size() == 960);
    std::vector<Event> seen_early, seen_late;
    co_await read_until(*early, written.back(), seen_early);
    co_await read_until(*late, written.back(), seen_late);
    std::vector<Revision> revisions_early, revisions_late;
    for (const auto& event : seen_early) revisions_early.push_back(event.revision);
    for (const auto& event : seen_late) revisions_late.push_back(event.revision);
    EXPECT_EQ(revisions_early, written);
    EXPECT_EQ(revisions_late, std::vector<Revision>(std::upper_bound(written.begin(), written.end(), middle), written.end()));
    EXPECT_GE(early->position(), written.back());
    co_await store->stop();
}

CONFORMANCE(AWaitingWatchIsWoken) {
    CONFORMANCE_OPEN(store);
    auto watch = store->watch("w/", store->revision());
    TaskGroup group(loop.get_executor());
    std::vector<Result<Revision>> outcomes;
    group.spawn(keep_outcome(*store, Transaction().put("other/1", "1"), outcomes));
    group.spawn(keep_outcome(*store, Transaction().put("w/1", "1"), outcomes));
    auto events = co_await watch->next(ctx.with_timeout(30s));
    CO_ASSERT_OK(events);
    CO_ASSERT(events->size() == 1);
    EXPECT_EQ(events->front().key, "w/1");
    co_await group.join();
    auto nothing = co_await watch->next(ctx.with_timeout(20ms));
    CO_ASSERT(!nothing.ok());
    EXPECT_EQ(nothing.error().code, Code::timeout);
    co_await store->stop();
}

CONFORMANCE(WatchesReceiveOnlyTheirPrefix) {
    CONFORMANCE_OPEN(store);
    const auto start = store->revision();
    auto all = store->watch("", start), below = store->watch("a/", start), one = store->watch("a/1", start);
    auto written = co_await store->apply(ctx, Transaction().put("a/1", "1").put("a/10", "1").put("b", "1"));
    CO_ASSERT_OK(written);
    auto last = co_await store->apply(ctx, Transaction().remove("a/1").put("a/11", "2"));
    CO_ASSERT_OK(last);
    std::vector<Event> seen;
    co_await read_until(*all, *last, seen);
    EXPECT_EQ(seen.size(), 5u);
    seen.clear();
    co_await read_until(*below, *last, seen);
    EXPECT_EQ(seen.size(), 4u);
    seen.clear();
    co_await read_until(*one, *last, seen);
    CO_ASSERT(seen.size() == 2);
    CO_ASSERT(seen[0].record && !seen[0].previous);
    EXPECT_EQ(seen[0].record->value, "1");
    EXPECT_EQ(seen[0].revision, *written);
    CO_ASSERT(!seen[1].record && seen[1].previous);
    EXPECT_EQ(seen[1].previous->value, "1");
    co_await store->stop();
}

CONFORMANCE(ARevisionIsNeverSplitBetweenReads) {
    CONFORMANCE_OPEN(store, .max_events_per_read = 5);
    const auto start = store->revision();
    Revision last = 0;
    for (int i = 0; i < 10; ++i) {
        Transaction three;
        for (int j = 0; j < 3; ++j) three.put(fmt::format("k/{}", j), std::to_string(i));
        auto written = co_await store->apply(ctx, three);
        CO_ASSERT_OK(written);
        last = *written;
    }
    auto watch = store->watch("", start);
    std::size_t seen = 0;
    while (seen < 30) {
        auto events = co_await watch->next(ctx.with_timeout(30s));
        CO_ASSERT_OK(events);
        EXPECT_EQ(events->size() % 3, 0u);
        EXPECT_LE(events->size(), 9u);
        EXPECT_EQ(watch->position(), events->back().revision);
        seen += events->size();
    }
    EXPECT_EQ(watch->position(), last);
    co_await store->stop();
}

CONFORMANCE(CompactionEndsOldWatchesAndKeepsCurrentValues) {
    CONFORMANCE_OPEN(store);
    const auto start = store->revision();
    std::vector<Revision> written;
    co_await write_many(*store, "c/", 20, written);
    CO_ASSERT(written.size() == 20);
    auto compacted = co_await store->compact(ctx, written[9]);
    CO_ASSERT_OK(compacted);
    EXPECT_EQ(store->compacted(), written[9]);
    compacted = co_await store->compact(ctx, written[4]);
    CO_ASSERT_OK(compacted);
    compacted = co_await store->compact(ctx, written.back() + 1000);
    CO_ASSERT(!compacted.ok());
    EXPECT_EQ(compacted.error().code, Code::invalid);
    EXPECT_EQ(store->count("c/"), 7u);
    for (auto from : {start, written[8], written.back() + 1000}) {
        auto watch = store->watch("c/", from);
        auto events = co_await watch->next(ctx.with_timeout(30s));
        CO_ASSERT(!events.ok());
        EXPECT_EQ(events.error().code, Code::compacted) << events.error().text();
        EXPECT_FALSE(events.error().remedy.empty());
    }
    auto watch = store->watch("c/", written[9]);
    std::vector<Event> seen;
    co_await read_until(*watch, written.back(), seen);
    EXPECT_EQ(seen.size(), 10u);
    co_await store->stop();
    store.reset();
    CONFORMANCE_OPEN(again);
    EXPECT_EQ(again->count("c/"), 7u);
    EXPECT_GE(again->compacted(), written[9]);
    co_await again->stop();
}

CONFORMANCE(AWatchResumesAfterAReopen) {
    CONFORMANCE_OPEN(store);
    std::vector<Revision> written;
    co_await write_many(*store, "c/", 20, written);
    CO_ASSERT(written.size() == 20);
    co_await store->stop();
    store.reset();
    CONFORMANCE_OPEN(again);
    co_await write_many(*again, "c/", 5, written);
    auto watch = again->watch("c/", written[9]);
    if (fixture.keeps_history()) {
        std::vector<Event> seen;
        co_await read_until(*watch, written.back(), seen);
        EXPECT_EQ(seen.size(), 15u);
    } else {
        auto events = co_await watch->next(ctx.with_timeout(30s));
        CO_ASSERT(!events.ok());
        EXPECT_EQ(events.error().code, Code::compacted);
    }
    co_await again->stop();
}

CONFORMANCE(ASlowWatchIsCompactedAndOthersContinue) {
    CONFORMANCE_OPEN(store, .max_history_events = 50);
    auto slow = store->watch("busy/", store->revision()), quiet = store->watch("quiet/", store->revision());
    std::vector<Revision> written;
    co_await write_many(*store, "busy/", 200, written);
    auto events = co_await slow->next(ctx.with_timeout(30s));
    CO_ASSERT(!events.ok());
    EXPECT_EQ(events.error().code, Code::compacted);
    EXPECT_NE(events.error().message.find("slow"), std::string::npos) << events.error().message;
    auto last = co_await store->apply(ctx, Transaction().put("quiet/1", "1"));
    CO_ASSERT_OK(last);
    events = co_await quiet->next(ctx.with_timeout(30s));
    CO_ASSERT_OK(events);
    EXPECT_EQ(events->front().revision, *last);
    co_await store->stop();
}

inline asio::awaitable<void> wait_for_end(Watch& watch, std::vector<Code>& codes) {
    auto events = co_await watch.next(ctx);
    codes.push_back(events.ok() ? Code::internal : events.error().code);
}

CONFORMANCE(StopEndsAllWatches) {
    CONFORMANCE_OPEN(store);
    auto watch = store->watch("", store->revision());
    std::vector<Code> codes;
    TaskGroup group(loop.get_executor());
    group.spawn(wait_for_end(*watch, codes));
    co_await asio::post(loop, asio::use_awaitable);
    co_await store->stop();
    co_await group.join();
    EXPECT_EQ(codes, (std::vector<Code>{Code::cancelled}));
}

} // namespace orrery::store::conformance
