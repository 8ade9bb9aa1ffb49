#include "store/sqlite/sqlite_store.h"

#include "core/ids.h"
#include "core/log.h"
#include "store/sqlite/engine.h"
#include "store/sqlite/format.h"
#include "store/sqlite/leases.h"
#include "store/sqlite/writer.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <fmt/format.h>

#include <deque>
#include <random>

namespace orrery::store {

using namespace std::chrono_literals;

namespace {

/// Whoever waits for an operation.
struct Answer {
    virtual ~Answer() = default;
    virtual void give(Result<Revision> outcome) = 0;
};
template <class Handler> struct AnswerTo final : Answer {
    explicit AnswerTo(Handler handler_) : handler(std::move(handler_)) {}
    void give(Result<Revision> outcome) override { std::move(handler)(std::move(outcome)); }
    Handler handler;
};

/// One thing that waits for the writer.
struct Operation {
    enum class What { transaction, grant, revoke, compact, move };
    What what = What::transaction;
    Context ctx;
    Transaction transaction;
    std::int64_t number = 0; ///< a lease or a revision
    Duration ttl{};
    std::string text;
    std::unique_ptr<Answer> answer;

    std::size_t size() const {
        std::size_t bytes = sizeof(Operation) + text.size();
        for (const auto& compare : transaction.compares) bytes += compare.key.size() + sizeof(Compare);
        for (const auto& change : transaction.changes) bytes += change.key.size() + change.value.size() + sizeof(Change);
        return bytes;
    }
};

/// An operation that was evaluated: what it will have done once the batch is on the disk.
struct Evaluated {
    std::unique_ptr<Operation> operation;
    Revision revision = 0; ///< its own, or the one it found where it changes nothing
    std::vector<Event> events;
    std::vector<std::int64_t> seqs; ///< of the events
};

Result<Unit> holds(const Compare& compare, const Record* record) {
    const bool modified = compare.what == Compare::What::modified;
    const Revision found = !record ? 0 : modified ? record->modified : record->created;
    if (found == compare.revision) return Unit{};
    if (compare.revision == 0)
        return Error{Code::conflict, fmt::format("\"{}\" exists already, since revision {}", compare.key, record->created)};
    if (!record) return Error{Code::conflict, fmt::format("\"{}\" does not exist", compare.key), "read it again"};
    return Error{Code::conflict,
                 fmt::format("\"{}\" was {} at revision {}, not {}", compare.key, modified ? "last changed" : "made", found,
                             compare.revision),
                 "read it again"};
}

Error moved_error(const std::string& where) {
    return Error{Code::unsupported, fmt::format("the store has moved to {}", where), "use that store"};
}

} // namespace

class SqliteStore final : public SqliteEngine {
public:
    SqliteStore(asio::any_io_executor executor, SqliteOptions options)
        : executor_(executor),
          options_(std::move(options)),
          mirror_(executor, options_.mirror),
          idle_(executor),
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

    /// Decides on one operation against the mirror and what the batch did before it.
    Result<Evaluated> evaluate(std::unique_ptr<Operation>& operation);
    Result<Unit> evaluate_transaction(const Transaction& transaction, Evaluated& into);
    void evaluate_revoke(LeaseId lease, Evaluated& into);
    RecordPtr newest(std::string_view key) const;
    void add_change(Evaluated& into, std::string key, std::shared_ptr<StoredRecord> record);
    bool lease_exists(LeaseId lease);

    /// Takes a revision into memory, once it is on the disk.
    void absorb(Revision revision, std::vector<Event> events, const std::vector<std::int64_t>& seqs);
    void note_garbage();
    bool is_sweep_due() const;
    void take_garbage();
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

    std::deque<std::unique_ptr<Operation>> queue_;
    std::size_t queue_bytes_ = 0;
    bool scheduled_ = false, stopping_ = false;
    Notifier idle_;

    // The batch at hand.
    bool busy_ = false;
    std::optional<asio::executor_work_guard<asio::any_io_executor>> working_;
    Batch batch_;
    std::vector<Evaluated> evaluated_;
    std::vector<std::pair<std::unique_ptr<Operation>, Error>> refused_;
    Revision next_revision_ = 0;
    boost::unordered_flat_map<std::string_view, RecordPtr> overlay_; // keys changed in this batch; null: removed
    std::unordered_set<LeaseId> revoked_;

