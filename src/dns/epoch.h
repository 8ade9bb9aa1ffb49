#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace orrery::dns {

/// Epoch-based reclamation: readers use data without a lock while a writer replaces it; the writer frees replaced data when no
/// reader can still refer to it. A reader occupies one slot while it reads. The `Local` value of the slot (counters, random state)
/// belongs to that reader alone, so the reader needs no atomic read-modify-write on it.
template <class Local> class Epochs {
    struct alignas(64) Slot {
        std::atomic<std::uint64_t> entered{0}; ///< epoch in which the reader entered; 0: the slot is free
        alignas(64) Local local;
    };

public:
    explicit Epochs(std::size_t slots = default_slots()) : slot_count_(slots), slots_(std::make_unique<Slot[]>(slots)) {}

    /// Occupies a slot for its lifetime.
    class Reader {
    public:
        explicit Reader(const Epochs& epochs) : slot_(epochs.enter()) {}
        ~Reader() { slot_.entered.store(0, std::memory_order_release); }
        Reader(const Reader&) = delete;
        Reader& operator=(const Reader&) = delete;
        Local& local() const { return slot_.local; }

    private:
        Slot& slot_;
    };

    /// Writer: call after publishing new data. Returns the epoch that ended; the replaced data may be freed once `has_drained`
    /// returns true for it.
    std::uint64_t advance() { return epoch_.fetch_add(1); }
    bool has_drained(std::uint64_t epoch) const {
        for (std::size_t i = 0; i < slot_count_; ++i)
            if (const auto entered = slots_[i].entered.load(); entered != 0 && entered <= epoch) return false;
        return true;
    }

    /// Visits the local values of all slots. Readers may write to them concurrently, so only atomics may be read.
    template <class F> void for_each(F&& visit) const {
        for (std::size_t i = 0; i < slot_count_; ++i) visit(slots_[i].local);
    }
    std::size_t slot_count() const { return slot_count_; }
    static std::size_t default_slots() { return 8 + 2 * std::size_t{std::max(1U, std::thread::hardware_concurrency())}; }

private:
    Slot& enter() const {
        static std::atomic<std::size_t> threads{0};
        thread_local const std::size_t mine = threads.fetch_add(1, std::memory_order_relaxed);
        // A thread returns to its previous slot. With more threads than slots, it tries the following ones.
        for (std::size_t at = mine % slot_count_;; at = at + 1 == slot_count_ ? 0 : at + 1) {
            std::uint64_t free = 0;
            // Sequentially consistent on both sides: either the writer sees this reader, or the reader sees the new data.
            if (slots_[at].entered.compare_exchange_strong(free, epoch_.load())) return slots_[at];
        }
    }

    std::size_t slot_count_;
    std::unique_ptr<Slot[]> slots_;
    std::atomic<std::uint64_t> epoch_{1};
};

} // namespace orrery::dns
