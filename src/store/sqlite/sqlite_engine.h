#pragma once

#include "store/store.h"

#include <filesystem>
#include <string>

namespace orrery::store {

/// The interface of the SQLite engine for backup and migration.
class SqliteEngine : public Store {
public:
    virtual const std::filesystem::path& path() const = 0;
    /// Writes the migration marker, in order with the writes, and refuses all later writes. Returns the last revision.
    virtual Task<Revision> seal(Context ctx, std::string target) = 0;
};

} // namespace orrery::store