    // Rows that are, or will be, of no use: superseded by a change at that revision, once it is compacted.
    std::deque<std::pair<Revision, std::int64_t>> superseded_;
    std::vector<std::int64_t> garbage_;
    std::vector<std::int64_t> sweep_; // sorted backwards: taken from the end
    Revision known_compaction_ = 0;   // what the file says

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
    auto read = [path]() -> Result<Contents> {
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
    garbage_ = std::move(contents.garbage);
    known_compaction_ = contents.meta.compacted;
    const auto now = options_.clock->steady();
    for (const auto& lease : contents.leases) leases_.add(lease.id, std::chrono::milliseconds(lease.ttl_ms), now);
    for (const auto& record : contents.records)
        if (record->lease != 0) leases_.moved(record->key, 0, record->lease);
    mirror_.reset(std::move(contents.records), contents.meta.compacted);
    for (auto at = contents.changes.begin(); at != contents.changes.end();) {
        const auto revision = at->second.revision;
        std::vector<Event> events;
        std::vector<std::int64_t> seqs;
        for (; at != contents.changes.end() && at->second.revision == revision; ++at) {
            seqs.push_back(at->first);
            events.push_back(std::move(at->second));
        }
        absorb(revision, std::move(events), seqs);
    }
    note_garbage();
    next_revision_ = mirror_.revision();
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
    auto queued = std::make_unique<Operation>(std::move(operation));
    auto initiate = [this, &queued](auto handler) {
        queued->answer = std::make_unique<AnswerTo<decltype(handler)>>(std::move(handler));
        queue_.push_back(std::move(queued));
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
        if (revoked.ok() || revoked.error().code == Code::not_found || stopping_) co_return;
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

RecordPtr SqliteStore::newest(std::string_view key) const {
    if (!overlay_.empty())
        if (const auto changed = overlay_.find(key); changed != overlay_.end()) return changed->second;
    return mirror_.find(key);
}

bool SqliteStore::lease_exists(LeaseId lease) {
    const auto* found = leases_.find(lease);
    return found && !found->ending && !revoked_.contains(lease);
}

void SqliteStore::add_change(Evaluated& into, std::string key, std::shared_ptr<StoredRecord> record) {
    const auto seq = seq_of(into.revision, into.events.size());
    if (record) record->seq = seq;
    batch_.rows.push_back({seq, record, record ? std::string() : key});
    into.events.push_back(Event{into.revision, std::move(key), std::move(record), nullptr});
    into.seqs.push_back(seq);
}

Result<Unit> SqliteStore::evaluate_transaction(const Transaction& transaction, Evaluated& into) {
    for (const auto& compare : transaction.compares) {
        const auto record = newest(compare.key);
        TRY(std::ignore, holds(compare, record.get()));
    }
    for (const auto& change : transaction.changes) {
        if (change.lease == 0) continue;
        if (!lease_exists(change.lease))
            return Error{Code::not_found, fmt::format("lease {} of \"{}\" has expired or was revoked", change.lease, change.key),
                         "ask for a new one"};
        // All keys of a lease go in one revision, and a revision has so many places.
        if (leases_.find(change.lease)->keys.size() + batch_.rows.size() + max_changes > max_rows_per_revision)
            return Error{Code::too_large, fmt::format("lease {} has too many keys", change.lease), "use several leases"};
    }
    for (const auto& change : transaction.changes) {
        const auto previous = newest(change.key);
        if (change.what == Change::What::remove) {
            if (previous) add_change(into, change.key, nullptr);
            continue;
        }
        auto record = std::make_shared<StoredRecord>();
        record->key = change.key;
        record->value = change.value;
        record->created = previous ? previous->created : into.revision;
        record->modified = into.revision;
        record->version = previous ? previous->version + 1 : 1;
        record->lease = change.lease;
        add_change(into, change.key, std::move(record));
    }
    return Unit{};
}

void SqliteStore::evaluate_revoke(LeaseId lease, Evaluated& into) {
    // A key may have left the lease, or joined it, earlier in this batch.
    if (const auto* found = leases_.find(lease))
        for (const auto& key : found->keys)
            if (const auto record = newest(key); record && record->lease == lease) add_change(into, key, nullptr);
    for (const auto& [key, record] : overlay_) {
        if (!record || record->lease != lease) continue;
        const auto before = mirror_.find(key);
        if (!before || before->lease != lease) add_change(into, std::string(key), nullptr);
    }
    revoked_.insert(lease);
    batch_.revoked.push_back(lease);
}

Result<Evaluated> SqliteStore::evaluate(std::unique_ptr<Operation>& operation) {
    if (const auto deadline = operation->ctx.deadline(); deadline && *deadline < std::chrono::steady_clock::now())
        return Error{Code::timeout, "the deadline passed before the write's turn came; nothing was written"};
    if (moved_to_ || batch_.moved_to) return moved_error(moved_to_ ? *moved_to_ : *batch_.moved_to);
    Evaluated evaluated;
    evaluated.revision = next_revision_ + 1;
    switch (operation->what) {
    case Operation::What::transaction: {
        TRY(std::ignore, evaluate_transaction(operation->transaction, evaluated));
        break;
    }
    case Operation::What::grant: batch_.granted.push_back({operation->number, operation->ttl / 1ms}); break;
    case Operation::What::revoke: evaluate_revoke(operation->number, evaluated); break;
    case Operation::What::compact: batch_.compacted = std::max(batch_.compacted.value_or(0), operation->number); break;
    case Operation::What::move: batch_.moved_to = operation->text; break;
    }
    if (evaluated.events.empty())
        evaluated.revision = next_revision_;
    else
        next_revision_ = evaluated.revision;
    return evaluated;
}

void SqliteStore::start_batch() {
    if (busy_) return;
    next_revision_ = mirror_.revision();
    std::size_t bytes = 0;
    while (!queue_.empty() && evaluated_.size() < options_.batch_transactions && bytes < options_.batch_bytes) {
        auto operation = std::move(queue_.front());
        queue_.pop_front();
        const auto size = operation->size();
        queue_bytes_ -= size;
        bytes += size;
        auto evaluated = evaluate(operation);
        if (!evaluated.ok()) {
            refused_.emplace_back(std::move(operation), std::move(evaluated).error());
            continue;
        }
        evaluated->operation = std::move(operation);
        evaluated_.push_back(std::move(*evaluated));
        if (!queue_.empty())
            for (const auto& event : evaluated_.back().events) overlay_[event.key] = event.record;
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
    overlay_.clear();
    revoked_.clear();
    if (outcome.ok()) {
        for (auto& each : evaluated) {
            written_ += each.events.size();
            if (!each.events.empty()) absorb(each.revision, std::move(each.events), each.seqs);
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
        note_garbage();
    } else {
        // Nothing of it was written: what was to be swept is swept another time.
        sweep_.insert(sweep_.end(), batch_.garbage.rbegin(), batch_.garbage.rend());
    }
    batch_ = {};
    // Clients go on from within these calls: their next writes are in the queue when the last one returns, and share the next
    // commit.
    const std::weak_ptr alive = alive_;
    for (auto& each : evaluated) {
        auto answer = std::move(each.operation->answer);
        answer->give(outcome.ok() ? Result<Revision>(each.revision) : Result<Revision>(outcome.error()));
        if (alive.expired()) return;
    }
    for (auto& [operation, error] : refused) {
        auto answer = std::move(operation->answer);
        answer->give(std::move(error));
        if (alive.expired()) return;
    }
    working_.reset();
    if (!queue_.empty() || (is_sweep_due() && health_.ok()))
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
    while (!health_.ok() && !stopping_) {
        auto slept = co_await real_clock().sleep(1s);
        if (!slept.ok()) co_return;
        (void)co_await enqueue(
            Operation{.what = Operation::What::compact, .ctx = Context::make("probe"), .number = mirror_.compacted()});
    }
    probing_ = false;
}

void SqliteStore::absorb(Revision revision, std::vector<Event> events, const std::vector<std::int64_t>& seqs) {
    for (std::size_t i = 0; i < events.size(); ++i) {
        const auto& event = events[i];
        const auto previous = mirror_.find(event.key);
        if (previous) superseded_.emplace_back(revision, seq_of(*previous));
        if (!event.record) superseded_.emplace_back(revision, seqs[i]);
        const auto from = previous ? previous->lease : 0, to = event.record ? event.record->lease : 0;
        if (from != 0 || to != 0) leases_.moved(event.key, from, to);
    }
    mirror_.apply(revision, std::move(events));
}

void SqliteStore::note_garbage() {
    while (!superseded_.empty() && superseded_.front().first <= mirror_.compacted()) {
        garbage_.push_back(superseded_.front().second);
        superseded_.pop_front();
    }
}

bool SqliteStore::is_sweep_due() const {
    const auto rows = static_cast<double>(garbage_.size());
    return !sweep_.empty() ||
           (garbage_.size() > options_.min_garbage && rows > options_.garbage_share * static_cast<double>(mirror_.count("")));
}

void SqliteStore::take_garbage() {
    if (!is_sweep_due()) return;
    if (sweep_.empty()) {
        sweep_ = std::exchange(garbage_, {});
        std::sort(sweep_.begin(), sweep_.end(), std::greater<>());
    }
    // The file must know that this part of the history is gone before rows of it go.
    if (known_compaction_ < mirror_.compacted()) batch_.compacted = std::max(batch_.compacted.value_or(0), mirror_.compacted());
    // Along with writes only as much as keeps ahead of them: none of them should wait long for other people's garbage.
    const auto wanted =
        batch_.rows.empty() ? options_.garbage_chunk : std::min(options_.garbage_chunk, 16 + 3 * batch_.rows.size());
    const auto count = std::min(sweep_.size(), wanted);
    batch_.garbage.assign(sweep_.rbegin(), sweep_.rbegin() + static_cast<std::ptrdiff_t>(count));
    sweep_.resize(sweep_.size() - count);
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
    add("garbage_rows", garbage_.size() + sweep_.size() + superseded_.size());
    add("garbage_rows_deleted", collected_);
    add("log_folds", writer_ ? writer_->folds() : 0);
    return all;
}

asio::awaitable<void> SqliteStore::stop() {
    if (stopping_) co_return;
    stopping_ = true;
    sweep_.clear(); // garbage is found again at the next start
    garbage_.clear();
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
