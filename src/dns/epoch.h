#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace orrery::dns {

/// Lets readers use what a writer may replace at any moment, without a lock: what was replaced is kept until every reader that
/// could have seen it has left (epoch-based reclamation). A reader holds a place of its own while it reads; what is in the place
/// (`Local`: counters, random state) is its alone meanwhile, so it needs no atomic read-modify-write.
template <class Local> class Epochs {
    struct alignas(64) Place {
        std::atomic<std::uint64_t> since{0}; ///< 0: nobody is here
        alignas(64) Local local;
    };

public:
    explicit Epochs(std::size_t places = default_places()) : places_(places), all_(std::make_unique<Place[]>(places)) {}

    class Reader {
    public:
        explicit Reader(const Epochs& epochs) : place_(epochs.enter()) {}
        ~Reader() { place_.since.store(0, std::memory_order_release); }
        Reader(const Reader&) = delete;
        Reader& operator=(const Reader&) = delete;
        Local& local() const { return place_.local; }

    private:
        Place& place_;
    };

    /// Of the writer: after the new has been put in the place of the old. What was read before has gone when `passed` says so for
    /// the number returned.
    std::uint64_t turn() { return now_.fetch_add(1); }
    bool passed(std::uint64_t turned) const {
        for (std::size_t i = 0; i < places_; ++i)
            if (const auto since = all_[i].since.load(); since != 0 && since <= turned) return false;
        return true;
    }

    /// For sums over all places. What is read there may be written to meanwhile: atomics.
    template <class F> void each(F&& see) const {
        for (std::size_t i = 0; i < places_; ++i) see(all_[i].local);
    }
    std::size_t places() const { return places_; }
    static std::size_t default_places() { return 8 + 2 * std::size_t{std::max(1U, std::thread::hardware_concurrency())}; }

private:
    Place& enter() const {
        static std::atomic<std::size_t> threads{0};
        thread_local const std::size_t mine = threads.fetch_add(1, std::memory_order_relaxed);
        // Each thread finds the place it had last; with more threads than places somebody looks a little further.
        for (std::size_t at = mine % places_;; at = at + 1 == places_ ? 0 : at + 1) {
            std::uint64_t nobody = 0;
            // Both sequentially consistent: either the writer sees us here, or we see what the writer put.
            if (all_[at].since.compare_exchange_strong(nobody, now_.load())) return all_[at];
        }
    }

    std::size_t places_;
    std::unique_ptr<Place[]> all_;
    std::atomic<std::uint64_t> now_{1};
};

} // namespace orrery::dns
