#include "core/test_fixture.h"
#include "store/mirror.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

namespace orrery::store {
namespace {

using namespace std::chrono_literals;

RecordPtr record_of(std::string key, std::string value, Revision revision) {
    return std::make_shared<const Record>(Record{std::move(key), std::move(value), revision, revision, 1, 0});
}
Event put_event(std::string key, std::string value, Revision revision) {
    auto record = record_of(key, std::move(value), revision);
    return Event{0, std::move(key), std::move(record), nullptr};
}
Event removal(std::string key) { return Event{0, std::move(key), nullptr, nullptr}; }

void put(Mirror& mirror, std::string key, std::string value = "v") {
    const auto revision = mirror.revision() + 1;
    mirror.apply(revision, {put_event(std::move(key), std::move(value), revision)});
}

std::vector<std::string> keys_of(const std::vector<RecordPtr>& records) {
    std::vector<std::string> keys;
    for (const auto& record : records) keys.push_back(record->key);
    return keys;
}
std::vector<Revision> revisions_of(const std::vector<Event>& events) {
    std::vector<Revision> revisions;
    for (const auto& event : events) revisions.push_back(event.revision);
    return revisions;
}
using Keys = std::vector<std::string>;
using Revisions = std::vector<Revision>;

CO_TEST(Mirror, FindsRangesAndCounts) {
    Mirror mirror(loop.get_executor());
    for (auto key : {"a/1", "a/2", "a/2/x", "a0", "b/1", "b"}) put(mirror, key);
    EXPECT_EQ(mirror.find("a/2")->modified, 2);
    EXPECT_EQ(mirror.find("a/3"), nullptr);
    EXPECT_EQ(keys_of(mirror.range("a/", 0).records), (Keys{"a/1", "a/2", "a/2/x"}));
    EXPECT_EQ(keys_of(mirror.range("a", 0).records), (Keys{"a/1", "a/2", "a/2/x", "a0"}));
    EXPECT_EQ(mirror.count("a/"), 3u);
    EXPECT_EQ(mirror.count("a/2/"), 1u);
    EXPECT_EQ(mirror.count("a"), 4u);
    EXPECT_EQ(mirror.count(""), 6u);
    EXPECT_EQ(mirror.count("zz/"), 0u);
    mirror.apply(7, {removal("a/1"), removal("b/1"), removal("never/there")});
    EXPECT_EQ(mirror.count("a/"), 2u);
    EXPECT_EQ(mirror.count("b/"), 0u);
    EXPECT_EQ(mirror.find("a/1"), nullptr);
    co_return;
}

CO_TEST(Mirror, PagesNeitherSkipNorRepeatStableKeys) {
    Mirror mirror(loop.get_executor());
    for (int i = 0; i < 100; ++i) put(mirror, fmt::format("n/{:03}", i));
    auto page = mirror.range("n/", 30);
    EXPECT_EQ(page.records.size(), 30u);
    EXPECT_EQ(page.next, "n/029");
    const auto revision = mirror.revision() + 1;
    mirror.apply(revision, {removal("n/029"), removal("n/030"), put_event("n/0295", "new", revision)});
    page = mirror.range("n/", 30, page.next);
    EXPECT_EQ(page.records.front()->key, "n/0295");
    EXPECT_EQ(page.records[1]->key, "n/031");
    EXPECT_EQ(page.revision, revision);
    EXPECT_EQ(mirror.range("n/", 70, "n/029").next, "");
    EXPECT_EQ(mirror.range("n/", 10, "zzz").records.size(), 0u);
    EXPECT_EQ(mirror.range("n/", 1, "a").records.front()->key, "n/000");
    co_return;
}

CO_TEST(Mirror, AWatchReturnsOnlyKeysBelowItsPrefix) {
    Mirror mirror(loop.get_executor());
    for (auto key : {"a/1", "b/1", "a/2", "a", "ab/1"}) put(mirror, key);
    const auto ctx = Context::background();
    auto below = mirror.watch("a/", 0), all = mirror.watch("", 2), one = mirror.watch("a", 0);
    auto events = co_await below->next(ctx);
    CO_ASSERT_OK(events);
    EXPECT_EQ(revisions_of(*events), (Revisions{1, 3}));
    EXPECT_EQ(below->position(), 5);
    events = co_await all->next(ctx);
    CO_ASSERT_OK(events);
    EXPECT_EQ(revisions_of(*events), (Revisions{3, 4, 5}));
    events = co_await one->next(ctx);
    CO_ASSERT_OK(events);
    EXPECT_EQ(revisions_of(*events), (Revisions{4}));
    events = co_await one->next(ctx.with_timeout(1ms));
    EXPECT_EQ(events.error().code, Code::timeout);
}

CO_TEST(Mirror, AWaitingWatchWakesOnlyForItsKeys) {
    Mirror mirror(loop.get_executor());
    auto watch = mirror.watch("jobs/7/", 0);
    asio::post(loop, [&] { put(mirror, "jobs/8/x"); });
    asio::post(loop, [&] {
        EXPECT_EQ(watch->position(), 1);
        mirror.apply(2, {put_event("jobs/7/a", "1", 2), put_event("jobs/70", "2", 2), put_event("jobs/7/b", "3", 2)});
    });
    auto events = co_await watch->next(Context::background());
    CO_ASSERT_OK(events);
    EXPECT_EQ(revisions_of(*events), (Revisions{2, 2}));
    EXPECT_EQ(events->back().key, "jobs/7/b");
}

CO_TEST(Mirror, AReadNeverSplitsARevision) {
    Mirror mirror(loop.get_executor(), {.max_events_per_read = 3});
    mirror.apply(1, {put_event("a", "", 1), put_event("b", "", 1)});
    mirror.apply(2, {put_event("c", "", 2), put_event("d", "", 2)});
    mirror.apply(3, {put_event("e", "", 3)});
    auto watch = mirror.watch("", 0);
    auto events = co_await watch->next(Context::background());
    CO_ASSERT_OK(events);
    EXPECT_EQ(revisions_of(*events), (Revisions{1, 1, 2, 2}));
    EXPECT_EQ(watch->position(), 2);
    events = co_await watch->next(Context::background());
    CO_ASSERT_OK(events);
    EXPECT_EQ(revisions_of(*events), (Revisions{3}));
}

CO_TEST(Mirror, ASlowWatchIsCompactedAndAnIdleOneIsNot) {
    Mirror mirror(loop.get_executor(), {.max_history_events = 10});
    auto slow = mirror.watch("busy/", 0), quiet = mirror.watch("quiet/", 0);
    for (int i = 0; i < 100; ++i) put(mirror, "busy/1", std::to_string(i));
    put(mirror, "quiet/1");
    auto events = co_await slow->next(Context::background());
    CO_ASSERT(!events.ok());
    EXPECT_EQ(events.error().code, Code::compacted);
    EXPECT_NE(events.error().message.find("too slow"), std::string::npos) << events.error().message;
    events = co_await quiet->next(Context::background());
    CO_ASSERT_OK(events);
    EXPECT_EQ(revisions_of(*events), (Revisions{101}));
    EXPECT_EQ(mirror.compacted(), 91);
}

CO_TEST(Mirror, TheHistoryIsAlsoLimitedByBytes) {
    Mirror mirror(loop.get_executor(), {.max_history_bytes = 100'000});
    for (int i = 0; i < 1000; ++i) put(mirror, "k", std::string(1000, 'x'));
    for (const auto& [name, value] : mirror.metrics()) {
        if (name == "history_bytes") EXPECT_LE(value, 100'000);
        if (name == "history_events") EXPECT_GE(value, 30);
    }
    co_return;
}

CO_TEST(Mirror, WatchesFromInvalidRevisionsAreCompacted) {
    Mirror mirror(loop.get_executor());
    for (int i = 0; i < 5; ++i) put(mirror, "k");
    mirror.compact(3);
    EXPECT_EQ(mirror.compacted(), 3);
    for (auto from : {2, 6}) {
        auto watch = mirror.watch("", from);
        auto events = co_await watch->next(Context::background());
        CO_ASSERT(!events.ok());
        EXPECT_EQ(events.error().code, Code::compacted) << from;
    }
    auto watch = mirror.watch("", 3);
    auto events = co_await watch->next(Context::background());
    CO_ASSERT_OK(events);
    EXPECT_EQ(revisions_of(*events), (Revisions{4, 5}));
}

CO_TEST(Mirror, ObserversReceiveEveryRecordThenEveryChange) {
    Mirror mirror(loop.get_executor());
    put(mirror, "a/1", "one");
    put(mirror, "b/1", "other");
    std::vector<std::string> seen;
    auto handle = mirror.observe("a/", [&](const Event& event) {
        EXPECT_EQ(mirror.find(event.key), event.record);
        seen.push_back(fmt::format("{} {}<-{}", event.key, event.record ? event.record->value : "-",
                                   event.previous ? event.previous->value : "-"));
    });
    put(mirror, "a/2", "two");
    put(mirror, "a/1", "three");
    put(mirror, "b/1", "more");
    mirror.apply(mirror.revision() + 1, {removal("a/1")});
    handle.reset();
    put(mirror, "a/9");
    EXPECT_EQ(seen, (Keys{"a/1 one<--", "a/2 two<--", "a/1 three<-one", "a/1 -<-three"}));
    co_return;
}

CO_TEST(Mirror, AnObserverMayUnregisterInItsCallback) {
    Mirror mirror(loop.get_executor());
    int calls = 0;
    std::shared_ptr<void> handle;
    handle = mirror.observe("k", [&](const Event&) {
        ++calls;
        handle.reset();
    });
    put(mirror, "k");
    put(mirror, "k");
    EXPECT_EQ(calls, 1);
    co_return;
}

CO_TEST(Mirror, AResetSendsDifferencesToObserversAndCompactsWatches) {
    Mirror mirror(loop.get_executor());
    for (auto key : {"a", "b", "c"}) put(mirror, key);
    std::vector<std::string> seen;
    auto handle = mirror.observe("", [&](const Event& event) {
        seen.push_back(fmt::format("{}{}{}", event.record ? '+' : '-', event.key, event.revision));
    });
    seen.clear();
    auto watch = mirror.watch("", 3);
    mirror.reset({mirror.find("a"), record_of("b", "new", 7), record_of("bb", "new", 8)}, 9);
    EXPECT_EQ(seen, (Keys{"+b7", "+bb8", "-c9"}));
    EXPECT_EQ(mirror.revision(), 9);
    EXPECT_EQ(mirror.count(""), 3u);
    auto events = co_await watch->next(Context::background());
    CO_ASSERT(!events.ok());
    EXPECT_EQ(events.error().code, Code::compacted);
    auto later = mirror.watch("", 9);
    mirror.apply(10, {put_event("z", "", 10)});
    events = co_await later->next(Context::background());
    CO_ASSERT_OK(events);
    EXPECT_EQ(revisions_of(*events), (Revisions{10}));
}

asio::awaitable<void> wait_in(Watch& watch, std::vector<Code>& codes) {
    auto events = co_await watch.next(Context::background());
    codes.push_back(events.ok() ? Code::internal : events.error().code);
}

CO_TEST(Mirror, ClosingOrDestroyingEndsWaitingReads) {
    std::vector<Code> codes;
    auto mirror = std::make_unique<Mirror>(loop.get_executor());
    auto first = mirror->watch("", 0), second = mirror->watch("x", 0);
    asio::co_spawn(loop, wait_in(*first, codes), asio::detached);
    asio::co_spawn(loop, wait_in(*second, codes), asio::detached);
    co_await asio::post(loop, asio::use_awaitable);
    first.reset();
    mirror.reset();
    for (int i = 0; i < 5; ++i) co_await asio::post(loop, asio::use_awaitable);
    EXPECT_EQ(codes, (std::vector<Code>{Code::cancelled, Code::cancelled}));
}

} // namespace
} // namespace orrery::store
