#pragma once

#include "drivers/ssh/remote.h"
#include "jobs/executor.h"

#include <map>
#include <memory>
#include <string>

namespace orrery::drivers {

struct LocalOptions {
    /// Programs that jobs may run on the server, by the name that jobs use; the value is the path. No other program runs.
    std::map<std::string, std::string> programs;
    Duration retry_budget = std::chrono::minutes(10); ///< how long an attempt that cannot be reached is retried
};

/// The executor of `run: {local: {program: backup, arguments: [...]}}`: runs a program of the allow-list on the server, without a
/// shell, as an attempt that survives a restart of the server; `local` is based on a LocalRunner. Loop thread only.
std::unique_ptr<jobs::Executor> local_executor(RemoteAttempts& local, LocalOptions options);

} // namespace orrery::drivers
