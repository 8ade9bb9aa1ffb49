#pragma once

#include "drivers/ssh/remote.h"
#include "jobs/executor.h"

#include <filesystem>
#include <memory>

namespace orrery::drivers {

struct AnsibleOptions {
    std::filesystem::path content; ///< folder of playbooks and roles on the server
    std::filesystem::path runs;    ///< parent of the private folders of runs; best on a file system in memory
    std::string program = "ansible-playbook";
    Duration retry_budget = std::chrono::minutes(10); ///< how long an attempt that cannot be reached is retried
};

/// The executor of `run: {ansible: {playbook: site.yml}}`: runs existing playbooks and roles on one node or on several nodes
/// together. ansible-playbook runs on the server, detached, as an attempt that survives a restart of the server; `local` is based
/// on a LocalRunner. Keys, variables and secrets are files of mode 0600 in a private folder, never arguments; the folder is removed
/// when the run ends. Loop thread only.
std::unique_ptr<jobs::Executor> ansible_executor(RemoteAttempts& local, Logins& logins, net::Ssh& ssh, Pool& pool,
                                                 AnsibleOptions options);

} // namespace orrery::drivers
