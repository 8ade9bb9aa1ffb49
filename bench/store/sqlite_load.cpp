#include "load.h"
#include "store/sqlite/sqlite_store.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <random>

namespace orrery::bench {

namespace {

using store::Store;
using store::Transaction;

struct Shared {
    const Load& load;
    Found& found;
    std::string value;
    double until = 0;
};

asio::awaitable<void> write_one_by_one(Store& store, Shared& shared, unsigned seed) {
    std::mt19937 random(seed);
    const auto ctx = Context::background();
    while (now_seconds() < shared.until && shared.found.problem.empty()) {
        auto written =
            co_await store.apply(ctx, Transaction().put(key_of(random() % static_cast<unsigned>(shared.load.keys)), shared.value));
        if (!written.ok()) shared.found.problem = written.error().text();
        ++shared.found.calls;
    }
}

/// Each read is scheduled on the loop, as a request would be.
asio::awaitable<void> read_one_by_one(Store& store, Shared& shared, unsigned seed, asio::any_io_executor executor) {
    std::mt19937 random(seed);
    while (now_seconds() < shared.until) {
        auto revision = co_await store.catch_up(Context::background());
        const auto record = store.find(key_of(random() % static_cast<unsigned>(shared.load.keys)));
        if (!revision.ok() || !record || record->value.size() != shared.value.size()) shared.found.problem = "a key is missing";
        ++shared.found.calls;
        co_await asio::post(executor, asio::use_awaitable);
    }
}

asio::awaitable<void> watch(Store& store, std::uint64_t& deliveries) {
    auto watch = store.watch("nodes/", store.revision());
    for (;;) {
        auto events = co_await watch->next(Context::background());
        if (!events.ok()) co_return;
        deliveries += events->size();
    }
}

asio::awaitable<void> write_bulk(Store& store, Transaction transaction, std::string& problem) {
    auto written = co_await store.apply(Context::background(), std::move(transaction));
    if (!written.ok()) problem = written.error().text();
}

/// All keys in a random order, so that old and new rows are mixed, as in a store that was used for long.
asio::awaitable<void> fill(Store& store, Shared& shared, asio::any_io_executor executor, unsigned seed) {
    std::vector<unsigned> order(static_cast<std::size_t>(shared.load.keys));
    for (unsigned i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    for (std::size_t i = 0; i < order.size();) {
        TaskGroup group(executor);
        for (int batch = 0; batch < 20 && i < order.size(); ++batch) {
            Transaction some;
            for (int j = 0; j < 100 && i < order.size(); ++j, ++i) some.put(key_of(order[i]), shared.value);
            group.spawn(write_bulk(store, std::move(some), shared.found.problem));
        }
        co_await group.join();
    }
}

double metric(const Store& store, std::string_view name) {
    for (const auto& [each, value] : store.metrics())
        if (each == name) return value;
    return 0;
}

asio::awaitable<void> measure(asio::io_context& loop, const Load& load, Found& found) {
    Shared shared{load, found, std::string(static_cast<std::size_t>(load.value), 'v')};
    const auto began = now_seconds();
    auto opened = co_await store::open_sqlite(Context::background(), loop.get_executor(), {.path = load.where});
    if (!opened.ok()) {
        found.problem = opened.error().text();
        co_return;
    }
    found.open_seconds = now_seconds() - began;
    auto& store = **opened;
    const bool is_new = store.count("nodes/") < static_cast<std::size_t>(load.keys);
    if (is_new)
        for (int i = 0; i <= load.rewrites; ++i) co_await fill(store, shared, loop.get_executor(), static_cast<unsigned>(i));

    TaskGroup watchers(loop.get_executor()), clients(loop.get_executor());
    for (int i = 0; i < load.watchers; ++i) watchers.spawn(watch(store, found.deliveries));
    const auto deleted_rows = metric(store, "superseded_rows_deleted_total");
    const auto cpu = cpu_seconds(), start = now_seconds();
    shared.until = start + load.seconds;
    for (int i = 0; i < load.clients; ++i) {
        const auto seed = static_cast<unsigned>(i + 1);
        if (load.what == "reads")
            clients.spawn(read_one_by_one(store, shared, seed, loop.get_executor()));
        else
            clients.spawn(write_one_by_one(store, shared, seed));
    }
    co_await clients.join();
    found.seconds = now_seconds() - start;
    found.cpu_seconds = cpu_seconds() - cpu;
    found.deleted_rows = static_cast<std::uint64_t>(metric(store, "superseded_rows_deleted_total") - deleted_rows);
    co_await watchers.stop();
    co_await store.stop();
}

} // namespace

Found load_sqlite(const Load& load) {
    Found found;
    asio::io_context loop(1);
    asio::co_spawn(loop, measure(loop, load, found), [](std::exception_ptr exception) {
        if (exception) std::rethrow_exception(exception);
    });
    loop.run();
    return found;
}

} // namespace orrery::bench
