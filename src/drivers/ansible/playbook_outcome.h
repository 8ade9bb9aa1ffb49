#pragma once

#include "drivers/ansible/events.h"
#include "jobs/executor.h"

#include <string_view>

namespace orrery::drivers {

/// The outcome of a playbook run. Ansible's statistics decide: failures on a host are a failure whatever the exit code, and without
/// statistics no exit code is a success. `hosts` is the number of nodes of the task; `last_error` is the last error that
/// ansible-playbook printed.
jobs::Outcome playbook_outcome(const AnsibleEvents& events, int exit_code, std::size_t hosts, std::string_view last_error);

} // namespace orrery::drivers
