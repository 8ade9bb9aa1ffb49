#pragma once

#include "core/clock.h"
#include "core/context.h"
#include "resource/resources.h"
#include "store/store.h"

namespace orrery::resource {

/// Adds an event to a transaction that changes keys other than resources, so that both are atomic. Adds one change and one compare.
/// (Writes of Resources add their events themselves; use Resources::record for events without a transaction.)
void add_event(const Context& ctx, const Clock& clock, EventDraft draft, store::Transaction& transaction);

} // namespace orrery::resource
