#pragma once

#include "core/result.h"

#include <string_view>

namespace orrery::resource {

/// What somebody may do; each includes those before it. A viewer reads, an operator changes the cloud, an admin changes who may.
enum class Role { nobody, viewer, operator_, admin };

/// "viewer", "operator", "admin"; "nobody" for none.
std::string_view name_of(Role role);
Result<Role> parse_role(std::string_view text);

} // namespace orrery::resource
