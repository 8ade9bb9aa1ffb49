#pragma once

#include "core/config.h"
#include "core/task.h"
#include "store/store.h"

#include <filesystem>
#include <memory>
#include <string>

namespace orrery::app {

/// The store that the configuration names.
struct StoreLocation {
    enum class Engine { sqlite, etcd };
    Engine engine = Engine::sqlite;
    std::filesystem::path file; ///< of SQLite
    std::string url;            ///< for display: "sqlite:///var/lib/orrery/store.db", "etcd://h:2379/prefix"
};

/// The store of `store.url`; if that is empty, a file in `data.folder`.
Result<StoreLocation> configured_store(const Config& config);
/// The same, but follows an SQLite store that was migrated to etcd, so that a server works after a migration with an unchanged
/// configuration.
Result<StoreLocation> choose_store(const Config& config);
/// Opens the store.
Task<std::unique_ptr<store::Store>> open_store(Context ctx, asio::any_io_executor executor, const Config& config,
                                               StoreLocation location);
/// Parses the URL of a store. The error repeats no credentials.
Result<StoreLocation> location_from_url(std::string_view url);

} // namespace orrery::app
