#pragma once

#include "core/clock.h"
#include "core/context.h"
#include "resource/resources.h"
#include "store/store.h"

namespace orrery::resource {

/// Adds an event to a transaction that changes something other than resources, so that both happen or neither. One more change and
/// one more compare. (Resources' own writes do so by themselves; what has happened already is told with Resources::record.)
void add_event(const Context& ctx, const Clock& clock, EventDraft draft, store::Transaction& transaction);

} // namespace orrery::resource
