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

/// Port: fetches files from nodes. Loop thread only.
class ArtefactFetcher {
public:
    virtual ~ArtefactFetcher() = default;
    struct Found {
        std::string bytes;
        std::string message; ///< why there is no file: "is not there", "is a folder"; empty: `bytes` has it
    };
    /// The file at `path` on one of the attempt's nodes, where it has no more than `max_size` bytes. An Error: the node could not
    /// be reached.
    virtual Task<Found> fetch(Context ctx, Attempt attempt, Target target, std::string path, std::size_t max_size) = 0;
};

/// A file that a task named in `artefacts`, after an attempt.
struct Artefact {
    std::string node, path;
    std::uint64_t size = 0;
    std::string sha256;  ///< of the stored bytes
    std::string message; ///< why it is not stored; empty: it is
};
json::object to_json(const Artefact& artefact);

/// Stores artefacts beside the output of attempts; both are removed together. A file that holds a secret of its task is not stored,
/// because arbitrary bytes cannot be masked. The artefacts of the last attempts of a task are kept. File I/O runs on the pool.
class ArtefactFiles {
public:
    struct Options {
        std::filesystem::path folder;     ///< the same as that of OutputFiles
        std::size_t max_size = 16u << 20; ///< of one file
        std::uint64_t of_job = 1u << 30;  ///< of all files of one job
    };
    ArtefactFiles(Pool& pool, Options options) : pool_(pool), options_(std::move(options)) {}
    const Options& options() const { return options_; }

    struct Name {
        std::string uid; ///< of the job
        std::uint32_t task = 0;
        int attempt = 0;
    };
    /// Stores the file with that number. `artefact` has its node and path.
    Task<Artefact> keep(Name name, std::size_t number, Artefact artefact, std::string bytes, Masker masker);
    /// All artefacts of an attempt are stored, or have a message. Until then `list` is empty.
    Task<Unit> finish(Name name, std::vector<Artefact> all);
    /// Empty where the attempt has none.
    Task<std::vector<Artefact>> list(Name name);
    /// Up to `limit` bytes of a file; fewer at its end.
    Task<std::string> read(Name name, std::size_t number, std::uint64_t from, std::size_t limit);
    /// The stored bytes of all artefacts of a job.
    Task<std::uint64_t> used(std::string uid);

private:
    std::filesystem::path path(const Name& name, std::string_view part) const;
    Pool& pool_;
    Options options_;
};

} // namespace orrery::jobs
