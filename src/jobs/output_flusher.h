#pragma once

#include "jobs/live_job.h"

#include <memory>
#include <utility>
#include <vector>

namespace orrery::jobs {

/// Writes the output of attempts to the log while they run, a few times a second, and completely before their outcome is recorded:
/// after that no server asks the node again. Private to the engine.
class OutputFlusher {
public:
    /// `shared`: several servers share the store, and `log` is in it.
    OutputFlusher(EngineContext& engine, OutputLog& log, bool shared)
        : engine_(engine), log_(log), shared_(shared), wake_(engine.executor) {}

    OutputLog& log() { return log_; }
    /// Flushes the sink of an attempt from now on, until its `on_pending` is cleared.
    void watch(const std::shared_ptr<JobRun>& run, const std::shared_ptr<OutputLog::Sink>& sink);
    /// Runs until it is cancelled or another server leads.
    asio::awaitable<void> run(Context ctx);
    void clear() { unflushed_.clear(); }

    /// How far an earlier server stored the output of an attempt. In a shared store this must be known, or output would be stored
    /// twice: it is asked until there is an answer.
    asio::awaitable<OutputLog::StoredOutput> stored(Context ctx, OutputLog::Name name);
    /// Makes the output of an attempt durable. Throws `operation_aborted` where another server leads.
    asio::awaitable<void> flush_all(Context ctx, RunningAttempt& running);

private:
    EngineContext& engine_;
    OutputLog& log_;
    bool shared_;
    Notifier wake_;
    std::vector<std::pair<std::shared_ptr<JobRun>, std::shared_ptr<OutputLog::Sink>>> unflushed_;
};

} // namespace orrery::jobs
