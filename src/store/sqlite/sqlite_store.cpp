#include "store/sqlite/sqlite_store.h"

#include "core/ids.h"
#include "core/log.h"
#include "store/sqlite/engine.h"
#include "store/sqlite/evaluation.h"
#include "store/sqlite/format.h"
#include "store/sqlite/garbage.h"
#include "store/sqlite/leases.h"
#include "store/sqlite/operation.h"
#include "store/sqlite/writer.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <deque>
#include <random>

namespace orrery::store {

using namespace std::chrono_literals;

class SqliteStore final : public SqliteEngine {
public:
    SqliteStore(asio::any_io_executor executor, SqliteOptions options)
        : executor_(executor),
          options_(std::move(options)),
          mirror_(executor, options_.mirror),
          idle_(executor),
          garbage_({options_.min_garbage, options_.garbage_share}),
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
    Task<Revision> move(Context ctx, std::string where) override;

    std::unique_ptr<Watch> watch(std::string_view prefix, Revision from) override { return mirror_.watch(prefix, from); }
    std::shared_ptr<void> observe(std::string_view prefix, std::function<void(const Event&)> seen) override {
        return mirror_.observe(prefix, std::move(seen));
    }

    const std::string& identity() const override { return identity_; }
    const std::filesystem::path& path() const override { return options_.path; }
    Result<Unit> health() const override { return health_; }
    std::vector<std::pair<std::string, double>> metrics() const override;
    asio::awaitable<void> stop() override;

private:
    /// Queues the operation and waits for its answer. Once it is queued it cannot be taken back.
    Task<Revision> enqueue(Operation operation);
    void schedule();
    void start_batch();
    void finish_batch(Result<Unit> outcome);

    /// Takes a revision into memory, once it is on the disk.
    void absorb(Revision revision, std::vector<Event> events);
    void take_garbage();
    asio::awaitable<void> sort_garbage();
    void note_health(const Result<Unit>& outcome);

    asio::awaitable<void> expire(LeaseId lease);
    asio::awaitable<void> probe();

    asio::any_io_executor executor_;
    SqliteOptions options_;
    Mirror mirror_;
    FileLock lock_;
    std::string identity_;
    Leases leases_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true); // an answer of the writer may come after us

    std::deque<std::unique_ptr<Queued>> queue_;
    std::size_t queue_bytes_ = 0;
    bool scheduled_ = false, stopping_ = false;
    Notifier idle_;

    // The batch at hand.
    bool busy_ = false;
    std::optional<asio::executor_work_guard<asio::any_io_executor>> working_;
    Batch batch_;
    Evaluation evaluation_{mirror_, leases_};
    std::vector<Evaluated> evaluated_;
    std::vector<std::pair<std::unique_ptr<Queued>, Error>> refused_;

    Garbage garbage_;
    bool sorting_garbage_ = false;
    Revision known_compaction_ = 0; // what the file says

    std::optional<std::string> moved_to_;
    Result<Unit> health_ = Unit{};
    bool probing_ = false;
    std::uint64_t commits_ = 0, written_ = 0, failed_ = 0, collected_ = 0;
    std::unique_ptr<Writer> writer_; // after the batch that it reads
    TaskGroup tasks_;
};

Task<Unit> SqliteStore::open(Context ctx) {
    const auto path = options_.path.string();
    Pool pool(1);
    CO_TRY(lock_, co_await blocking(pool, [path] { return FileLock::take(path); }));
    auto read = [path]() -> Result<FileContents> {
        TRY(const auto state, look_at(path));
        if (state == FileState::absent) {
            TRY(std::ignore, create_file(path, random_id()));
        }
        return read_contents(path, Tidy::yes);
    };
    CO_TRY(auto contents, co_await blocking(pool, std::move(read)));
    if (contents.meta.moved_to)
        co_return Error{Code::unsupported, fmt::format("the store {} has moved to {}", path, *contents.meta.moved_to),
                        "configure that store; the old file stays as it was when it moved"};
    auto open_writer = [path] { return Writer::open(path); };
    CO_TRY(auto database, co_await blocking(pool, open_writer));

    identity_ = contents.meta.identity;
    garbage_.add(std::move(contents.garbage));
    known_compaction_ = contents.meta.compacted;
    const auto now = options_.clock->steady();
    for (const auto& lease : contents.leases) leases_.add(lease.id, std::chrono::milliseconds(lease.ttl_ms), now);
    for (const auto& record : contents.records)
        if (record->lease != 0) leases_.moved(record->key, 0, record->lease);
    mirror_.reset(std::move(contents.records), contents.meta.compacted);
    for (auto at = contents.changes.begin(); at != contents.changes.end();) {
        const auto revision = at->revision;
        std::vector<Event> events;
        for (; at != contents.changes.end() && at->revision == revision; ++at) {
            at->previous = mirror_.find(at->key);
            events.push_back(std::move(*at));
        }
        absorb(revision, std::move(events));
    }
    garbage_.compacted(mirror_.compacted());
    for (const auto& lease : contents.leases) tasks_.spawn(expire(lease.id));

    auto done = [executor = executor_, alive = std::weak_ptr(alive_), this](Result<Unit> outcome) {
        asio::post(executor, [alive, this, outcome = std::move(outcome)]() mutable {
            if (!alive.expired()) finish_batch(std::move(outcome));
        });
    };
    writer_ = std::make_unique<Writer>(std::move(database), Writer::Options{options_.log_pages, options_.spin}, std::move(done));
    log::debug(ctx, "store {} open at revision {}, {} keys", path, mirror_.revision(), mirror_.count(""));
    co_return Unit{};
}

