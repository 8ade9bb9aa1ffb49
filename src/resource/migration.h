#pragma once

#include "resource/kind.h"
#include "store/store.h"

#include <cstddef>

namespace orrery::resource {

/// Rewrites stored resources whose kind has renamed fields (`Field::renamed_from`) or a `Kind::migrate`, in transactions of bounded
/// size, and returns the number of changed resources. Their revisions advance; labels, times and other fields do not change. Writes
/// no audit events.
///
/// Call it when the server starts, before other code reads resources. A marker with all declared renames is stored at the end, so
/// that later starts read one key only. Safe to interrupt, and to run on several servers at once: a resource is rewritten only at
/// the revision that was read. Records that cannot be parsed are not changed.
Task<std::size_t> migrate_stored_fields(Context ctx, store::Store& store, const Registry& registry);

} // namespace orrery::resource
