#pragma once

#include "resource/object.h"

#include <string>

namespace orrery::resource {

/// The kinds of this module. User and Token are in identity/.
Kind node_kind();   ///< a host: address, SSH login, maintenance
Kind secret_kind(); ///< named values, sealed; write-only in the API
Kind event_kind();  ///< append-only: subject, actor, context, action, reason, evidence

/// The parsed spec of a Node.
struct Node {
    std::string name, address, ssh_user, ssh_key; ///< ssh_key: the name of a Secret, or empty
    std::string ssh_host_key;                     ///< if not empty, other host keys are rejected
    std::string ssh_jump;                         ///< the Node to connect through, or empty
    int ssh_port = 22;
    bool ssh_sudo = false;            ///< run tasks as root with sudo
    bool ssh_trust_first_use = false; ///< pin the first host key that is seen
    bool maintenance = false;
    std::string maintenance_reason;
    static Node from(const Object& object);
};

} // namespace orrery::resource