Task<Revision> SqliteStore::enqueue(Operation operation) {
    if (stopping_) co_return Error{Code::unavailable, "the store is closing"};
    if (moved_to_) co_return moved_error(*moved_to_);
    const auto size = operation.size();
    if (queue_.size() >= options_.queue_transactions || queue_bytes_ + size > options_.queue_bytes)
        co_return Error{Code::throttled, fmt::format("{} writes wait for the disk already", queue_.size()),
                        "try again in a moment"};
    queue_bytes_ += size;
    auto initiate = [this, &operation](auto handler) {
        queue_.push_back(std::make_unique<QueuedFor<decltype(handler)>>(std::move(operation), std::move(handler)));
        schedule();
    };
    co_return co_await asio::async_initiate<const asio::use_awaitable_t<>, void(Result<Revision>)>(std::move(initiate),
                                                                                                   asio::use_awaitable);
}

Task<Revision> SqliteStore::apply(Context ctx, Transaction transaction) {
    CO_TRY(std::ignore, validate(transaction));
    if (transaction.changes.empty()) {
        for (const auto& compare : transaction.compares) {
            const auto record = mirror_.find(compare.key);
            CO_TRY(std::ignore, holds(compare, record.get()));
        }
        co_return mirror_.revision();
    }
    co_return co_await enqueue(
        Operation{.what = Operation::What::transaction, .ctx = std::move(ctx), .transaction = std::move(transaction)});
}

Task<Unit> SqliteStore::compact(Context ctx, Revision revision) {
    if (revision > mirror_.revision())
        co_return Error{Code::invalid,
                        fmt::format("revision {} has not been yet, the store is at {}", revision, mirror_.revision())};
    if (revision <= mirror_.compacted()) co_return Unit{};
    CO_TRY(std::ignore, co_await enqueue(Operation{.what = Operation::What::compact, .ctx = std::move(ctx), .number = revision}));
    co_return Unit{};
}

Task<LeaseId> SqliteStore::grant(Context ctx, Duration ttl) {
    if (ttl < 1s || ttl > 24h * 365)
        co_return Error{Code::invalid, fmt::format("a lease of {} is out of range", to_text(ttl)), "give 1s to 365d"};
    static std::mt19937_64 random{std::random_device{}()};
    LeaseId id = 0;
    while (id == 0 || leases_.find(id)) id = static_cast<LeaseId>(random() >> 1);
    CO_TRY(std::ignore,
           co_await enqueue(Operation{.what = Operation::What::grant, .ctx = std::move(ctx), .number = id, .ttl = ttl}));
    co_return id;
}

Task<Unit> SqliteStore::keep_alive(Context, LeaseId lease) {
    auto* found = leases_.find(lease);
    if (!found || found->ending)
        co_return Error{Code::not_found, fmt::format("lease {} has expired or was revoked", lease), "ask for a new one"};
    found->ends = options_.clock->steady() + found->ttl;
    co_return Unit{};
}

Task<Unit> SqliteStore::revoke(Context ctx, LeaseId lease) {
    auto* found = leases_.find(lease);
    if (!found || found->ending) co_return Error{Code::not_found, fmt::format("lease {} has expired or was revoked", lease)};
    found->ending = true;
    auto outcome = co_await enqueue(Operation{.what = Operation::What::revoke, .ctx = std::move(ctx), .number = lease});
    if (outcome.ok()) co_return Unit{};
    if (auto* still = leases_.find(lease)) still->ending = false;
    co_return std::move(outcome).error();
}

