#pragma once

#include "store/store.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

namespace orrery::store {

/// Rows of the log that are of no use, or will be: those that a later change superseded and removals, once that change has left the
/// history. They are deleted when they are many against the live ones, in the order of the file, so that a page that is written
/// loses many rows at once and most pages are simply let go.
class Garbage {
public:
    struct Options {
        std::size_t min_rows = 10'000;
        double share = 2; ///< of the live rows
    };
    explicit Garbage(Options options) : options_(options) {}

    /// The row is of no use once changes up to `revision` are compacted.
    void add(Revision revision, std::int64_t seq) { waiting_.emplace_back(revision, seq); }
    void add(std::vector<std::int64_t> seqs) { useless_.insert(useless_.end(), seqs.begin(), seqs.end()); }
    /// The history up to here is gone.
    void compacted(Revision revision) {
        while (!waiting_.empty() && waiting_.front().first <= revision) {
            useless_.push_back(waiting_.front().second);
            waiting_.pop_front();
        }
    }

    /// There is enough to be worth a sweep.
    bool is_sweep_due(std::size_t live) const {
        return sweep_.empty() && useless_.size() > options_.min_rows &&
               static_cast<double>(useless_.size()) > options_.share * static_cast<double>(live);
    }
    /// All of it, for somebody with time to sort it.
    std::vector<std::int64_t> gather() { return std::exchange(useless_, {}); }
    static void sort(std::vector<std::int64_t>& seqs) { std::sort(seqs.begin(), seqs.end(), std::greater<>()); }
    void begin_sweep(std::vector<std::int64_t> sorted) { sweep_ = std::move(sorted); }

    bool is_sweeping() const { return !sweep_.empty(); }
    /// The next rows to delete, in the order of the file.
    std::vector<std::int64_t> take(std::size_t count) {
        count = std::min(count, sweep_.size());
        std::vector<std::int64_t> taken(sweep_.rbegin(), sweep_.rbegin() + static_cast<std::ptrdiff_t>(count));
        sweep_.resize(sweep_.size() - count);
        return taken;
    }
    /// They could not be deleted.
    void give_back(const std::vector<std::int64_t>& taken) { sweep_.insert(sweep_.end(), taken.rbegin(), taken.rend()); }
    /// Nothing will be deleted any more.
    void forget() { *this = Garbage(options_); }

    std::size_t size() const { return waiting_.size() + useless_.size() + sweep_.size(); }

private:
    Options options_;
    std::deque<std::pair<Revision, std::int64_t>> waiting_;
    std::vector<std::int64_t> useless_;
    std::vector<std::int64_t> sweep_; // the sweep at hand, backwards: taken from the end
};

} // namespace orrery::store
