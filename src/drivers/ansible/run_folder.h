#pragma once

#include "core/result.h"
#include "net/ssh.h"

#include <boost/json/object.hpp>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace orrery::drivers {

/// A machine of a run.
struct AnsibleHost {
    std::string name;
    net::SshTarget target;
    std::map<std::string, std::string> labels;
    bool sudo = false;
};

struct AnsibleRun {
    std::vector<AnsibleHost> hosts;
    boost::json::object variables; ///< secrets are in the clear
    std::string vault_password;    ///< or empty
    int forks = 5;
    std::filesystem::path content, plugins;
};

/// Everything a run needs beside its playbook, as files that only we can read: inventory, keys, known hosts, variables, settings.
/// Blocks.
Result<Unit> write_run_folder(const std::filesystem::path& folder, const AnsibleRun& run);

} // namespace orrery::drivers
