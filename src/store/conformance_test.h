#pragma once

#include "core/test_fixture.h"
#include "store/mirror.h"
#include "store/store.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

/// The conformance suite of Store: every engine passes all tests. The test of an engine includes this header and instantiates
/// StoreConformance with a factory of its EngineFixture.
namespace orrery::store::conformance {

using namespace std::chrono_literals;

/// One engine with one store, which can be opened several times. Belongs to one test.
class EngineFixture {
public:
    virtual ~EngineFixture() = default;
    /// Opens the store: empty the first time, with its previous contents later. Only one store object may exist at a time.
    virtual Task<std::unique_ptr<Store>> open(asio::any_io_executor executor, Mirror::Options mirror) = 0;
    /// Advances the clock of the engine, for leases.
    virtual asio::awaitable<void> advance(Duration time) = 0;
    /// A short lease TTL that the engine supports, longer than a few writes take.
    virtual Duration short_lease() const { return 5s; }
    /// How long after the expiry of a lease its keys may exist.
    virtual Duration lease_slack() const { return 1s; }
    /// True if no foreign writes use revisions.
    virtual bool is_dense() const { return true; }
    /// True if a watch may start at a revision from before the store was opened.
    virtual bool keeps_history() const { return true; }
};

struct Engine {
    std::string name;
    std::function<std::unique_ptr<EngineFixture>()> make;
    friend void PrintTo(const Engine& engine, std::ostream* out) { *out << engine.name; }
};

class StoreConformance : public ::testing::TestWithParam<Engine> {
protected:
    void run(asio::awaitable<void> (*body)(asio::io_context&, EngineFixture&)) {
        const auto fixture = GetParam().make();
        if (!fixture) GTEST_SKIP() << GetParam().name << " is not installed here";
        asio::io_context loop(1);
        std::exception_ptr failure;
        asio::co_spawn(loop, body(loop, *fixture), [&](std::exception_ptr exception) { failure = std::move(exception); });
        loop.run();
        if (failure) std::rethrow_exception(failure);
    }
};

/// CONFORMANCE(Name) { ... } is a coroutine with `loop` and `fixture`.
#define CONFORMANCE(name)                                                                                                          \
    static ::orrery::asio::awaitable<void> conforms_##name(::orrery::asio::io_context& loop,                                       \
                                                           ::orrery::store::conformance::EngineFixture& fixture);                  \
    TEST_P(StoreConformance, name) { run(&conforms_##name); }                                                                      \
    static ::orrery::asio::awaitable<void> conforms_##name([[maybe_unused]] ::orrery::asio::io_context& loop,                      \
                                                           [[maybe_unused]] ::orrery::store::conformance::EngineFixture& fixture)

/// Opens the store as `name`, a unique_ptr, or ends the test.
#define CONFORMANCE_OPEN(name, ...)                                                                                                \
    auto opened_##name = co_await fixture.open(loop.get_executor(), ::orrery::store::Mirror::Options{__VA_ARGS__});                \
    CO_ASSERT_OK(opened_##name);                                                                                                   \
    auto name = std::move(*opened_##name)

inline const Context ctx = Context::background();

inline std::vector<std::string> keys_in(const Page& page) {
    std::vector<std::string> keys;
    for (const auto& record : page.records) keys.push_back(record->key);
    return keys;
}
using Keys = std::vector<std::string>;

/// Reads a watch until it has returned all changes up to `until`.
inline asio::awaitable<void> read_until(Watch& watch, Revision until, std::vector<Event>& into) {
    const auto retry_time = ctx.with_timeout(60s);
    while (into.empty() || into.back().revision < until) {
        auto events = co_await watch.next(retry_time);
        if (!events.ok()) {
            ADD_FAILURE() << "the watch ended at " << (into.empty() ? 0 : into.back().revision) << ": " << events.error().text();
            co_return;
        }
        into.insert(into.end(), events->begin(), events->end());
    }
}

inline asio::awaitable<void> keep_outcome(Store& store, Transaction transaction, std::vector<Result<Revision>>& into) {
    into.push_back(co_await store.apply(ctx, std::move(transaction)));
}

inline asio::awaitable<void> write_many(Store& store, std::string prefix, int writes, std::vector<Revision>& revisions) {
    for (int i = 0; i < writes; ++i) {
        auto revision = co_await store.apply(ctx, Transaction().put(fmt::format("{}{}", prefix, i % 7), std::to_string(i)));
        if (!revision.ok()) {
            ADD_FAILURE() << revision.error().text();
            co_return;
        }
        revisions.push_back(*revision);
    }
}

inline asio::awaitable<void> increment_by_compare(Store& store, std::string key, int times) {
    for (int done = 0; done < times;) {
        const auto record = store.find(key);
        const int value = record ? std::stoi(record->value) : 0;
        auto written =
            co_await store.apply(ctx, Transaction().expect(key, record ? record->modified : 0).put(key, std::to_string(value + 1)));
        if (written.ok())
            ++done;
        else if (written.error().code != Code::conflict) {
            ADD_FAILURE() << written.error().text();
            co_return;
        } else {
            auto caught_up = co_await store.catch_up(ctx);
            if (!caught_up.ok()) ADD_FAILURE() << caught_up.error().text();
        }
    }
}

} // namespace orrery::store::conformance

#include "store/conformance_reads_test.h"
#include "store/conformance_watches_test.h"
#include "store/conformance_writes_test.h"
