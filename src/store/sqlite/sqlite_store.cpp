#include "store/sqlite/sqlite_store.h"

#include "core/ids.h"
#include "core/log.h"
#include "store/sqlite/backup.h"
#include "store/sqlite/file_contents.h"
#include "store/sqlite/file_lock.h"
#include "store/sqlite/group_commit.h"
#include "store/sqlite/lease_table.h"
#include "store/sqlite/operation.h"
#include "store/sqlite/sqlite_engine.h"
#include "store/sqlite/superseded_rows.h"
#include "store/sqlite/writer.h"

#include <fmt/format.h>

#include <random>

namespace orrery::store {

using namespace std::chrono_literals;

class SqliteStore final : public SqliteEngine, private GroupCommit::Delegate {
public:
    SqliteStore(asio::any_io_executor executor, SqliteOptions options)
        : executor_(executor),
          options_(std::move(options)),
          mirror_(executor, options_.mirror),
          superseded_({options_.min_superseded_rows, options_.superseded_ratio}),
          group_commit_(executor, mirror_, leases_,
                        {options_.max_queued_transactions, options_.max_queued_bytes, options_.max_batch_transactions,
                         options_.max_batch_bytes},
                        *this),
          tasks_(executor) {}

    Task<Unit> open(Context ctx);

    Revision revision() const override { return mirror_.revision(); }
    Revision compacted() const override { return mirror_.compacted(); }
    RecordPtr find(std::string_view key) const override { return mirror_.find(key); }
    Page range(std::string_view prefix, std::size_t limit, std::string_view after) const override {
        return mirror_.range(prefix, limit, after);
    }
    std::size_t count(std::string_view prefix) const override { return mirror_.count(prefix); }
    Task<Revision> catch_up(Context) override { co_return mirror_.revision(); }

    Task<Revision> apply(Context ctx, Transaction transaction) override;
    Task<Unit> compact(Context ctx, Revision revision) override;
    Task<LeaseId> grant(Context ctx, Duration ttl) override;
    Task<Unit> keep_alive(Context ctx, LeaseId lease) override;
    Task<Unit> revoke(Context ctx, LeaseId lease) override;
    Task<Revision> seal(Context ctx, std::string target) override;

    std::unique_ptr<Watch> watch(std::string_view prefix, Revision from) override { return mirror_.watch(prefix, from); }
    std::shared_ptr<void> observe(std::string_view prefix, std::function<void(const Event&)> callback) override {
        return mirror_.observe(prefix, std::move(callback));
    }

    const std::string& identity() const override { return identity_; }
    const std::filesystem::path& path() const override { return options_.path; }
    Result<Unit> health() const override { return health_; }
    std::vector<std::pair<std::string, double>> metrics() const override;
    asio::awaitable<void> stop() override;

private:
    // GroupCommit::Delegate
    std::optional<Error> write_refusal() const override;
    void add_maintenance(Batch& batch) override;
    void on_commit(const Result<Unit>& outcome) override;
    void apply_batch(Batch& batch, std::vector<EvaluatedOperation>& operations) override;
    void discard_batch(const Batch& batch) override;
    bool wants_another_batch() override;

    /// Queues the operation for the next group commit and waits for its result.
    Task<Revision> enqueue(Operation operation);
    /// Loads the file's contents into the mirror, the lease table and the list of superseded rows.
    void load(FileContents contents);
    /// Applies a revision to memory, once it is on disk.
    void apply_to_mirror(Revision revision, std::vector<Event> events);
    asio::awaitable<void> sort_superseded();

    asio::awaitable<void> expire(LeaseId lease);
    asio::awaitable<void> probe_disk();

    asio::any_io_executor executor_;
    SqliteOptions options_;
    Mirror mirror_;
    FileLock lock_;
    std::string identity_;
    LeaseTable leases_;
    bool stopping_ = false;

    SupersededRows superseded_;
    bool sorting_superseded_ = false;
    Revision stored_compaction_ = 0; // the compacted revision that the file has

