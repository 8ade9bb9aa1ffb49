#pragma once

#include "dns/authority.h"
#include "dns/relaxed_counter.h"

#include <atomic>
#include <cstdint>
#include <vector>

namespace orrery::dns {

/// A ring buffer of logged queries between one answering thread and the query log. The producer never waits: a query that does not
/// fit is counted in `dropped`.
class QueryRing {
public:
    explicit QueryRing(std::size_t capacity) : queries_(capacity) {}
    /// Producer thread.
    void push(const Authority::LoggedQuery& query) {
        const auto head = head_.load(std::memory_order_relaxed);
        if (head - tail_.load(std::memory_order_acquire) == queries_.size()) return dropped_.add();
        queries_[head % queries_.size()] = query;
        head_.store(head + 1, std::memory_order_release);
    }
    /// Consumer thread: visits and removes all queries; returns their number.
    template <class F> std::size_t drain(F&& visit) {
        std::size_t count = 0;
        auto at = tail_.load(std::memory_order_relaxed);
        for (const auto end = head_.load(std::memory_order_acquire); at != end; ++at, ++count)
            visit(queries_[at % queries_.size()]);
        tail_.store(at, std::memory_order_release);
        return count;
    }
    std::uint64_t dropped() const { return dropped_.get(); }

private:
    std::vector<Authority::LoggedQuery> queries_;
    std::atomic<std::uint64_t> head_{0}, tail_{0};
    RelaxedCounter dropped_;
};

} // namespace orrery::dns
