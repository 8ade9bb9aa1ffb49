#pragma once

#include "store/store.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::store {

/// The copy in memory that every read is answered from, and the changes that led to it. An engine feeds it; it knows nothing of
/// disks or networks. Belongs to the loop thread.
///
/// Cost: a lookup is one hash, whatever the number of keys; a change costs as many hash lookups as its key has slashes to find whom
/// it concerns, whatever the number of watches. Memory: watches are cursors into one shared window of history and own no queue; a
/// watch whose next change has left the window is told that it was too slow.
class Mirror {
public:
    struct Options {
        std::size_t history_events = 65'536;   ///< how many changes are kept for watches
        std::size_t history_bytes = 64u << 20; ///< and how much they may hold on to
        std::size_t events_per_answer = 1'000; ///< a watch gives out this many at a time, and the rest of the last revision
    };

    Mirror(asio::any_io_executor executor, Options options);
    explicit Mirror(asio::any_io_executor executor) : Mirror(std::move(executor), Options()) {}
    ~Mirror();
    Mirror(const Mirror&) = delete;
    Mirror& operator=(const Mirror&) = delete;

    /// --- What it holds. As in Store. ---

    Revision revision() const;
    /// The history begins after this revision: a watch may begin here or later.
    Revision compacted() const;
    RecordPtr find(std::string_view key) const;
    /// Any prefix. Each page is of the state at its own moment: between pages, keys after `after` may come and go; none that stays
    /// is left out or given twice. A limit of 0 is no limit.
    Page range(std::string_view prefix, std::size_t limit, std::string_view after = {}) const;
    /// At once for "" and for a first segment ("nodes/"); other prefixes walk over the keys below them.
    std::size_t count(std::string_view prefix) const;

    /// --- What an engine tells it ---

    /// Takes all changes of one revision, later than the present one (numbers may be left out: etcd counts other people's keys
    /// too). An event needs `key` and `record`; `revision` and `previous` are filled in here. A removal of what is not there is
    /// dropped. Observers have been called when this returns, with all changes of the revision in place; watches are woken. Without
    /// events it only moves the revision on.
    void apply(Revision revision, std::vector<Event> events);
    /// Replaces all that is held by `records`, in the order of their keys, as of `revision`. What differs reaches observers as
    /// changes (with the new record's own revision; `revision` for removals). The history begins anew: watches are told to list
    /// again.
    void reset(std::vector<RecordPtr> records, Revision revision);
    /// Drops the history up to and including `revision`.
    void compact(Revision revision);
    /// Ends all watches, now and later, with this error: for an engine that stops.
    void close(Error why);

    /// --- Change. As in Store. ---

    std::unique_ptr<Watch> watch(std::string_view prefix, Revision from);
    std::shared_ptr<void> observe(std::string_view prefix, std::function<void(const Event&)> seen);

    /// keys, watches, history_events, history_bytes, watches_cut_off
    std::vector<std::pair<std::string, double>> metrics() const;

private:
    struct State;
    class Cursor;
    std::shared_ptr<State> state_;
};

} // namespace orrery::store
