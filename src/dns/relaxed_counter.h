#pragma once

#include <atomic>
#include <cstdint>

namespace orrery::dns {

/// A counter with one writer at a time and any number of readers. Incrementing costs a plain add: there is no atomic
/// read-modify-write.
class RelaxedCounter {
public:
    void add(std::uint64_t by = 1) { value_.store(value_.load(std::memory_order_relaxed) + by, std::memory_order_relaxed); }
    std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::uint64_t> value_{0};
};

} // namespace orrery::dns
