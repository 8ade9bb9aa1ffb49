#pragma once

#include "store/store.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

namespace orrery::store {

/// Log rows that can be deleted once their successor has left the history: superseded values and removals. They are deleted when
/// there are many compared to the live rows, in file order, so that each written page loses many rows and most pages become free.
class SupersededRows {
public:
    struct Options {
        std::size_t min_rows = 10'000;
        double share = 2; ///< relative to the live rows
    };
    explicit SupersededRows(Options options) : options_(options) {}

    /// The row can be deleted once changes up to `revision` are compacted.
    void add(Revision revision, std::int64_t seq) { in_history_.emplace_back(revision, seq); }
    void add(std::vector<std::int64_t> seqs) { ready_.insert(ready_.end(), seqs.begin(), seqs.end()); }
    /// The history up to `revision` was compacted.
    void compacted(Revision revision) {
        while (!in_history_.empty() && in_history_.front().first <= revision) {
            ready_.push_back(in_history_.front().second);
            in_history_.pop_front();
        }
    }

    /// True if there are enough rows for a sweep.
    bool is_sweep_due(std::size_t live) const {
        return sweep_.empty() && ready_.size() > options_.min_rows &&
               static_cast<double>(ready_.size()) > options_.share * static_cast<double>(live);
    }
    /// Takes all deletable rows, to be sorted on another thread.
    std::vector<std::int64_t> take_unsorted() { return std::exchange(ready_, {}); }
    static void sort(std::vector<std::int64_t>& seqs) { std::sort(seqs.begin(), seqs.end(), std::greater<>()); }
    void begin_sweep(std::vector<std::int64_t> sorted) { sweep_ = std::move(sorted); }

    bool is_sweeping() const { return !sweep_.empty(); }
    /// Takes the next rows to delete, in file order.
    std::vector<std::int64_t> take_next(std::size_t count) {
        count = std::min(count, sweep_.size());
        std::vector<std::int64_t> taken(sweep_.rbegin(), sweep_.rbegin() + static_cast<std::ptrdiff_t>(count));
        sweep_.resize(sweep_.size() - count);
        return taken;
    }
    /// Returns rows that could not be deleted.
    void put_back(const std::vector<std::int64_t>& taken) { sweep_.insert(sweep_.end(), taken.rbegin(), taken.rend()); }
    /// Drops all rows. They are found again at the next start.
    void clear() { *this = SupersededRows(options_); }

    std::size_t size() const { return in_history_.size() + ready_.size() + sweep_.size(); }

private:
    Options options_;
    std::deque<std::pair<Revision, std::int64_t>> in_history_;
    std::vector<std::int64_t> ready_;
    std::vector<std::int64_t> sweep_; // the current sweep in reverse order: rows are taken from the end
};

} // namespace orrery::store
