#include "app/store_choice.h"

#include "core/log.h"
#include "core/url_text.h"
#include "store/etcd/etcd_store.h"
#include "store/sqlite/backup.h"
#include "store/sqlite/sqlite_store.h"

#include <fmt/format.h>

namespace orrery::app {

namespace {

/// The sealing key is created after the first write to the store. An empty file with an existing key is therefore a lost store, and
/// a start on it would hide the loss behind an empty store with a new admin.
Result<Unit> check_not_emptied(const std::filesystem::path& file, const std::filesystem::path& key_file) {
    std::error_code ignored;
    if (std::filesystem::file_size(file, ignored) != 0 || ignored || !std::filesystem::exists(key_file, ignored)) return Unit{};
    return Error{
        Code::internal,
        fmt::format("the store {} is damaged: it is empty, but its sealing key {} exists", file.string(), key_file.string()),
        "restore the newest backup with \"orrery store restore FILE --force\"; to start with an empty store, move "
        "both files away"};
}

} // namespace

Result<StoreLocation> location_from_url(std::string_view url) {
    constexpr std::string_view sqlite_scheme = "sqlite://";
    if (url.starts_with("etcd://") || url.starts_with("etcds://")) {
        TRY(std::ignore, store::parse_etcd_url(url));
        return StoreLocation{StoreLocation::Engine::etcd, {}, std::string(url)};
    }
    if (url.starts_with(sqlite_scheme) && url.size() > sqlite_scheme.size() + 1 && url[sqlite_scheme.size()] == '/')
        return StoreLocation{StoreLocation::Engine::sqlite, url.substr(sqlite_scheme.size()), std::string(url)};
    // Without a scheme the position of a password is unknown: do not repeat such a text.
    const bool hidden = url.find("://") == std::string_view::npos && url.find('@') != std::string_view::npos;
    return Error{Code::invalid,
                 hidden ? "this is not the URL of a store" : fmt::format("\"{}\" is not the URL of a store", mask_userinfo(url)),
                 "use sqlite:///path/of/file or etcds://host:2379,host:2379/prefix"};
}

Result<StoreLocation> configured_store(const Config& config) {
    const auto& url = config.text("store.url");
    if (!url.empty()) return location_from_url(url);
    return location_from_url("sqlite://" + std::filesystem::absolute(config.path("data.folder") / "store.db").string());
}

Result<StoreLocation> choose_store(const Config& config) {
    TRY(auto location, configured_store(config));
    if (location.engine == StoreLocation::Engine::sqlite) {
        TRY(std::ignore, store::check_no_interrupted_restore(location.file));
    }
    if (location.engine == StoreLocation::Engine::sqlite && std::filesystem::exists(location.file)) {
        TRY(std::ignore, check_not_emptied(location.file, config.path("secrets.key_file")));
        TRY(const auto moved, store::sqlite_migration_target(location.file));
        if (moved) {
            log::warn(Context::background(), "store was migrated; using the new store; set store.url to it: from={} to={}",
                      location.file.string(), *moved);
            return location_from_url(*moved);
        }
    }
    return location;
}

Task<std::unique_ptr<store::Store>> open_store(Context ctx, asio::any_io_executor executor, const Config& config,
                                               StoreLocation location) {
    if (location.engine == StoreLocation::Engine::sqlite) {
        store::SqliteOptions options;
        options.path = location.file;
        co_return co_await store::open_sqlite(ctx, executor, std::move(options));
    }
    CO_TRY(auto options, store::parse_etcd_url(location.url));
    options.allow_plaintext = config.boolean("store.etcd.allow_plaintext");
    options.ca = config.path("store.etcd.ca");
    options.certificate = config.path("store.etcd.certificate");
    options.key = config.path("store.etcd.key");
    options.user = config.text("store.etcd.user");
    options.password_file = config.path("store.etcd.password_file");
    co_return co_await store::open_etcd(ctx, executor, std::move(options));
}

} // namespace orrery::app
