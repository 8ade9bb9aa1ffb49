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

/// The in-memory copy of the store that answers every read, with a window of recent changes for watches. An engine feeds it; the
/// mirror itself uses neither disk nor network. Loop thread only.
///
/// Cost: a lookup is one hash lookup for any number of keys. A change needs one hash lookup per slash of its key to find the
/// affected watches, for any number of watches. Memory: watches are cursors into one shared history and own no queue. A watch whose
/// next change has left the history gets `compacted`.
class Mirror {
public:
    struct Options {
        std::size_t max_history_events = 65'536;   ///< changes kept for watches
        std::size_t max_history_bytes = 64u << 20; ///< memory that these changes may use
        std::size_t max_events_per_read = 1'000;   ///< one read returns this many, plus the rest of the last revision
    };

    Mirror(asio::any_io_executor executor, Options options);
    explicit Mirror(asio::any_io_executor executor) : Mirror(std::move(executor), Options()) {}
    ~Mirror();
    Mirror(const Mirror&) = delete;
    Mirror& operator=(const Mirror&) = delete;

    /// --- Reads, as in Store. ---

    Revision revision() const;
    /// The history starts after this revision: a watch may start here or later.
    Revision compacted() const;
    RecordPtr find(std::string_view key) const;
    /// Accepts any prefix. Each page shows the state at the time of its call: keys may appear or disappear between pages, but a key
    /// that stays is returned exactly once. Limit 0 means no limit.
    Page range(std::string_view prefix, std::size_t limit, std::string_view after = {}) const;
    /// Constant time for "" and for a first segment ("nodes/"); linear in the matching keys for other prefixes.
    std::size_t count(std::string_view prefix) const;

    /// --- Input from the engine ---

    /// Applies all changes of one revision, which must be later than the current one. Gaps are allowed: etcd also counts writes to
    /// foreign keys. An event needs `key` and `record`; this function sets `revision` and `previous`. A removal of a missing key is
    /// dropped. Calls the observers after all changes of the revision are applied, then wakes the watches. Without events it only
    /// advances the revision.
    void apply(Revision revision, std::vector<Event> events);
    /// Replaces the contents with `records`, sorted by key, as of `revision`. Observers receive the differences as changes (with
    /// the revision of the new record; `revision` for removals). The history starts empty, and open watches get `compacted`.
    void reset(std::vector<RecordPtr> records, Revision revision);
    /// Drops the history up to and including `revision`.
    void compact(Revision revision);
    /// Ends all present and future watches with this error. For an engine that stops.
    void close(Error reason);

    /// --- Change notification, as in Store. ---

    std::unique_ptr<Watch> watch(std::string_view prefix, Revision from);
    std::shared_ptr<void> observe(std::string_view prefix, std::function<void(const Event&)> callback);

    /// keys, watches, history_events, history_bytes, watches_overrun_total
    std::vector<std::pair<std::string, double>> metrics() const;

private:
    struct State;
    class Cursor;
    std::shared_ptr<State> state_;
};

} // namespace orrery::store
