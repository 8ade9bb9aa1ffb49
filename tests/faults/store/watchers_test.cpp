// A thousand watchers and a thousand writes, with some that do not keep up.

#include "core/test_fixture.h"
#include "store/sqlite/sqlite_store.h"

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <sys/resource.h>
#include <unistd.h>

namespace orrery::store::faults {
namespace {

using namespace std::chrono_literals;

std::size_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::size_t all = 0, resident = 0;
    file >> all >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

struct Seen {
    std::size_t right = 0, wrong = 0;
};

/// Each revision once, in order, without a hole.
asio::awaitable<void> watch_all(Store& store, Revision until, Seen& seen) {
    auto watch = store.watch("w/", 0);
    for (Revision expected = 1; expected <= until;) {
        auto events = co_await watch->next(Context::background().with_timeout(120s));
        if (!events.ok()) {
            ADD_FAILURE() << "a watcher ended at " << expected << ": " << events.error().text();
            co_return;
        }
        for (const auto& event : *events) ++(event.revision == expected++ ? seen.right : seen.wrong);
    }
}

asio::awaitable<void> write_some(Store& store, int writes, std::size_t size) {
    for (int i = 0; i < writes; ++i) {
        auto written =
            co_await store.apply(Context::background(), Transaction().put(fmt::format("w/{}", i % 50), std::string(size, 'v')));
        if (!written.ok()) ADD_FAILURE() << written.error().text();
    }
}

struct Run {
    double cpu = 0;
    std::size_t grown = 0;
    int cut_off = 0;
};

asio::awaitable<void> run(asio::io_context& loop, int watchers, int writes, int slow, Run& into) {
    testing::TemporaryFolder folder;
    auto opened =
        co_await open_sqlite(Context::background(), loop.get_executor(),
                             {.path = folder / "store.db", .mirror = {.max_history_events = static_cast<std::size_t>(writes / 4)}});
    CO_ASSERT_OK(opened);
    auto& store = **opened;
    std::vector<std::unique_ptr<Watch>> idle;
    for (int i = 0; i < slow; ++i) idle.push_back(store.watch("w/", 0));
    Seen seen;
    TaskGroup readers(loop.get_executor()), writers(loop.get_executor());
    for (int i = 0; i < watchers; ++i) readers.spawn(watch_all(store, writes, seen));
    co_await asio::post(loop, asio::use_awaitable);
    const auto cpu = cpu_seconds();
    const auto resident = resident_bytes();
    for (int i = 0; i < 10; ++i) writers.spawn(write_some(store, writes / 10, 1024));
    co_await writers.join();
    co_await readers.join();
    into.cpu = cpu_seconds() - cpu;
    const auto now = resident_bytes();
    into.grown = now > resident ? now - resident : 0;
    EXPECT_EQ(seen.right, static_cast<std::size_t>(watchers) * static_cast<std::size_t>(writes));
    EXPECT_EQ(seen.wrong, 0u);
    for (auto& watch : idle) {
        auto events = co_await watch->next(Context::background().with_timeout(1s));
        if (!events.ok() && events.error().code == Code::compacted && events.error().message.find("too slow") != std::string::npos)
            ++into.cut_off;
    }
    co_await store.stop();
}

CO_TEST(Watchers, AThousandReceiveAThousandWritesOnceInOrderAndSlowOnesAreDisconnected) {
    // The least of several alternating rounds: a single round takes so little CPU time that other processes can double it.
    double without = std::numeric_limits<double>::infinity(), with = without;
    for (int round = 0; round < 5; ++round) {
        Run fast, mixed;
        co_await run(loop, 1000, 1000, 0, fast);
        co_await run(loop, 1000, 1000, 100, mixed);
        EXPECT_EQ(mixed.cut_off, 100);
        EXPECT_LT(fast.grown, 96u << 20);
        EXPECT_LT(mixed.grown, 96u << 20);
        without = std::min(without, fast.cpu);
        with = std::min(with, mixed.cpu);
    }
    fmt::print("CPU {:.2f} s without slow watchers, {:.2f} s with a hundred\n", without, with);
    EXPECT_LT(with, 2 * without);
}

CO_TEST(Watchers, MemoryStaysBoundedWithASlowWatcher) {
    Run first, second;
    co_await run(loop, 10, 5'000, 50, first);
    co_await run(loop, 10, 50'000, 50, second);
    EXPECT_EQ(second.cut_off, 50);
    // 50,000 values of a KiB went by; a queue for each sleeper would hold 2.5 GB of references and as many values.
    EXPECT_LT(second.grown, 160u << 20);
}

} // namespace
} // namespace orrery::store::faults
