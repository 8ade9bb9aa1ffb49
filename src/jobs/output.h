#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "jobs/executor.h"
#include "jobs/records.h"
#include "jobs/secrets.h"
#include "store/leadership.h"
#include "store/store.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::jobs {

/// The text with "\uFFFD" for bytes that are not UTF-8: output may be any bytes, JSON must be UTF-8.
std::string valid_utf8(std::string_view bytes);

/// The output of attempts: an append-only log for each attempt and phase. Each piece has its offset in the attempt's own stream, so
/// that reading continues there after a crash. With one server the logs are files beside the store; servers that share a store keep
/// them in the store, so that every server can show them and the next leader continues them. Loop thread only.
class OutputLog {
public:
    struct Name {
        std::string uid; ///< of the job
        std::uint32_t task = 0;
        int attempt = 0;
        Phase phase = Phase::run;
    };

    /// Collects the output of an attempt, masked. `flush` writes it.
    class Sink final : public Output {
    public:
        Sink(Name name, const Secrets& secrets, std::size_t limit, const Clock& clock)
            : name_(std::move(name)), masker_(secrets), limit_(limit), tail_limit_(std::min(limit / 2, max_tail)), clock_(clock) {}
        void write(Stream stream, std::uint64_t offset, std::string_view bytes) override;
        void step(Step step) override;
        void report_problem(std::string message, std::shared_ptr<const std::atomic<bool>> resolved) override;
        /// The current problem of the attempt; empty: none.
        std::string problem() const { return problem_resolved_ && !*problem_resolved_ ? problem_ : std::string(); }
        /// After a re-attach: how much is stored.
        void resume(Offsets stored, std::uint64_t size);
        /// From now on nothing is stored but a note with the reason.
        void withhold(std::string why);
        bool withholds() const { return !withheld_.empty(); }
        /// No more output will come.
        void finish();
        bool has_pending() const { return !pending_.empty(); }
        /// Called when there is something to flush, and there was nothing before.
        std::function<void()> on_pending;
        const Masker& masker() const { return masker_; }

    private:
        friend class OutputLog;
        friend class OutputFiles;
        friend class OutputRecords;
        struct Side {
            std::uint64_t seen = 0; ///< offset in the attempt's stream
            std::string partial;    ///< bytes that may begin a secret
        };
        struct TailPiece {
            char kind;
            std::uint64_t end;
            std::string bytes;
        };
        static constexpr std::size_t max_tail = 64 << 10; ///< in memory, for each running attempt
        void frame(char kind, std::uint64_t end, std::string_view bytes);
        void append(char kind, std::uint64_t end, std::string_view bytes);
        void keep_in_tail(char kind, std::uint64_t end, std::string_view bytes);
        void flush_tail();
        Name name_;
        Masker masker_;
        std::size_t limit_, tail_limit_;
        std::list<TailPiece> tail_; ///< the output after the first part; nearly always empty, and then without memory
        std::size_t tail_size_ = 0;
        const Clock& clock_;
        WallTime marked_{}; ///< the last time mark
        Side sides_[2];
        std::string pending_, withheld_;
        std::uint64_t size_ = 0, dropped_ = 0;
        bool written_ = false, busy_ = false;
        std::unique_ptr<Notifier> idle_; ///< notified when the flush in progress ends
        std::string problem_;
        std::shared_ptr<const std::atomic<bool>> problem_resolved_;
        // In the store: the content of the last, open record, and where in the log it begins.
        std::string open_;
        std::uint64_t open_at_ = 0;
        SteadyTime written_at_{};
    };

    struct StoredOutput {
        Offsets offsets;
        std::uint64_t size = 0;
    };
    struct Piece {
        char kind = 'o'; ///< 'o' out, 'e' err, 's' a Step as JSON, 'n' a note of ours
        std::string bytes;
        /// When it was received, to a tenth of a second; nothing before the first time mark of the page, and in output of earlier
        /// versions.
        std::optional<WallTime> time = {};
    };
    struct Page {
        std::vector<Piece> pieces;
        std::uint64_t next = 0; ///< pass as `from` for the next page
    };

    explicit OutputLog(std::size_t limit) : limit_(limit) {}
    virtual ~OutputLog() = default;