Task<Revision> SqliteStore::move(Context ctx, std::string where) {
    co_return co_await enqueue(Operation{.what = Operation::What::move, .ctx = std::move(ctx), .text = std::move(where)});
}

asio::awaitable<void> SqliteStore::expire(LeaseId lease) {
    for (;;) {
        const auto* found = leases_.find(lease);
        if (!found) co_return;
        if (found->ends > options_.clock->steady()) {
            auto slept = co_await options_.clock->sleep_until(found->ends);
            if (!slept.ok()) co_return;
            continue;
        }
        auto revoked = co_await revoke(Context::make("lease"), lease);
        if (revoked.ok() || revoked.error().code == Code::not_found || stopping_ || moved_to_) co_return;
        // The disk is full, or the like. Its keys stay until it can be done.
        auto slept = co_await options_.clock->sleep(1s);
        if (!slept.ok()) co_return;
    }
}

void SqliteStore::schedule() {
    if (busy_ || scheduled_) return;
    scheduled_ = true;
    // Not at once: what else is ready on the loop joins the same commit.
    asio::post(executor_, [this, alive = std::weak_ptr(alive_)] {
        if (alive.expired()) return;
        scheduled_ = false;
        start_batch();
    });
}

void SqliteStore::start_batch() {
    if (busy_) return;
    std::size_t bytes = 0;
    while (!queue_.empty() && evaluated_.size() < options_.batch_transactions && bytes < options_.batch_bytes) {
        auto queued = std::move(queue_.front());
        queue_.pop_front();
        queue_bytes_ -= queued->size;
        bytes += queued->size;
        auto evaluated = moved_to_ ? Result<Evaluated>(moved_error(*moved_to_)) : evaluation_.evaluate(queued->operation, batch_);
        if (!evaluated.ok()) {
            refused_.emplace_back(std::move(queued), std::move(evaluated).error());
            continue;
        }
        evaluated->queued = std::move(queued);
        evaluated_.push_back(std::move(*evaluated));
        if (!queue_.empty()) evaluation_.remember(evaluated_.back());
    }
    take_garbage();
    if (batch_.empty()) {
        if (!evaluated_.empty() || !refused_.empty())
            finish_batch(Unit{});
        else
            idle_.notify_all();
        return;
    }
    busy_ = true;
    working_.emplace(executor_); // the loop must not end while the writer has something to say
    writer_->submit(batch_);
}

void SqliteStore::finish_batch(Result<Unit> outcome) {
    if (busy_) note_health(outcome);
    busy_ = false;
    auto evaluated = std::exchange(evaluated_, {});
    auto refused = std::exchange(refused_, {});
    evaluation_.clear();
    if (outcome.ok()) {
        for (auto& each : evaluated) {
            written_ += each.events.size();
            if (!each.events.empty()) absorb(each.revision, std::move(each.events));
        }
        for (const auto& lease : batch_.granted) {
            leases_.add(lease.id, std::chrono::milliseconds(lease.ttl_ms), options_.clock->steady());
            tasks_.spawn(expire(lease.id));
        }
        for (const auto lease : batch_.revoked) leases_.remove(lease);
        if (batch_.compacted) {
            known_compaction_ = std::max(known_compaction_, *batch_.compacted);
            mirror_.compact(*batch_.compacted);
        }
        if (batch_.moved_to) moved_to_ = std::move(batch_.moved_to);
        collected_ += batch_.garbage.size();
        garbage_.compacted(mirror_.compacted());
    } else {
        // Nothing of it was written: what was to be swept is swept another time.
        garbage_.give_back(batch_.garbage);
    }
    batch_ = {};
    // Clients go on from within these calls: their next writes are in the queue when the last one returns, and share the next
    // commit.
    const std::weak_ptr alive = alive_;
    for (auto& each : evaluated) {
        each.queued->answer(outcome.ok() ? Result<Revision>(each.revision) : Result<Revision>(outcome.error()));
        if (alive.expired()) return;
    }
    for (auto& [queued, error] : refused) {
        queued->answer(std::move(error));
        if (alive.expired()) return;
    }
    working_.reset();
    if (!sorting_garbage_ && garbage_.is_sweep_due(mirror_.count(""))) tasks_.spawn(sort_garbage());
    if (!queue_.empty() || (garbage_.is_sweeping() && health_.ok() && !moved_to_))
        schedule();
    else
        idle_.notify_all();
}

