#pragma once

#include "drivers/ssh/remote.h"
#include "jobs/executor.h"

#include <map>
#include <memory>
#include <string>

namespace orrery::drivers {

struct LocalOptions {
    /// What jobs may run at the server: from the name they use to the program's path. Nothing else is run.
    std::map<std::string, std::string> programs;
    Duration patience = std::chrono::minutes(10);
};

/// `run: {local: {program: backup, arguments: [...]}}`: a program of the allow-list, at the server, without a shell, as an attempt
/// that outlives the server (`local` is made on a LocalRunner). Loop thread only.
std::unique_ptr<jobs::Executor> local_executor(RemoteAttempts& local, LocalOptions options);

} // namespace orrery::drivers
