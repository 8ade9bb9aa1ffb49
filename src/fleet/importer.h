#pragma once

#include "fleet/import/import_plan.h"
#include "resource/resources.h"

#include <boost/json/object.hpp>

#include <string>

namespace orrery::fleet {

/// Writes the machines of an import file into the inventory, and their passwords into Secrets. Idempotent: what is in the inventory
/// already is left as it is. Machines that the file does not have are reported and stay.
///
/// Everything is checked before the first write, and all errors are returned at once. The writes are made in batches; after a
/// failure the same import completes the rest. Returns {"machines": [{"machine", "outcome", "position"}], "absent": [...],
/// "created", "updated", "unchanged", "dry_run"}. Loop thread only.
Task<json::object> import_machines(Context ctx, resource::Resources& resources, std::string text, resource::WriteOptions options);

} // namespace orrery::fleet
