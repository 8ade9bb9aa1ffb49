#pragma once

#include "drivers/ssh/remote.h"
#include "jobs/executor.h"

#include <filesystem>
#include <memory>

namespace orrery::drivers {

struct PuppetOptions {
    std::filesystem::path content;                    ///< folder of manifests, modules and data on the server
    Duration retry_budget = std::chrono::minutes(10); ///< how long a node that cannot be reached is retried
};

/// The executor of `run: {puppet: {manifest: site.pp, modules: [modules/ntp]}}`: sends manifest, modules and data to the node,
/// applies them there with detailed exit codes, as an attempt that survives a restart of the server, and reads the report. The
/// task's values are the highest layer of Hiera data. The files are removed from the node when the run ends. Loop thread only.
std::unique_ptr<jobs::Executor> puppet_executor(RemoteAttempts& remote, Pool& pool, PuppetOptions options);

} // namespace orrery::drivers
