#pragma once

#include "resource/object.h"

#include <string>

namespace orrery::resource {

/// The kinds of the house itself. User and Token live in identity/.
Kind node_kind();   ///< a machine: address, ssh login, maintenance
Kind secret_kind(); ///< named values, sealed; write-only through the API
Kind event_kind();  ///< append-only: subject, actor, context, what, because, evidence

/// A Node's spec, read.
struct Node {
    std::string name, address, ssh_user, ssh_key; ///< ssh_key names a Secret, or is empty
    std::string ssh_host_key;                     ///< the only one accepted, where it is not empty
    std::string ssh_jump;                         ///< the Node to go through, or empty
    int ssh_port = 22;
    bool ssh_sudo = false;            ///< tasks become root by sudo
    bool ssh_trust_first_use = false; ///< where there is no host key yet
    bool maintenance = false;
    std::string maintenance_reason;
    static Node from(const Object& object);
};

} // namespace orrery::resource
