#pragma once

#include "drivers/ssh/remote.h"
#include "jobs/executor.h"

#include <filesystem>
#include <memory>

namespace orrery::drivers {

struct PuppetOptions {
    std::filesystem::path content; ///< manifests, modules and data lie below this folder of the server
    Duration patience = std::chrono::minutes(10);
};

/// `run: {puppet: {manifest: site.pp, modules: [modules/ntp]}}`: sends manifest, modules and data to the machine, applies them
/// there with detailed exit codes, as an attempt that outlives the server, and reads the report. The task's values are Hiera data
/// of the highest layer. What was sent is gone from the machine when the run ends. Loop thread only.
std::unique_ptr<jobs::Executor> puppet_executor(RemoteAttempts& remote, Pool& pool, PuppetOptions options);

} // namespace orrery::drivers
