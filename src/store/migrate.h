#pragma once

#include "store/store.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace orrery::store {

/// Stands in a target while a migration writes to it. A store that has it is no store yet: whoever opens it refuses.
constexpr std::string_view migration_key = "sys/migration";
Error incomplete_migration_error(std::string_view what, std::string_view how_to_clear);

} // namespace orrery::store
