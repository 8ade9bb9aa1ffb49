#pragma once

#include "core/task.h"
#include "jobs/executor.h"
#include "jobs/rows.h"
#include "jobs/secrets.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::jobs {

/// The same text, with "\uFFFD" in the place of bytes that are not UTF-8: what programs say need not be text, what is shown must.
std::string valid_utf8(std::string_view bytes);

/// What attempts said, in files beside the store: one for each attempt and phase, only appended to, each piece with its place in
/// the attempt's own stream, so that after a crash reading goes on where it was. Files are touched on the pool only.
class OutputFiles {
public:
    struct Options {
        std::filesystem::path folder;
        std::size_t limit = 4u << 20; ///< of one attempt; what comes beyond is counted and not kept
    };
    OutputFiles(Pool& pool, Options options) : pool_(pool), options_(std::move(options)) {}

    struct Name {
        std::string uid; ///< of the job
        std::uint32_t task = 0;
        int attempt = 0;
        Phase phase = Phase::run;
    };

    /// Takes an attempt's output, masked; writes nothing by itself: `flush` does. Loop thread.
    class Sink final : public Output {
    public:
        Sink(Name name, const Secrets& secrets, std::size_t limit) : name_(std::move(name)), masker_(secrets), limit_(limit) {}
        void write(Stream stream, std::uint64_t offset, std::string_view bytes) override;
        void step(Step step) override;
        /// After re-attaching: so much is in the file.
        void resume(Offsets kept, std::uint64_t size);
        /// No more will come.
        void finish();
        bool has_pending() const { return !pending_.empty(); }
        /// Called when there is something to flush and there was not before.
        std::function<void()> on_pending;
        const Masker& masker() const { return masker_; }

    private:
        friend class OutputFiles;
        struct Side {
            std::uint64_t seen = 0; ///< of the attempt's stream
            std::string held;
        };
        void frame(char kind, std::uint64_t end, std::string_view bytes);
        Name name_;
        Masker masker_;
        std::size_t limit_;
        Side sides_[2];
        std::string pending_;
        std::uint64_t size_ = 0, dropped_ = 0;
        bool written_ = false, busy_ = false;
        std::unique_ptr<Notifier> idle_; ///< of whoever waits for a flush under way
    };

    std::shared_ptr<Sink> open(Name name, const Secrets& secrets) {
        return std::make_shared<Sink>(std::move(name), secrets, options_.limit);
    }
    struct Kept {
        Offsets offsets;
        std::uint64_t size = 0;
    };
    /// How far an attempt's output was kept; cuts off a torn end.
    Task<Kept> kept(Name name);
    /// Appends what the sink holds. `sync`: it is on the disk when this returns.
    Task<Unit> flush(std::shared_ptr<Sink> sink, bool sync);

    struct Piece {
        char kind = 'o'; ///< 'o' out, 'e' err, 's' a Step as JSON, 'n' a note of ours
        std::string bytes;
    };
    struct Page {
        std::vector<Piece> pieces;
        std::uint64_t next = 0; ///< give as `from` for what follows
    };
    /// About `limit` bytes from a place that an earlier page gave (0: the beginning). An attempt that said nothing is an empty
    /// page.
    Task<Page> read(Name name, std::uint64_t from, std::size_t limit);
    /// Removes all of a job's.
    Task<Unit> remove(std::string uid);

private:
    std::filesystem::path path(const Name& name) const;
    Pool& pool_;
    Options options_;
};

} // namespace orrery::jobs