    std::optional<std::string> migrated_to_;
    Result<Unit> health_ = Unit{};
    bool probing_ = false;
    std::uint64_t commits_ = 0, changes_written_ = 0, commit_failures_ = 0, rows_deleted_ = 0;
    GroupCommit group_commit_;
    TaskGroup tasks_;
};

Task<Unit> SqliteStore::open(Context ctx) {
    const auto path = options_.path.string();
    Pool pool(1);
    CO_TRY(lock_, co_await blocking(pool, [path] { return FileLock::acquire(path); }));
    auto read = [path]() -> Result<FileContents> {
        TRY(std::ignore, check_no_interrupted_restore(path));
        TRY(const auto state, inspect_file(path));
        if (state == FileState::absent) {
            TRY(std::ignore, create_file(path, random_id()));
        }
        return read_contents(path, SideFiles::remove);
    };
    CO_TRY(auto contents, co_await blocking(pool, std::move(read)));
    if (contents.meta.migrated_to)
        co_return Error{Code::unsupported, fmt::format("the store {} was migrated to {}", path, *contents.meta.migrated_to),
                        "configure that store; the old file keeps its contents from before the migration"};
    auto open_writer = [path] { return Writer::open(path); };
    CO_TRY(auto database, co_await blocking(pool, open_writer));

    load(std::move(contents));
    group_commit_.start(std::move(database), {options_.wal_pages, options_.spin});
    log::debug(ctx, "store opened: path={} revision={} keys={}", path, mirror_.revision(), mirror_.count(""));
    co_return Unit{};
}

void SqliteStore::load(FileContents contents) {
    identity_ = contents.meta.identity;
    superseded_.add(std::move(contents.superseded_rows));
    stored_compaction_ = contents.meta.compacted;
    const auto now = options_.clock->steady();
    for (const auto& lease : contents.leases) leases_.add(lease.id, std::chrono::milliseconds(lease.ttl_ms), now);
    for (const auto& record : contents.records)
        if (record->lease != 0) leases_.reassign(record->key, 0, record->lease);
    mirror_.reset(std::move(contents.records), contents.meta.compacted);
    for (auto at = contents.changes.begin(); at != contents.changes.end();) {
        const auto revision = at->revision;
        std::vector<Event> events;
        for (; at != contents.changes.end() && at->revision == revision; ++at) {
            at->previous = mirror_.find(at->key);
            events.push_back(std::move(*at));
        }
        apply_to_mirror(revision, std::move(events));
    }
    superseded_.compacted(mirror_.compacted());
    for (const auto& lease : contents.leases) tasks_.spawn(expire(lease.id));
}

Task<Revision> SqliteStore::enqueue(Operation operation) {
    if (stopping_) co_return Error{Code::unavailable, "the store is closing"};
    if (migrated_to_) co_return migrated_error(*migrated_to_);
    co_return co_await group_commit_.submit(std::move(operation));
}

Task<Revision> SqliteStore::apply(Context ctx, Transaction transaction) {
    CO_TRY(std::ignore, validate(transaction));
    if (transaction.changes.empty()) {
        for (const auto& compare : transaction.compares) {
            const auto record = mirror_.find(compare.key);
            CO_TRY(std::ignore, check_compare(compare, record.get()));
        }
        co_return mirror_.revision();
    }
    co_return co_await enqueue(
        Operation{.type = Operation::Type::transaction, .ctx = std::move(ctx), .transaction = std::move(transaction)});
}

Task<Unit> SqliteStore::compact(Context ctx, Revision revision) {
    if (revision > mirror_.revision())
        co_return Error{Code::invalid,
                        fmt::format("revision {} is in the future, the store is at {}", revision, mirror_.revision())};
    if (revision <= mirror_.compacted()) co_return Unit{};
    CO_TRY(std::ignore, co_await enqueue(Operation{.type = Operation::Type::compact, .ctx = std::move(ctx), .number = revision}));
    co_return Unit{};
}

Task<LeaseId> SqliteStore::grant(Context ctx, Duration ttl) {
    if (ttl < 1s || ttl > 24h * 365)
        co_return Error{Code::invalid, fmt::format("a lease TTL of {} is out of range", to_text(ttl)), "use 1s to 365d"};
    static std::mt19937_64 random{std::random_device{}()};
    LeaseId id = 0;
    while (id == 0 || leases_.find(id)) id = static_cast<LeaseId>(random() >> 1);
    CO_TRY(std::ignore,
           co_await enqueue(Operation{.type = Operation::Type::grant, .ctx = std::move(ctx), .number = id, .ttl = ttl}));
    co_return id;
}

Task<Unit> SqliteStore::keep_alive(Context, LeaseId lease) {
    auto* found = leases_.find(lease);
    if (!found || found->revoking)
        co_return Error{Code::not_found, fmt::format("lease {} has expired or was revoked", lease), "request a new lease"};
    found->expires_at = options_.clock->steady() + found->ttl;
    co_return Unit{};
}

Task<Unit> SqliteStore::revoke(Context ctx, LeaseId lease) {
    auto* found = leases_.find(lease);
    if (!found || found->revoking) co_return Error{Code::not_found, fmt::format("lease {} has expired or was revoked", lease)};
    found->revoking = true;
    auto outcome = co_await enqueue(Operation{.type = Operation::Type::revoke, .ctx = std::move(ctx), .number = lease});
    if (outcome.ok()) co_return Unit{};
    if (auto* still = leases_.find(lease)) still->revoking = false;
    co_return std::move(outcome).error();
}

Task<Revision> SqliteStore::seal(Context ctx, std::string target) {
    co_return co_await enqueue(Operation{.type = Operation::Type::seal, .ctx = std::move(ctx), .text = std::move(target)});
}

asio::awaitable<void> SqliteStore::expire(LeaseId lease) {
    for (;;) {
        const auto* found = leases_.find(lease);
        if (!found) co_return;
        if (found->expires_at > options_.clock->steady()) {
            auto slept = co_await options_.clock->sleep_until(found->expires_at);
            if (!slept.ok()) co_return;
            continue;
        }
        auto revoked = co_await revoke(Context::make("lease"), lease);
        if (revoked.ok() || revoked.error().code == Code::not_found || stopping_ || migrated_to_) co_return;
        // For example, the disk is full. The keys stay until the revocation succeeds.
        auto slept = co_await options_.clock->sleep(1s);
        if (!slept.ok()) co_return;
    }
}

std::optional<Error> SqliteStore::write_refusal() const {
    if (!migrated_to_) return std::nullopt;
    return migrated_error(*migrated_to_);
}

void SqliteStore::apply_batch(Batch& batch, std::vector<EvaluatedOperation>& operations) {
    for (auto& operation : operations) {
        changes_written_ += operation.events.size();
        if (!operation.events.empty()) apply_to_mirror(operation.revision, std::move(operation.events));
    }
    for (const auto& lease : batch.granted) {
        leases_.add(lease.id, std::chrono::milliseconds(lease.ttl_ms), options_.clock->steady());
        tasks_.spawn(expire(lease.id));
    }
    for (const auto lease : batch.revoked) leases_.remove(lease);
    if (batch.compacted) {
        stored_compaction_ = std::max(stored_compaction_, *batch.compacted);
        mirror_.compact(*batch.compacted);
    }
    if (batch.migrated_to) migrated_to_ = std::move(batch.migrated_to);
    rows_deleted_ += batch.deleted_rows.size();
    superseded_.compacted(mirror_.compacted());
}

void SqliteStore::discard_batch(const Batch& batch) { superseded_.put_back(batch.deleted_rows); }

bool SqliteStore::wants_another_batch() {
    if (!sorting_superseded_ && superseded_.is_sweep_due(mirror_.count(""))) tasks_.spawn(sort_superseded());
    return superseded_.is_sweeping() && health_.ok() && !migrated_to_;
}

void SqliteStore::on_commit(const Result<Unit>& outcome) {
    ++(outcome.ok() ? commits_ : commit_failures_);
    // Log only changes of the state, not each of a thousand writes on a full disk.
    if (outcome.ok() && !health_.ok()) log::info(Context::background(), "store writable again: path={}", options_.path.string());
    if (!outcome.ok() && (health_.ok() || health_.error().code != outcome.error().code))
        log::error(Context::background(), "{}", outcome.error().text());
    health_ = outcome;
    if (!outcome.ok() && !probing_ && !stopping_) {
        probing_ = true;
        tasks_.spawn(probe_disk());
    }
}

/// Commits an empty compaction every second until one succeeds, so that readiness recovers without a write of a client.
asio::awaitable<void> SqliteStore::probe_disk() {
    while (!health_.ok() && !stopping_ && !migrated_to_) {
        auto slept = co_await real_clock().sleep(1s);
        if (!slept.ok()) co_return;
        (void)co_await enqueue(
            Operation{.type = Operation::Type::compact, .ctx = Context::make("probe"), .number = mirror_.compacted()});
    }
    probing_ = false;
}

void SqliteStore::add_maintenance(Batch& batch) {
    if (!superseded_.is_sweeping() || migrated_to_) return;
    // The file must record the compaction before rows of that history are deleted.
    if (stored_compaction_ < mirror_.compacted()) batch.compacted = std::max(batch.compacted.value_or(0), mirror_.compacted());
    // A batch with writes deletes only slightly more rows than it adds, so that no write waits long for maintenance.
    const auto rows = batch.rows.size();
    batch.deleted_rows = superseded_.take_next(rows == 0 ? options_.max_deletions_per_commit
                                                         : std::min(options_.max_deletions_per_commit, 16 + rows + rows / 4));
}

/// Sorts on a pool thread: there may be millions of rows.
asio::awaitable<void> SqliteStore::sort_superseded() {
    sorting_superseded_ = true;
    auto rows = std::make_shared<std::vector<std::int64_t>>(superseded_.take_unsorted());
    Pool pool(1);
    (void)co_await blocking(pool, [rows]() -> Result<Unit> {
        SupersededRows::sort(*rows);
        return Unit{};
    });
    sorting_superseded_ = false;
    if (stopping_) co_return;
    superseded_.begin_sweep(std::move(*rows));
    group_commit_.schedule();
}

void SqliteStore::apply_to_mirror(Revision revision, std::vector<Event> events) {
    for (std::size_t i = 0; i < events.size(); ++i) {
        const auto& event = events[i];
        if (event.previous) superseded_.add(revision, seq_of(*event.previous));
        if (!event.record) superseded_.add(revision, seq_of(revision, i));
        const auto from = event.previous ? event.previous->lease : 0, to = event.record ? event.record->lease : 0;
        if (from != 0 || to != 0) leases_.reassign(event.key, from, to);
    }
    mirror_.apply(revision, std::move(events));
}

std::vector<std::pair<std::string, double>> SqliteStore::metrics() const {
    auto all = mirror_.metrics();
    auto add = [&](std::string name, auto value) { all.emplace_back(std::move(name), static_cast<double>(value)); };
    add("revision", mirror_.revision());
    add("compacted_revision", mirror_.compacted());
    add("leases", leases_.size());
    add("commits_total", commits_);
    add("commit_failures_total", commit_failures_);
    add("changes_written_total", changes_written_);
    add("queued_writes", group_commit_.queued());
    add("queued_bytes", group_commit_.queued_bytes());
    add("superseded_rows", superseded_.size());
    add("superseded_rows_deleted_total", rows_deleted_);
    add("wal_checkpoints_total", group_commit_.checkpoints());
    return all;
}

asio::awaitable<void> SqliteStore::stop() {
    if (stopping_) co_return;
    stopping_ = true;
    superseded_.clear(); // found again at the next start
    co_await group_commit_.drain();
    mirror_.close(Error{Code::cancelled, "the store was closed"});
    co_await tasks_.stop();
    // The final checkpoint may take a while.
    Pool pool(1);
    (void)co_await blocking(pool, [writer = std::shared_ptr<Writer>(group_commit_.release_writer())]() mutable -> Result<Unit> {
        writer.reset();
        return Unit{};
    });
    lock_ = FileLock();
}

Task<std::unique_ptr<Store>> open_sqlite(Context ctx, asio::any_io_executor executor, SqliteOptions options) {
    auto store = std::make_unique<SqliteStore>(std::move(executor), std::move(options));
    CO_TRY(std::ignore, co_await store->open(std::move(ctx)));
    co_return std::unique_ptr<Store>(std::move(store));
}

Task<Revision> seal_migrated(Context ctx, Store& store, std::string target) {
    auto* engine = dynamic_cast<SqliteEngine*>(&store);
    if (!engine) co_return Error{Code::invalid, "only a SQLite store can be sealed"};
    co_return co_await engine->seal(std::move(ctx), std::move(target));
}

} // namespace orrery::store