    /// Of output over the limit, the first part and the last part (up to 64 KiB) are stored, with a note between them.
    std::shared_ptr<Sink> open(Name name, const Secrets& secrets, const Clock& clock) {
        return std::make_shared<Sink>(std::move(name), secrets, limit_, clock);
    }
    /// How far the output of an attempt is stored. Cuts off an incomplete end.
    virtual Task<StoredOutput> stored(Context ctx, Name name) = 0;
    enum class When { soon, now };
    /// Appends the pending output of the sink. `now`: durable when this returns. `soon`: it may be left to a later call; then
    /// `has_pending` stays true.
    virtual Task<Unit> flush(Context ctx, std::shared_ptr<Sink> sink, When when) = 0;
    /// About `limit` bytes from the `next` of an earlier page (0: the beginning). An attempt without output has an empty page.
    virtual Task<Page> read(Context ctx, Name name, std::uint64_t from, std::size_t limit) = 0;
    /// Removes all output of a job.
    virtual Task<Unit> remove(Context ctx, std::string uid) = 0;

protected:
    /// Held during a flush: the pieces of a log are written in order, by one flush at a time.
    class FlushLock {
    public:
        explicit FlushLock(std::shared_ptr<Sink> sink) : sink_(std::move(sink)) { sink_->busy_ = true; }
        ~FlushLock();
        FlushLock(const FlushLock&) = delete;
        FlushLock& operator=(const FlushLock&) = delete;

    private:
        std::shared_ptr<Sink> sink_;
    };
    static Task<Unit> wait_for_flush(Context ctx, std::shared_ptr<Sink> sink);

private:
    std::size_t limit_;
};

/// Output in files, one for each log. File I/O runs on the pool.
class OutputFiles final : public OutputLog {
public:
    struct Options {
        std::filesystem::path folder;
        std::size_t limit = 4u << 20;
    };
    OutputFiles(Pool& pool, Options options) : OutputLog(options.limit), pool_(pool), options_(std::move(options)) {}

    Task<StoredOutput> stored(Context ctx, Name name) override;
    Task<Unit> flush(Context ctx, std::shared_ptr<Sink> sink, When when) override;
    Task<Page> read(Context ctx, Name name, std::uint64_t from, std::size_t limit) override;
    Task<Unit> remove(Context ctx, std::string uid) override;

private:
    std::filesystem::path path(const Name& name) const;
    Pool& pool_;
    Options options_;
};

/// Output in the store, in keys that servers do not cache:
///
///     ~output/<uid>/<task>-<attempt><phase>/<12 hexadecimal digits: where in the log it begins>
///     jobs.output/<uid>      the bytes of a job; or "removed", where they were removed to make room
///
/// Only the leader writes. The total is bounded: beyond `total` the output of the oldest ended jobs is removed, and readers get a
/// note.
class OutputRecords final : public OutputLog {
public:
    struct Options {
        std::size_t limit = 4u << 20;
        std::size_t total = 256u << 20;
    };
    /// `before`: output in files, from the time when this installation had one server; only read.
    OutputRecords(store::Store& store, Clock& clock, OutputFiles& before, Options options);
    ~OutputRecords() override;

    /// From now on this server writes, with this fence; `is_terminal` returns whether the output of a job may be removed. No fence:
    /// this server stops writing.
    void lead(std::optional<store::Fence> fence, std::function<bool(std::string_view uid)> is_terminal = {});

    Task<StoredOutput> stored(Context ctx, Name name) override;
    Task<Unit> flush(Context ctx, std::shared_ptr<Sink> sink, When when) override;
    Task<Page> read(Context ctx, Name name, std::uint64_t from, std::size_t limit) override;
    Task<Unit> remove(Context ctx, std::string uid) override;
    std::size_t total() const { return total_; }

private:
    struct Job {
        std::int64_t bytes = 0;
        store::Revision since = 0;
        bool removed = false;
    };
    static std::string prefix(std::string_view uid) { return store::uncached_prefix + ("output/" + std::string(uid) + "/"); }
    static std::string prefix(const Name& name);
    Task<Unit> remove_records(Context ctx, std::string uid);
    Task<Unit> make_room(Context ctx);

    store::Store& store_;
    Clock& clock_;
    OutputFiles& before_;
    Options options_;
    std::optional<store::Fence> fence_;
    std::function<bool(std::string_view)> is_terminal_;
    std::map<std::string, Job, std::less<>> jobs_;
    std::size_t total_ = 0;
    bool making_room_ = false;
    std::shared_ptr<void> observer_;
};

} // namespace orrery::jobs
