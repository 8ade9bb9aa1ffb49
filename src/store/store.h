#pragma once

#include "core/task.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::store {

/// The version of the whole store. Each transaction that writes gets the next revision, and all its changes share it.
using Revision = std::int64_t;
using LeaseId = std::int64_t; ///< 0: no lease

/// The current value of a key. Immutable and shared by all readers.
struct Record {
    std::string key;
    std::string value;
    Revision created = 0;     ///< revision that created the key
    Revision modified = 0;    ///< revision of this value
    std::int64_t version = 0; ///< 1 for the first value since `created`
    LeaseId lease = 0;
};
using RecordPtr = std::shared_ptr<const Record>;

/// One change of one key. `record` is the new value, null for a removal. `previous` is the value before, null for a new key; on
/// etcd it is also null when etcd compacted the old value before this server received it.
struct Event {
    Revision revision = 0;
    std::string key;
    RecordPtr record;
    RecordPtr previous;
};

/// A precondition of a transaction: the revision a key must have.
struct Compare {
    enum class Target { modified, created };
    std::string key;
    Target target = Target::modified;
    Revision revision = 0; ///< 0: the key must not exist
};

struct Change {
    enum class Op { put, remove };
    Op op = Op::put;
    std::string key;
    std::string value;
    LeaseId lease = 0;
};

/// Makes all changes at one revision if every compare holds, and none otherwise. A transaction may change each key once.
struct Transaction {
    std::vector<Compare> compares;
    std::vector<Change> changes;

    Transaction& expect(std::string key, Revision modified);
    Transaction& expect_created(std::string key, Revision created);
    Transaction& put(std::string key, std::string value, LeaseId lease = 0);
    Transaction& remove(std::string key);
};

/// Limits of every engine. They are etcd's limits, so that a store can be migrated in both directions.
constexpr std::size_t max_value_size = 1 << 20;
constexpr std::size_t max_key_size = 1024;
constexpr std::size_t max_changes = 120;
constexpr std::size_t max_transaction_size = 1400 * 1024;

/// Keys with this first character are *uncached*: written in the same transactions as all others, but not kept in any server's
/// memory. `find`, `range`, watches and observers do not see them; `fetch` reads them from the engine. For large, rarely read
/// values.
constexpr char uncached_prefix = '~';

/// The checks that every engine makes before it writes. `invalid`: a key is empty, starts with '/' or with a character above '~',
/// or is changed twice. `too_large`: a key, a value or the transaction exceeds its limit.
Result<Unit> validate(const Transaction& transaction);

struct Page {
    std::vector<RecordPtr> records;
    std::string next;      ///< pass as `after` to read the next page; empty on the last page
    Revision revision = 0; ///< revision of the in-memory copy
};

/// A stream of changes below a prefix, owned by one reader. Destroying it ends the stream.
class Watch {
public:
    virtual ~Watch() = default;
    /// Waits for the next changes: at least one, in order, always whole revisions.
    /// `compacted`: the next change has left the history (slow reader, a start revision that is too old or from another store); the
    /// reader must list again. `cancelled`, `timeout` as in Notifier::wait. After `unavailable` the watch continues when the store
    /// recovers.
    virtual Task<std::vector<Event>> next(Context ctx) = 0;
    /// All changes up to and including this revision have been returned.
    virtual Revision position() const = 0;
};

/// A persistent, revisioned, ordered map with etcd's semantics. An in-memory copy (the mirror) answers all reads. Loop thread only.
/// Keys are paths without a leading slash: "nodes/n1".
class Store {
public:
    virtual ~Store() = default;

    /// --- Reads: answered from the in-memory copy, without waiting. ---

    /// The revision of the copy. On SQLite it is exact; on etcd it is what this server has received, including all its own writes.
    virtual Revision revision() const = 0;
    /// Changes up to this revision are compacted: a watch cannot start before it.
    virtual Revision compacted() const = 0;
    /// Null if the key does not exist.
    virtual RecordPtr find(std::string_view key) const = 0;
    /// Up to `limit` records below `prefix`, in key order, starting after the key `after`.
    virtual Page range(std::string_view prefix, std::size_t limit, std::string_view after = {}) const = 0;
    virtual std::size_t count(std::string_view prefix) const = 0;
    /// Waits until the copy has every write that any server acknowledged before this call. Returns the revision of the copy.
    virtual Task<Revision> catch_up(Context ctx) = 0;

    /// Like `range`, but for uncached keys and read from the engine, so the result has every acknowledged write. With Values::no
    /// the records have keys and revisions only. `unsupported` on engines without uncached keys (SQLite, where files are used
    /// instead).
    enum class Values { yes, no };
    virtual Task<Page> fetch(Context ctx, std::string prefix, std::size_t limit, std::string after, Values values);

    /// --- Writes ---

    /// Applies the transaction and returns its revision, once it is durable and visible in this server's copy. A transaction
    /// without changes only checks its compares and returns the current revision. `conflict`: a compare did not hold; nothing was
    /// written. `invalid`, `too_large`: rejected by `validate`. `no_space`: the disk is full; nothing was written. `unavailable`:
    /// the store cannot be reached; on etcd the outcome may be unknown, which the error's `remedy` says.
    virtual Task<Revision> apply(Context ctx, Transaction transaction) = 0;
    /// Drops the history up to and including `revision`. Current values stay.
    virtual Task<Unit> compact(Context ctx, Revision revision) = 0;

    /// --- Leases: their keys are removed when the lease is not renewed. ---

    virtual Task<LeaseId> grant(Context ctx, Duration ttl) = 0;
    /// `not_found`: the lease has expired or was revoked, and its keys are removed.
    virtual Task<Unit> keep_alive(Context ctx, LeaseId lease) = 0;
    virtual Task<Unit> revoke(Context ctx, LeaseId lease) = 0;

    /// --- Change notification ---

    /// Streams changes after revision `from` to keys below `prefix`, which is empty, ends with '/', or is one complete key.
    virtual std::unique_ptr<Watch> watch(std::string_view prefix, Revision from) = 0;
    /// Calls `callback` with each change below `prefix` when the copy applies it, before the writer gets its result. For indexes
    /// that must be exactly as current as the copy. The first calls pass every existing record. When the copy is listed again (etcd
    /// compacted while this server was disconnected), the differences arrive as changes. The callback must not write. It stays
    /// registered until the returned handle is destroyed.
    virtual std::shared_ptr<void> observe(std::string_view prefix, std::function<void(const Event&)> callback) = 0;

    /// --- Housekeeping ---

    /// Identifies this store: 16 hexadecimal digits, generated when the store is created. Revisions are comparable only within one
    /// identity.
    virtual const std::string& identity() const = 0;
    /// ok, or the reason why writes fail at present (disk full, etcd unreachable). For /readyz. Does not wait.
    virtual Result<Unit> health() const = 0;
    /// Names (without the "orrery_store_" prefix) and values for /metrics.
    virtual std::vector<std::pair<std::string, double>> metrics() const = 0;
    /// Completes the accepted writes, then closes. No other call is allowed afterwards.
    virtual asio::awaitable<void> stop() = 0;
};

} // namespace orrery::store
