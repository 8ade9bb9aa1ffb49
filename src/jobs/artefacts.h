#pragma once

#include "core/task.h"
#include "jobs/executor.h"
#include "jobs/secrets.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace orrery::jobs {

/// Port: fetches files from machines, over whatever leads there. Loop thread only.
class Collector {
public:
    virtual ~Collector() = default;
    struct Found {
        std::string bytes;
        std::string words; ///< why there is nothing to keep: "is not there", "is a folder"; empty: there is
    };
    /// The file at `path` on one of the attempt's machines, if it has no more than `most` bytes. An Error: the machine could not be
    /// asked.
    virtual Task<Found> fetch(Context ctx, Attempt attempt, Target target, std::string path, std::size_t most) = 0;
};

/// A file that a task named in `artefacts`, after an attempt.
struct Artefact {
    std::string node, path;
    std::uint64_t size = 0;
    std::string sha256; ///< of what is kept
    std::string words;  ///< why it is not kept; empty: it is
};
json::object to_json(const Artefact& artefact);

/// Files that attempts left, beside what they said, and gone with it. What holds a secret of its task is not kept: bytes of any
/// kind cannot be masked. Of one task the last few attempts' are kept. Files are touched on the pool only.
class ArtefactFiles {
public:
    struct Options {
        std::filesystem::path folder;    ///< the same as OutputFiles has
        std::size_t largest = 16u << 20; ///< file
        std::uint64_t of_job = 1u << 30; ///< all of one job
    };
    ArtefactFiles(Pool& pool, Options options) : pool_(pool), options_(std::move(options)) {}
    const Options& options() const { return options_; }

    struct Name {
        std::string uid; ///< of the job
        std::uint32_t task = 0;
        int attempt = 0;
    };
    /// Keeps one, the `number`th. `artefact` has its node and path.
    Task<Artefact> keep(Name name, std::size_t number, Artefact artefact, std::string bytes, Masker masker);
    /// All of an attempt's are there, or why not is known. Until then `list` has nothing.
    Task<Unit> finish(Name name, std::vector<Artefact> all);
    /// Empty where there are none.
    Task<std::vector<Artefact>> list(Name name);
    /// Up to `limit` bytes of one; fewer at its end.
    Task<std::string> read(Name name, std::size_t number, std::uint64_t from, std::size_t limit);
    /// Bytes of all that is kept of a job.
    Task<std::uint64_t> used(std::string uid);

private:
    std::filesystem::path path(const Name& name, std::string_view part) const;
    Pool& pool_;
    Options options_;
};

} // namespace orrery::jobs
