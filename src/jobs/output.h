#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "jobs/executor.h"
#include "jobs/rows.h"
#include "jobs/secrets.h"
#include "store/leadership.h"
#include "store/store.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::jobs {

/// The same text, with "\uFFFD" in the place of bytes that are not UTF-8: what programs say need not be text, what is shown must.
std::string valid_utf8(std::string_view bytes);

/// What attempts said: a log for each attempt and phase, only appended to, each piece with its place in the attempt's own stream,
/// so that after a crash reading goes on where it was. Where there is one server it is in files beside the store; where several
/// share a store it is in the store, so that any of them can show it and whoever leads next goes on with it. Loop thread only.
class OutputLog {
public:
    struct Name {
        std::string uid; ///< of the job
        std::uint32_t task = 0;
        int attempt = 0;
        Phase phase = Phase::run;
    };

    /// Takes an attempt's output, masked; writes nothing by itself: `flush` does.
    class Sink final : public Output {
    public:
        Sink(Name name, const Secrets& secrets, std::size_t limit) : name_(std::move(name)), masker_(secrets), limit_(limit) {}
        void write(Stream stream, std::uint64_t offset, std::string_view bytes) override;
        void step(Step step) override;
        void troubled(std::string words, std::shared_ptr<const std::atomic<bool>> over) override;
        /// What is not right with the attempt now; empty: nothing.
        std::string trouble() const { return trouble_over_ && !*trouble_over_ ? trouble_ : std::string(); }
        /// After re-attaching: so much is kept.
        void resume(Offsets kept, std::uint64_t size);
        /// From now on nothing is kept but a note that says why.
        void withhold(std::string why);
        bool withholds() const { return !withheld_.empty(); }
        /// No more will come.
        void finish();
        bool has_pending() const { return !pending_.empty(); }
        /// Called when there is something to flush and there was not before.
        std::function<void()> on_pending;
        const Masker& masker() const { return masker_; }

    private:
        friend class OutputLog;
        friend class OutputFiles;
        friend class OutputRecords;
        struct Side {
            std::uint64_t seen = 0; ///< of the attempt's stream
            std::string held;
        };
        void frame(char kind, std::uint64_t end, std::string_view bytes);
        Name name_;
        Masker masker_;
        std::size_t limit_;
        Side sides_[2];
        std::string pending_, withheld_;
        std::uint64_t size_ = 0, dropped_ = 0;
        bool written_ = false, busy_ = false;
        std::unique_ptr<Notifier> idle_; ///< of whoever waits for a flush under way
        std::string trouble_;
        std::shared_ptr<const std::atomic<bool>> trouble_over_;
        // In the store: the record that is still added to, and where in the log it begins.
        std::string open_;
        std::uint64_t open_at_ = 0;
        SteadyTime written_at_{};
    };

    struct Kept {
        Offsets offsets;
        std::uint64_t size = 0;
    };
    struct Piece {
        char kind = 'o'; ///< 'o' out, 'e' err, 's' a Step as JSON, 'n' a note of ours
        std::string bytes;
    };
    struct Page {
        std::vector<Piece> pieces;
        std::uint64_t next = 0; ///< give as `from` for what follows
    };

    explicit OutputLog(std::size_t limit) : limit_(limit) {}
    virtual ~OutputLog() = default;

    /// `limit` of one attempt; what comes beyond is counted and not kept.
    std::shared_ptr<Sink> open(Name name, const Secrets& secrets) {
        return std::make_shared<Sink>(std::move(name), secrets, limit_);
    }
    /// How far an attempt's output was kept; cuts off a torn end.
    virtual Task<Kept> kept(Context ctx, Name name) = 0;
    enum class When { soon, now };
    /// Appends what the sink holds. `now`: it is durable when this returns. `soon`: it may be left for a later call; then
    /// `has_pending` still holds.
    virtual Task<Unit> flush(Context ctx, std::shared_ptr<Sink> sink, When when) = 0;
    /// About `limit` bytes from a place that an earlier page gave (0: the beginning). An attempt that said nothing is an empty
    /// page.
    virtual Task<Page> read(Context ctx, Name name, std::uint64_t from, std::size_t limit) = 0;
    /// Removes all of a job's.
    virtual Task<Unit> remove(Context ctx, std::string uid) = 0;

protected:
    /// Pieces of one log go there in their order: one flush of it at a time.
    class Turn {
    public:
        explicit Turn(std::shared_ptr<Sink> sink) : sink_(std::move(sink)) { sink_->busy_ = true; }
        ~Turn();
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;

    private:
        std::shared_ptr<Sink> sink_;
    };
    static Task<Unit> wait_for_turn(Context ctx, std::shared_ptr<Sink> sink);

private:
    std::size_t limit_;
};

/// In files, one for each log. They are touched on the pool only.
class OutputFiles final : public OutputLog {
public:
    struct Options {
        std::filesystem::path folder;
        std::size_t limit = 4u << 20;
    };
    OutputFiles(Pool& pool, Options options) : OutputLog(options.limit), pool_(pool), options_(std::move(options)) {}

    Task<Kept> kept(Context ctx, Name name) override;
    Task<Unit> flush(Context ctx, std::shared_ptr<Sink> sink, When when) override;
    Task<Page> read(Context ctx, Name name, std::uint64_t from, std::size_t limit) override;
    Task<Unit> remove(Context ctx, std::string uid) override;

private:
    std::filesystem::path path(const Name& name) const;
    Pool& pool_;
    Options options_;
};

/// In the store, aside from what servers hold in memory:
///
///     ~output/<uid>/<task>-<attempt><phase>/<12 hexadecimal digits: where in the log it begins>
///     jobs.output/<uid>      how many bytes that is, of a job; or that it was removed to make room
///
/// Only who leads writes. What there is in all is bounded: beyond `total` the oldest jobs that are over lose theirs, and readers
/// are told so.
class OutputRecords final : public OutputLog {
public:
    struct Options {
        std::size_t limit = 4u << 20;
        std::size_t total = 256u << 20;
    };
    /// `before`: what was kept in files, when this installation had one server; only read.
    OutputRecords(store::Store& store, Clock& clock, OutputFiles& before, Options options);
    ~OutputRecords() override;

    /// From here on this server writes, with this fence; `is_over` tells whether a job's output may go. Nothing: it does not any
    /// more.
    void lead(std::optional<store::Fence> fence, std::function<bool(std::string_view uid)> is_over = {});

    Task<Kept> kept(Context ctx, Name name) override;
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
    static std::string prefix(std::string_view uid) { return store::aside_mark + ("output/" + std::string(uid) + "/"); }
    static std::string prefix(const Name& name);
    Task<Unit> remove_records(Context ctx, std::string uid);
    Task<Unit> make_room(Context ctx);

    store::Store& store_;
    Clock& clock_;
    OutputFiles& before_;
    Options options_;
    std::optional<store::Fence> fence_;
    std::function<bool(std::string_view)> is_over_;
    std::map<std::string, Job, std::less<>> jobs_;
    std::size_t total_ = 0;
    bool making_room_ = false;
    std::shared_ptr<void> observer_;
};

} // namespace orrery::jobs
