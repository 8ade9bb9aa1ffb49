#include "resource/role.h"

#include "core/truncate.h"

#include <fmt/format.h>

#include <array>

namespace orrery::resource {

namespace {
constexpr std::array<std::string_view, 4> role_names = {"nobody", "viewer", "operator", "admin"};
} // namespace

std::string_view name_of(Role role) { return role_names[static_cast<std::size_t>(role)]; }

Result<Role> parse_role(std::string_view text) {
    for (std::size_t i = 1; i < role_names.size(); ++i)
        if (role_names[i] == text) return static_cast<Role>(i);
    return Error{Code::invalid, fmt::format("\"{}\" is not a role", truncate(text, 40)), "use viewer, operator or admin"};
}

} // namespace orrery::resource
