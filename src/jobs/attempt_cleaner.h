#pragma once

#include "jobs/attempt_builder.h"
#include "jobs/live_job.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace orrery::jobs {

/// Removes what ended attempts left on their nodes. A node that is unreachable is tried again, less and less often; until then the
/// job is not reported as cleaned, so that the next leader continues. Private to the engine.
class AttemptCleaner {
public:
    /// `on_cleaned` is called when the last attempt of an ended job is clean.
    AttemptCleaner(EngineContext& engine, AttemptBuilder& builder, std::function<void()> on_cleaned)
        : engine_(engine), builder_(builder), on_cleaned_(std::move(on_cleaned)) {}

    void clean(std::shared_ptr<JobRun> run, std::uint32_t task, std::shared_ptr<RunningAttempt> running);
    /// After a replay: cleans what a server that was killed had no time for.
    void clean_leftovers(const std::shared_ptr<JobRun>& run);

private:
    asio::awaitable<void> clean_up(Context ctx, std::shared_ptr<JobRun> run, std::uint32_t task,
                                   std::shared_ptr<RunningAttempt> running);
    void note_end(JobRun& run, std::uint32_t task, int number, bool ok);

    EngineContext& engine_;
    AttemptBuilder& builder_;
    std::function<void()> on_cleaned_;
};

} // namespace orrery::jobs
