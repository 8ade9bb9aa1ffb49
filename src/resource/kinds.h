#pragma once

#include <string>

#include "resource/object.h"

namespace orrery::resource {

/// The kinds of the house itself. User and Token live in identity/.
Kind node_kind();   ///< a machine: address, ssh login, maintenance
Kind secret_kind(); ///< named values, sealed; write-only through the API
Kind event_kind();  ///< append-only: subject, actor, context, what, because, evidence

/// A Node's spec, read.
struct Node {
    std::string name, address, ssh_user, ssh_key; ///< ssh_key names a Secret, or is empty
    int ssh_port = 22;
    bool maintenance = false;
    static Node from(const Object& object);
};

} // namespace orrery::resource
