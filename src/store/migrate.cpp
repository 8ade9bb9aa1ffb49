#include "store/migrate.h"

#include <fmt/format.h>

namespace orrery::store {

Error incomplete_migration_error(std::string_view what, std::string_view how_to_clear) {
    return Error{
        Code::conflict, fmt::format("{} is what an interrupted migration left behind, and not complete", what),
        fmt::format("the store it was copied from is still in force; clear this one with `{}` and migrate again", how_to_clear)};
}

} // namespace orrery::store
