#pragma once

#include "jobs/artefacts.h"
#include "jobs/live_job.h"

#include <cstdint>
#include <memory>

namespace orrery::jobs {

/// Fetches the artefacts of attempts from their nodes and stores them. It does so after an attempt has ended and before its outcome
/// is recorded: a server that is killed in between re-attaches to the attempt and fetches them again. Private to the engine.
class ArtefactCollection {
public:
    ArtefactCollection(EngineContext& engine, ArtefactFiles& files)
        : engine_(engine), files_(files), slot_freed_(engine.executor) {}

    asio::awaitable<void> fetch(Context ctx, std::shared_ptr<JobRun> run, std::uint32_t task, RunningAttempt& running,
                                Outcome outcome);

private:
    asio::awaitable<Artefact> fetch_one(Context ctx, ArtefactFiles::Name name, std::size_t number, const RunningAttempt& running,
                                        const Target& target, std::string path, std::uint64_t& used);

    EngineContext& engine_;
    ArtefactFiles& files_;
    Notifier slot_freed_;
    std::size_t fetching_ = 0; ///< attempts whose artefacts are being fetched
};

} // namespace orrery::jobs
