#pragma once

#include "jobs/executor.h"

namespace orrery::drivers {

/// Replaces the references in the programs of an ssh body: a shell script expands environment variables instead, a template names
/// values. `invalid`, with the field, where a reference cannot be made safe, and for every reference in a script of another
/// language than sh.
Result<jobs::SeparatedBody> separate_ssh_values(const boost::json::value& body);

} // namespace orrery::drivers
