#pragma once

#include "resource/kind.h"

#include <string_view>

/// Private to the module: checks that the declarations of kinds cannot express.
namespace orrery::gslb {

/// A domain name; with `wildcard` its first label may be *. Labels have letters, digits, hyphens and underscores.
bool is_domain(std::string_view name, bool wildcard);

Task<Unit> prepare_load_balancer(Context ctx, resource::Draft& draft);
Task<Unit> prepare_pool(Context ctx, resource::Draft& draft);
Task<Unit> prepare_member(Context ctx, resource::Draft& draft);
Task<Unit> prepare_monitor(Context ctx, resource::Draft& draft);
Task<Unit> prepare_zone(Context ctx, resource::Draft& draft);
Task<Unit> prepare_publisher(Context ctx, resource::Draft& draft);

} // namespace orrery::gslb
