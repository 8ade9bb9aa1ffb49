#pragma once

#include <string_view>

namespace orrery::resource {

/// Whether the text is a valid account name of a node. Ansible evaluates other texts as templates.
bool is_account(std::string_view name);

} // namespace orrery::resource
