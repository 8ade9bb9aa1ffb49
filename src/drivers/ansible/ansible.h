#pragma once

#include "drivers/ssh/remote.h"
#include "jobs/executor.h"

#include <filesystem>
#include <memory>

namespace orrery::drivers {

struct AnsibleOptions {
    std::filesystem::path content; ///< playbooks and roles lie below this folder of the server
    std::filesystem::path plugins; ///< the folder of our callback plugin: share/ansible/callback
    std::filesystem::path runs;    ///< private folders of runs are made here; best on a file system in memory
    std::string program = "ansible-playbook";
    Duration patience = std::chrono::minutes(10);
};

/// `run: {ansible: {playbook: site.yml}}`: existing playbooks and roles on one machine, or on many together. Runs at the server,
/// detached, as an attempt that outlives it (`local` is made on a LocalRunner). Keys, variables and secrets are files of mode 0600
/// in a private folder that goes when the run ends, never arguments. What the statistics say decides. Loop thread only.
std::unique_ptr<jobs::Executor> ansible_executor(RemoteAttempts& local, Logins& logins, net::Ssh& ssh, Pool& pool,
                                                 AnsibleOptions options);

} // namespace orrery::drivers
