#pragma once

#include "core/config.h"
#include "core/task.h"
#include "store/store.h"

#include <filesystem>
#include <memory>
#include <string>

namespace orrery::app {

/// Which store the configuration means.
struct StorePlace {
    enum class Engine { sqlite, etcd };
    Engine engine = Engine::sqlite;
    std::filesystem::path file; ///< of SQLite
    std::string url;            ///< as shown to people: "sqlite:///var/lib/orrery/store.db", "etcd://h:2379/prefix"
};

/// From `store.url`, or a file in `data.folder`.
Result<StorePlace> configured_store(const Config& config);
/// The same, but follows an SQLite store that was moved to etcd, so that a server goes on after a migration with the same
/// configuration.
Result<StorePlace> choose_store(const Config& config);
/// Opens it.
Task<std::unique_ptr<store::Store>> open_store(Context ctx, asio::any_io_executor executor, const Config& config, StorePlace place);
/// A place from a URL that a person gave.
Result<StorePlace> place_from_url(std::string_view url);

} // namespace orrery::app
