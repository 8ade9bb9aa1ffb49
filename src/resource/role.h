#pragma once

#include "core/result.h"

#include <string_view>

namespace orrery::resource {

/// Permissions of a principal; each role includes the ones before it. Viewers read, operators change resources, admins change
/// access.
enum class Role { nobody, viewer, operator_, admin };

/// "viewer", "operator", "admin"; else the name of the lowest role.
std::string_view name_of(Role role);
Result<Role> parse_role(std::string_view text);

} // namespace orrery::resource
