#pragma once

#include "core/test_fixture.h"
#include "linearizability.h"
#include "store/store.h"

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <map>
#include <random>
#include <string>
#include <vector>

/// Concurrent clients of a store, and the history of their calls.
namespace orrery::store::faults {

struct HistoryOptions {
    int clients = 64;
    int calls = 100'000;
    int keys = 32;
    bool (*is_unknown)(const Error&) = nullptr; ///< does an error leave the outcome unknown?
    // Seeded faults, by number of the call: the checker must find them.
    double stale_read = 0;
    double lost_update = 0;
};

class History {
public:
    History(Store& store, HistoryOptions options) : store_(store), options_(options) {}

    asio::awaitable<void> run(asio::any_io_executor executor) {
        TaskGroup clients(executor);
        for (int i = 0; i < options_.clients; ++i) clients.spawn(client(static_cast<unsigned>(i)));
        co_await clients.join();
    }
    const std::vector<testing::RegisterCall>& calls() const { return calls_; }
    std::size_t unknown() const { return unknown_; }
    std::size_t refused() const { return refused_; }

private:
    using Call = testing::RegisterCall;

    asio::awaitable<void> client(unsigned seed) {
        std::mt19937 random(seed + 1);
        std::map<std::string, RecordPtr> remembered;
        while (begun_ < options_.calls) {
            ++begun_;
            Call call;
            call.key = fmt::format("r/{}", random() % static_cast<unsigned>(options_.keys));
            const auto dice = random() % 10;
            call.type = dice < 4 ? Call::Type::read : dice < 7 ? Call::Type::write : Call::Type::compare_and_set;
            call.called = ++time_;
            bool answered = true;
            if (call.type == Call::Type::read)
                answered = co_await read(call, remembered[call.key], random);
            else
                co_await write(call, remembered[call.key], random);
            call.returned = ++time_;
            if (answered)
                calls_.push_back(std::move(call));
            else
                --begun_; // without information; another call replaces it
        }
    }

    asio::awaitable<bool> read(Call& call, RecordPtr& remembered, std::mt19937& random) {
        co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        auto caught_up = co_await store_.catch_up(Context::background());
        if (!caught_up.ok()) {
            if (!options_.is_unknown) ADD_FAILURE() << caught_up.error().text();
            co_return false; // a read without an answer has no information
        }
        const auto record = strikes(options_.stale_read, random) ? remembered : store_.find(call.key);
        call.value = record ? std::stoll(record->value) : 0;
        remembered = record;
        co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
        co_return true;
    }

    asio::awaitable<void> write(Call& call, RecordPtr& remembered, std::mt19937& random) {
        call.value = ++last_value_;
        Transaction transaction;
        transaction.put(call.key, std::to_string(call.value));
        if (call.type == Call::Type::compare_and_set) {
            // Mostly the current value, sometimes an old one.
            const auto record = random() % 4 == 0 ? remembered : store_.find(call.key);
            call.expected = record ? std::stoll(record->value) : 0;
            transaction.expect(call.key, record ? record->modified : 0);
        }
        if (strikes(options_.lost_update, random)) co_return; // acknowledged, but never executed
        auto written = co_await store_.apply(Context::background(), std::move(transaction));
        if (written.ok()) co_return;
        if (written.error().code == Code::conflict && call.type == Call::Type::compare_and_set) {
            call.outcome = Call::Outcome::refused;
            ++refused_;
        } else if (options_.is_unknown && options_.is_unknown(written.error())) {
            call.outcome = Call::Outcome::unknown;
            ++unknown_;
        } else {
            ADD_FAILURE() << written.error().text();
        }
    }

    static bool strikes(double chance, std::mt19937& random) {
        return chance > 0 && std::uniform_real_distribution<>()(random) < chance;
    }

    Store& store_;
    HistoryOptions options_;
    std::vector<Call> calls_;
    std::int64_t time_ = 0, last_value_ = 0;
    int begun_ = 0;
    std::size_t unknown_ = 0, refused_ = 0;
};

} // namespace orrery::store::faults
