#pragma once

#include "store/store.h"

#include <filesystem>
#include <string>

namespace orrery::store {

/// What the neighbours of the SQLite engine (backup, migration) may ask of it beyond the Store.
class SqliteEngine : public Store {
public:
    virtual const std::filesystem::path& path() const = 0;
    /// Seals the store as moved, in turn with its writes; returns its last revision.
    virtual Task<Revision> move(Context ctx, std::string where) = 0;
};

} // namespace orrery::store