void SqliteStore::note_health(const Result<Unit>& outcome) {
    ++(outcome.ok() ? commits_ : failed_);
    // Once for a change of state, not for each of a thousand writes on a full disk.
    if (outcome.ok() && !health_.ok())
        log::info(Context::background(), "the store {} can be written again", options_.path.string());
    if (!outcome.ok() && (health_.ok() || health_.error().code != outcome.error().code))
        log::error(Context::background(), "{}", outcome.error().text());
    health_ = outcome;
    if (!outcome.ok() && !probing_ && !stopping_) {
        probing_ = true;
        tasks_.spawn(probe());
    }
}

/// Readiness must come back without a client that dares to write.
asio::awaitable<void> SqliteStore::probe() {
    while (!health_.ok() && !stopping_ && !moved_to_) {
        auto slept = co_await real_clock().sleep(1s);
        if (!slept.ok()) co_return;
        (void)co_await enqueue(
            Operation{.what = Operation::What::compact, .ctx = Context::make("probe"), .number = mirror_.compacted()});
    }
    probing_ = false;
}

void SqliteStore::take_garbage() {
    if (!garbage_.is_sweeping() || moved_to_) return;
    // The file must know that this part of the history is gone before rows of it go.
    if (known_compaction_ < mirror_.compacted()) batch_.compacted = std::max(batch_.compacted.value_or(0), mirror_.compacted());
    // Along with writes only as much as keeps ahead of them: none of them should wait long for other people's garbage.
    const auto rows = batch_.rows.size();
    batch_.garbage = garbage_.take(rows == 0 ? options_.garbage_chunk : std::min(options_.garbage_chunk, 16 + rows + rows / 4));
}

/// Away from the loop: there may be millions.
asio::awaitable<void> SqliteStore::sort_garbage() {
    sorting_garbage_ = true;
    auto rows = std::make_shared<std::vector<std::int64_t>>(garbage_.gather());
    Pool pool(1);
    (void)co_await blocking(pool, [rows]() -> Result<Unit> {
        Garbage::sort(*rows);
        return Unit{};
    });
    sorting_garbage_ = false;
    if (stopping_) co_return;
    garbage_.begin_sweep(std::move(*rows));
    schedule();
}

void SqliteStore::absorb(Revision revision, std::vector<Event> events) {
    for (std::size_t i = 0; i < events.size(); ++i) {
        const auto& event = events[i];
        if (event.previous) garbage_.add(revision, seq_of(*event.previous));
        if (!event.record) garbage_.add(revision, seq_of(revision, i));
        const auto from = event.previous ? event.previous->lease : 0, to = event.record ? event.record->lease : 0;
        if (from != 0 || to != 0) leases_.moved(event.key, from, to);
    }
    mirror_.apply(revision, std::move(events));
}

std::vector<std::pair<std::string, double>> SqliteStore::metrics() const {
    auto all = mirror_.metrics();
    auto add = [&](std::string name, auto value) { all.emplace_back(std::move(name), static_cast<double>(value)); };
    add("revision", mirror_.revision());
    add("compacted_revision", mirror_.compacted());
    add("leases", leases_.size());
    add("commits", commits_);
    add("commits_failed", failed_);
    add("changes_written", written_);
    add("queued_writes", queue_.size());
    add("queued_bytes", queue_bytes_);
    add("garbage_rows", garbage_.size());
    add("garbage_rows_deleted", collected_);
    add("log_folds", writer_ ? writer_->folds() : 0);
    return all;
}

asio::awaitable<void> SqliteStore::stop() {
    if (stopping_) co_return;
    stopping_ = true;
    garbage_.forget(); // it is found again at the next start
    while (busy_ || scheduled_ || !queue_.empty()) (void)co_await idle_.wait(Context::background());
    mirror_.close(Error{Code::cancelled, "the store was closed"});
    co_await tasks_.stop();
    // Folding the log into the file takes a while on a large one.
    Pool pool(1);
    (void)co_await blocking(pool, [writer = std::shared_ptr<Writer>(std::move(writer_))]() mutable -> Result<Unit> {
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

Task<Revision> seal_moved(Context ctx, Store& store, std::string where) {
    auto* engine = dynamic_cast<SqliteEngine*>(&store);
    if (!engine) co_return Error{Code::invalid, "only a store in SQLite can be marked as moved"};
    co_return co_await engine->move(std::move(ctx), std::move(where));
}

} // namespace orrery::store
