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

/// One number for the whole store: each transaction that writes takes the next one, and all it writes shares it.
using Revision = std::int64_t;
using LeaseId = std::int64_t; ///< 0: no lease

/// A key's newest value. Immutable, shared by everyone who reads it.
struct Record {
    std::string key;
    std::string value;
    Revision created = 0;     ///< the revision that made the key
    Revision modified = 0;    ///< the revision of this value
    std::int64_t version = 0; ///< 1 for the first value since `created`
    LeaseId lease = 0;
};
using RecordPtr = std::shared_ptr<const Record>;

/// One key's change. `record` is the new value, null for a removal; `previous` is what stood there, null for a new key (on etcd
/// also null when the old value was compacted away before this server could see it).
struct Event {
    Revision revision = 0;
    std::string key;
    RecordPtr record;
    RecordPtr previous;
};

/// What must hold for a transaction to be applied.
struct Compare {
    enum class What { modified, created };
    std::string key;
    What what = What::modified;
    Revision revision = 0; ///< 0: the key must not exist
};

struct Change {
    enum class What { put, remove };
    What what = What::put;
    std::string key;
    std::string value;
    LeaseId lease = 0;
};

/// If every compare holds, makes all changes at one revision; else makes none. A key may be changed once in a transaction.
struct Transaction {
    std::vector<Compare> compares;
    std::vector<Change> changes;

    Transaction& expect(std::string key, Revision modified);
    Transaction& expect_created(std::string key, Revision created);
    Transaction& put(std::string key, std::string value, LeaseId lease = 0);
    Transaction& remove(std::string key);
};

/// Limits that hold on every engine, because etcd's do.
constexpr std::size_t max_value_size = 1 << 20;
constexpr std::size_t max_key_size = 1024;
constexpr std::size_t max_changes = 120;
constexpr std::size_t max_transaction_size = 1400 * 1024;

/// Keys that begin so stand *aside*: written like all others, in the same transactions, and in no server's memory. Nothing that
/// reads from the copy sees them; `fetch` asks the engine. For what is large and seldom read.
constexpr char aside_mark = '~';

/// What every engine refuses before it tries: keys that are empty, too long, or begin with '/' or beyond '~', a key changed twice
/// (`invalid`), values and transactions over the limits (`too_large`).
Result<Unit> validate(const Transaction& transaction);

struct Page {
    std::vector<RecordPtr> records;
    std::string next;      ///< give as `after` for the next page; empty at the end
    Revision revision = 0; ///< what the copy stood at
};

/// A stream of changes below a prefix. Owned by one reader; destroying it ends it.
class Watch {
public:
    virtual ~Watch() = default;
    /// The next changes, in order, at least one, never half a revision. Waits until there are some.
    /// `compacted`: the reader fell behind what is kept (or asked for a revision too old, or from another store): list again.
    /// `cancelled`, `timeout` as in Notifier::wait. After `unavailable` the watch goes on when the store is back.
    virtual Task<std::vector<Event>> next(Context ctx) = 0;
    /// All changes up to and including this revision have been given out.
    virtual Revision position() const = 0;
};

/// A persistent, revisioned, ordered map with etcd's semantics, and a copy of it in memory that reads are answered from. To be used
/// from the loop thread only. Keys are paths without a leading slash: "nodes/n1".
class Store {
public:
    virtual ~Store() = default;

    /// --- Reads: from the copy in memory, at once. ---

    /// What the copy stands at: exact on SQLite; on etcd, what this server has seen, and at least everything it wrote itself.
    virtual Revision revision() const = 0;
    /// Changes up to this revision are no longer kept for watches.
    virtual Revision compacted() const = 0;
    /// Null where there is no such key.
    virtual RecordPtr find(std::string_view key) const = 0;
    /// Up to `limit` records below `prefix` in the order of their keys, those after the key `after` only.
    virtual Page range(std::string_view prefix, std::size_t limit, std::string_view after = {}) const = 0;
    virtual std::size_t count(std::string_view prefix) const = 0;
    /// Waits until the copy has everything that was acknowledged anywhere before this call; returns the revision it then has.
    virtual Task<Revision> catch_up(Context ctx) = 0;

    /// As `range`, for keys that stand aside, from the engine itself: all that was acknowledged before is in it. Without values
    /// the records have keys and revisions only. `unsupported` where the engine keeps nothing aside (SQLite: files beside it
    /// serve).
    enum class Values { yes, no };
    virtual Task<Page> fetch(Context ctx, std::string prefix, std::size_t limit, std::string after, Values values);

    /// --- Writes ---

    /// Applies the transaction and returns its revision, once it is durable and this server's copy shows it. A transaction without
    /// changes checks its compares only and returns the present revision. `conflict`: a compare did not hold; nothing was written.
    /// `invalid`, `too_large`: never tried. `no_space`: the disk is full, nothing was written. `unavailable`: the store cannot be
    /// reached; on etcd, with `remedy` saying so, the outcome may be unknown.
    virtual Task<Revision> apply(Context ctx, Transaction transaction) = 0;
    /// Forgets the history (not the newest values) up to and including `revision`.
    virtual Task<Unit> compact(Context ctx, Revision revision) = 0;

    /// --- Leases: keys that go away when nobody renews. ---

    virtual Task<LeaseId> grant(Context ctx, Duration ttl) = 0;
    /// `not_found` when the lease has expired or was revoked: its keys are gone.
    virtual Task<Unit> keep_alive(Context ctx, LeaseId lease) = 0;
    virtual Task<Unit> revoke(Context ctx, LeaseId lease) = 0;

    /// --- Change ---

    /// Changes after revision `from` of keys below `prefix`, which is empty, ends with '/', or is one whole key.
    virtual std::unique_ptr<Watch> watch(std::string_view prefix, Revision from) = 0;
    /// Calls `seen` with each change below `prefix` as it enters the copy, before the writer is answered: for indexes that must be
    /// as exact as the copy. It must not write. Lasts as long as the store, or until the returned handle is destroyed. First called
    /// for every record there is. When the copy had to be fetched anew (etcd compacted while we were away), the differences come as
    /// changes too.
    virtual std::shared_ptr<void> observe(std::string_view prefix, std::function<void(const Event&)> seen) = 0;

    /// --- Housekeeping ---

    /// A name for this very store, made when it was: 16 hexadecimal digits. Revisions of stores with other names mean nothing here.
    virtual const std::string& identity() const = 0;
    /// ok, or why writes cannot succeed now (disk full, etcd out of reach): for /readyz. Never waits.
    virtual Result<Unit> health() const = 0;
    /// What goes into /metrics: names without prefix, values.
    virtual std::vector<std::pair<std::string, double>> metrics() const = 0;
    /// Finishes what was accepted, then closes. Nothing may be called after it.
    virtual asio::awaitable<void> stop() = 0;
};

} // namespace orrery::store
