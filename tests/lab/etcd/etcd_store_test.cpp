#include "core/test_fixture.h"
#include "lab/etcd/etcd_cluster.h"
#include "store/etcd/etcd_store.h"
#include "store/migrate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <map>

namespace orrery::store {

using namespace std::chrono_literals;
using orrery::testing::EtcdCluster;

namespace {

EtcdOptions options_for(const EtcdCluster& cluster) {
    EtcdOptions options;
    options.endpoints = cluster.endpoints();
    return options;
}

asio::awaitable<void> write_many(Store& store, std::string name, int count, int& written) {
    for (int i = 0; i < count; ++i) {
        Transaction transaction;
        transaction.put(fmt::format("load/{}/{}", name, i % 50), std::string(256, 'x'));
        auto done = co_await store.apply(Context::background(), std::move(transaction));
        if (!done.ok()) {
            ADD_FAILURE() << done.error().text();
            co_return;
        }
        ++written;
    }
}

asio::awaitable<void> apply_into(Store& store, Transaction transaction, Result<Revision>& into) {
    into = co_await store.apply(Context::background(), std::move(transaction));
}

/// Waits until it is so, or the time is over.
asio::awaitable<void> until(Duration time, std::function<bool()> so) {
    for (const auto end = std::chrono::steady_clock::now() + time; !so() && std::chrono::steady_clock::now() < end;)
        std::ignore = co_await real_clock().sleep(10ms);
}

} // namespace

/// A cluster of that many, or the end of the test.
#define ETCD_OR_SKIP(cluster, members)                                                                                             \
    EtcdCluster cluster;                                                                                                           \
    CO_NEEDS_ETCD()                                                                                                                \
    auto started_##cluster = cluster.start(members);                                                                               \
    CO_ASSERT_OK(started_##cluster)

CO_TEST(EtcdStore, WritesAreVisibleAtOnceAndToASecondServer) {
    ETCD_OR_SKIP(cluster, 1);
    auto ctx = Context::background();
    auto first = co_await open_etcd(ctx, loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(first);
    auto second = co_await open_etcd(ctx, loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(second);
    EXPECT_EQ((*first)->identity(), (*second)->identity());
    EXPECT_EQ((*first)->identity().size(), 16U);
    Transaction transaction;
    transaction.expect("nodes/n1", 0).put("nodes/n1", "one").put("nodes/n2", "two");
    auto revision = co_await (*first)->apply(ctx, transaction);
    CO_ASSERT_OK(revision);
    EXPECT_EQ((*first)->revision(), *revision);
    CO_ASSERT((*first)->find("nodes/n1") != nullptr);
    EXPECT_EQ((*first)->find("nodes/n1")->value, "one");
    EXPECT_EQ((*first)->find("nodes/n1")->modified, *revision);
    auto seen = co_await (*second)->catch_up(ctx);
    CO_ASSERT_OK(seen);
    EXPECT_EQ(*seen, *revision);
    EXPECT_EQ((*second)->count("nodes/"), 2U);
    auto again = co_await (*second)->apply(ctx, transaction);
    CO_ASSERT(!again.ok());
    EXPECT_EQ(again.error().code, Code::conflict) << again.error().text();
    co_await (*first)->stop();
    co_await (*second)->stop();
}

CO_TEST(EtcdStore, ConcurrentWriters) {
    ETCD_OR_SKIP(cluster, 1);
    auto store = co_await open_etcd(Context::background(), loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(store);
    for (int writers : {1, 64, 256}) {
        int written = 0;
        const int each = writers == 1 ? 2000 : 20000 / writers;
        const auto begin = std::chrono::steady_clock::now();
        const auto ours = std::clock();
        const auto theirs = cluster.cpu_seconds(0);
        TaskGroup group(loop.get_executor());
        for (int i = 0; i < writers; ++i) group.spawn(write_many(**store, std::to_string(i), each, written));
        co_await group.join();
        const auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        EXPECT_EQ(written, writers * each);
        // The host may be busy; CPU time does not depend on that.
        fmt::print("{} writers: {:.0f} writes/s; a write costs {:.0f} us of CPU here and {:.0f} us in etcd\n", writers,
                   written / took, 1e6 * static_cast<double>(std::clock() - ours) / CLOCKS_PER_SEC / written,
                   1e6 * (cluster.cpu_seconds(0) - theirs) / written);
    }
    co_await (*store)->stop();
}

CO_TEST(EtcdStore, RevisionsHaveNoGapsInADedicatedEtcd) {
    ETCD_OR_SKIP(cluster, 1);
    auto store = co_await open_etcd(Context::background(), loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(store);
    const auto first = (*store)->revision();
    for (int i = 1; i <= 100; ++i) {
        auto revision = co_await (*store)->apply(Context::background(), Transaction().put("k", std::to_string(i)));
        CO_ASSERT_OK(revision);
        EXPECT_EQ(*revision, first + i);
        auto seen = co_await (*store)->catch_up(Context::background());
        CO_ASSERT_OK(seen);
        EXPECT_EQ(*seen, first + i);
    }
    co_await (*store)->stop();
}

CO_TEST(EtcdStore, CatchingUpDoesNotWaitForKeysOutsideThePrefix) {
    ETCD_OR_SKIP(cluster, 1);
    auto theirs = options_for(cluster);
    theirs.prefix = "/theirs/";
    auto ctx = Context::background();
    auto ours = co_await open_etcd(ctx, loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(ours);
    auto stranger = co_await open_etcd(ctx, loop.get_executor(), theirs);
    CO_ASSERT_OK(stranger);
    EXPECT_NE((*ours)->identity(), (*stranger)->identity());
    for (int i = 0; i < 5; ++i) {
        auto written = co_await (*stranger)->apply(ctx, Transaction().put("k", "theirs"));
        CO_ASSERT_OK(written);
        auto seen = co_await (*ours)->catch_up(ctx.with_timeout(5s));
        CO_ASSERT_OK(seen);
        EXPECT_GE(*seen, *written);
        auto checked = co_await (*ours)->apply(ctx.with_timeout(5s), Transaction().expect("k", 0));
        CO_ASSERT_OK(checked);
    }
    EXPECT_EQ((*ours)->count(""), 0U);
    co_await (*ours)->stop();
    co_await (*stranger)->stop();
}

CO_TEST(EtcdStore, ALostClusterRefusesWritesAtOnceAndReadsContinue) {
    ETCD_OR_SKIP(cluster, 1);
    auto ctx = Context::background();
    auto store = co_await open_etcd(ctx, loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(store);
    auto written = co_await (*store)->apply(ctx, Transaction().put("k", "before"));
    CO_ASSERT_OK(written);
    EXPECT_TRUE((*store)->health().ok());
    cluster.kill(0);
    co_await until(20s, [&] { return !(*store)->health().ok(); });
    // The first one may have to find out; later ones know.
    std::ignore = co_await (*store)->apply(ctx.with_timeout(5s), Transaction().put("k", "lost"));
    const auto begin = std::chrono::steady_clock::now();
    auto refused = co_await (*store)->apply(ctx, Transaction().put("k", "lost"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 500ms);
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::unavailable) << refused.error().text();
    EXPECT_FALSE(outcome_unknown(refused.error())) << refused.error().text();
    EXPECT_EQ((*store)->find("k")->value, "before");
    EXPECT_EQ((*store)->revision(), *written);
    CO_ASSERT(!(*store)->health().ok());
    EXPECT_NE((*store)->health().error().remedy.find("reads continue"), std::string::npos);
    auto back = cluster.restart(0);
    CO_ASSERT_OK(back);
    co_await until(20s, [&] { return (*store)->health().ok(); });
    auto again = co_await (*store)->apply(ctx, Transaction().expect("k", *written).put("k", "after"));
    CO_ASSERT_OK(again);
    co_await (*store)->stop();
}

CO_TEST(EtcdStore, ACopyThatCannotBeVerifiedIsReportedAsStaleWithoutAWrite) {
    ETCD_OR_SKIP(cluster, 1);
    auto ctx = Context::background();
    auto store = co_await open_etcd(ctx, loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(store);
    auto written = co_await (*store)->apply(ctx, Transaction().put("k", "before"));
    CO_ASSERT_OK(written);
    // Verifying writes nothing where etcd is ours.
    std::ignore = co_await real_clock().sleep(3s);
    EXPECT_LT(copy_age(**store), stale_copy_age);
    EXPECT_EQ((*store)->revision(), *written);
    cluster.pause(0);
    co_await until(20s, [&] { return !(*store)->health().ok(); });
    CO_ASSERT(!(*store)->health().ok());
    co_await until(20s, [&] { return copy_age(**store) > stale_copy_age; });
    EXPECT_GT(copy_age(**store), stale_copy_age);
    EXPECT_EQ((*store)->find("k")->value, "before");
    cluster.resume(0);
    co_await until(20s, [&] { return (*store)->health().ok(); });
    EXPECT_TRUE((*store)->health().ok());
    EXPECT_LT(copy_age(**store), stale_copy_age);
    auto again = co_await (*store)->apply(ctx, Transaction().put("k", "after"));
    CO_ASSERT_OK(again);
    co_await (*store)->stop();
}

CO_TEST(EtcdStore, ASilentMemberIsReplacedByAnother) {
    ETCD_OR_SKIP(cluster, 3);
    auto options = options_for(cluster);
    options.retry_time = 20s;
    auto store = co_await open_etcd(Context::background(), loop.get_executor(), options);
    CO_ASSERT_OK(store);
    for (std::size_t silent = 0; silent < cluster.size(); ++silent) {
        cluster.pause(silent);
        auto written =
            co_await (*store)->apply(Context::background().with_timeout(20s), Transaction().put("k", std::to_string(silent)));
        cluster.resume(silent);
        CO_ASSERT_OK(written);
        EXPECT_EQ((*store)->find("k")->version, static_cast<std::int64_t>(silent) + 1);
        std::ignore = co_await real_clock().sleep(2s);
    }
    co_await (*store)->stop();
}

CO_TEST(EtcdStore, ChangesThatWereCompactedMeanwhileAreListedAgain) {
    ETCD_OR_SKIP(cluster, 1);
    auto ctx = Context::background();
    auto away = co_await open_etcd(ctx, loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(away);
    auto before = co_await (*away)->apply(ctx, Transaction().put("stays", "1").put("goes", "1").put("changes", "1"));
    CO_ASSERT_OK(before);
    std::map<std::string, std::string> observed;
    auto observer = (*away)->observe("", [&observed](const Event& event) {
        if (event.record)
            observed[event.key] = event.record->value;
        else
            observed.erase(event.key);
    });
    auto watch = (*away)->watch("", *before);
    // While etcd is down for the one, it is changed and compacted behind its back.
    cluster.kill(0);
    co_await until(20s, [&] { return !(*away)->health().ok(); });
    auto elsewhere = cluster.restart_elsewhere(0);
    CO_ASSERT_OK(elsewhere);
    auto options = options_for(cluster);
    options.endpoints = {*elsewhere};
    auto other = co_await open_etcd(ctx, loop.get_executor(), options);
    CO_ASSERT_OK(other);
    auto changed = co_await (*other)->apply(ctx, Transaction().put("changes", "2").remove("goes").put("new", "1"));
    CO_ASSERT_OK(changed);
    auto compacted = co_await (*other)->compact(ctx, *changed);
    CO_ASSERT_OK(compacted);
    co_await (*other)->stop();
    cluster.kill(0);
    auto back = cluster.restart(0);
    CO_ASSERT_OK(back);
    co_await until(20s, [&] { return observed.contains("new"); });
    EXPECT_EQ(observed, (std::map<std::string, std::string>{{"stays", "1"}, {"changes", "2"}, {"new", "1"}}));
    EXPECT_EQ((*away)->count(""), 3U);
    auto told = co_await watch->next(ctx.with_timeout(5s));
    CO_ASSERT(!told.ok());
    EXPECT_EQ(told.error().code, Code::compacted);
    auto after = co_await (*away)->apply(ctx, Transaction().put("stays", "2"));
    CO_ASSERT_OK(after);
    EXPECT_EQ(observed["stays"], "2");
    co_await (*away)->stop();
}

CO_TEST(EtcdStore, AnUnfinishedCopyIsRefusedWithARemedy) {
    ETCD_OR_SKIP(cluster, 1);
    auto ctx = Context::background();
    auto store = co_await open_etcd(ctx, loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(store);
    auto marked = co_await (*store)->apply(ctx, Transaction().put(std::string(migration_key), "from x").put("half", "1"));
    CO_ASSERT_OK(marked);
    co_await (*store)->stop();
    auto refused = co_await open_etcd(ctx, loop.get_executor(), options_for(cluster));
    CO_ASSERT(!refused.ok());
    EXPECT_NE(refused.error().remedy.find("etcdctl del --prefix /orrery/"), std::string::npos) << refused.error().text();
    auto options = options_for(cluster);
    options.allow_incomplete = true;
    auto allowed = co_await open_etcd(ctx, loop.get_executor(), options);
    CO_ASSERT_OK(allowed);
    auto cleared = co_await clear_incomplete_migration(ctx, **allowed);
    CO_ASSERT_OK(cleared);
    co_await (*allowed)->stop();
    auto opened = co_await open_etcd(ctx, loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(opened);
    EXPECT_EQ((*opened)->count(""), 0U);
    co_await (*opened)->stop();
}

CO_TEST(EtcdStore, AMissingServerIsReportedWithinTheDeadline) {
    EtcdOptions options;
    options.endpoints = {"127.0.0.1:1"};
    const auto begin = std::chrono::steady_clock::now();
    auto opened = co_await open_etcd(Context::background().with_timeout(1s), loop.get_executor(), options);
    CO_ASSERT(!opened.ok());
    EXPECT_EQ(opened.error().code, Code::unavailable);
    EXPECT_NE(opened.error().message.find("127.0.0.1:1"), std::string::npos) << opened.error().message;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
}

CO_TEST(EtcdStore, ADeadlineBoundsAWriteAndCancellationEndsIt) {
    ETCD_OR_SKIP(cluster, 1);
    auto store = co_await open_etcd(Context::background(), loop.get_executor(), options_for(cluster));
    CO_ASSERT_OK(store);
    cluster.pause(0);
    const auto begin = std::chrono::steady_clock::now();
    auto late = co_await (*store)->apply(Context::background().with_timeout(300ms), Transaction().put("k", "1"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
    CO_ASSERT(!late.ok());
    EXPECT_EQ(late.error().code, Code::unavailable);
    EXPECT_TRUE(outcome_unknown(late.error())) << late.error().text();
    Result<Revision> cancelled;
    TaskGroup group(loop.get_executor());
    group.spawn(apply_into(**store, Transaction().put("k", "2"), cancelled));
    std::ignore = co_await real_clock().sleep(50ms);
    co_await group.stop();
    CO_ASSERT(!cancelled.ok());
    EXPECT_EQ(cancelled.error().code, Code::cancelled) << cancelled.error().text();
    cluster.resume(0);
    auto next = co_await (*store)->apply(Context::background(), Transaction().put("k", "3"));
    CO_ASSERT_OK(next);
    EXPECT_EQ((*store)->find("k")->value, "3");
    co_await (*store)->stop();
}

TEST(EtcdUrl, IsParsedOrRefusedWithAMessage) {
    auto options = parse_etcd_url("etcd://h1:2379,10.0.0.2,[::1]:23790/a/b");
    ASSERT_TRUE(options.ok()) << options.error().text();
    EXPECT_EQ(options->endpoints, (std::vector<std::string>{"h1:2379", "10.0.0.2:2379", "[::1]:23790"}));
    EXPECT_EQ(options->prefix, "/a/b/");
    EXPECT_FALSE(options->tls);
    EXPECT_TRUE(parse_etcd_url("etcds://h1").value().tls);
    EXPECT_EQ(parse_etcd_url("etcd://h1/").value().prefix, "/orrery/");
    for (const auto* wrong : {"", "http://h:1", "etcd://", "etcd://h:", "etcd://h:0", "etcd://h:99999", "etcd://h:x",
                              "etcd://u@h:1", "etcd://h,,g", "etcd://fe80::1", "etcd://h/a?b", "etcd://h/a//b"})
        EXPECT_FALSE(parse_etcd_url(wrong).ok()) << wrong;
    for (const auto* secret :
         {"etcd://root:hunter2@h:1", "etcd://root:hun/hunter2@h//", "http://root:hunter2@h", "root:hunter2@h"}) {
        const auto refused = parse_etcd_url(secret);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().text().find("hunter2"), std::string::npos) << refused.error().text();
    }
}

CO_TEST(EtcdUrl, PlaintextBeyondLoopbackIsRefused) {
    EtcdOptions options;
    options.endpoints = {"127.0.0.1:1", "198.51.100.1:2379"};
    auto refused = co_await open_etcd(Context::background(), loop.get_executor(), options);
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::invalid);
    EXPECT_NE(refused.error().text().find("198.51.100.1:2379 is beyond loopback"), std::string::npos) << refused.error().text();
    options.tls = true;
    EXPECT_TRUE(check_etcd_plaintext(options).ok());
    options.tls = false;
    options.allow_plaintext = true;
    EXPECT_TRUE(check_etcd_plaintext(options).ok());
}

} // namespace orrery::store
