#include "core/context.h"

#include "core/ids.h"

namespace orrery {

Context Context::make(std::string actor, std::string id) {
    return Context{Parts{id.empty() ? random_id() : std::move(id), std::move(actor), {}}};
}

Context Context::with_actor(std::string actor) const { return Context{Parts{id(), std::move(actor), deadline()}}; }

Context Context::with_deadline(SteadyTime when) const {
    return Context{Parts{id(), actor(), deadline() ? std::min(*deadline(), when) : when}};
}

Context Context::without_deadline() const { return Context{Parts{id(), actor(), {}}}; }

} // namespace orrery
