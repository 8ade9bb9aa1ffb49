#pragma once

#include "core/result.h"
#include "net/ssh.h"

#include <boost/json/object.hpp>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace orrery::drivers {

/// A node of a run, with its login.
struct AnsibleHost {
    std::string name;
    net::SshTarget target;
    std::map<std::string, std::string> labels;
    bool sudo = false;
};

struct AnsibleRun {
    std::vector<AnsibleHost> hosts;
    boost::json::object variables;                  ///< secrets in the clear; texts are data and never templates
    std::map<std::string, std::string> environment; ///< of the programs that plays run on nodes
    std::string vault_password;                     ///< may be empty
    int forks = 5;
    std::filesystem::path content;
};

/// Writes the files that a run needs besides its playbook: inventory, keys, known hosts, variables, environment, settings and the
/// callback plugin. Only the server's user can read them. An existing folder is replaced. Blocks: pool threads only.
Result<Unit> write_run_folder(const std::filesystem::path& folder, const AnsibleRun& run);

} // namespace orrery::drivers
