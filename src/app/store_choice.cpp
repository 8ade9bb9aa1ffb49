#include "app/store_choice.h"

#include "core/log.h"
#include "store/etcd/etcd_store.h"
#include "store/sqlite/sqlite_store.h"

#include <fmt/format.h>

namespace orrery::app {

Result<StorePlace> place_from_url(std::string_view url) {
    constexpr std::string_view sqlite_scheme = "sqlite://";
    if (url.starts_with("etcd://") || url.starts_with("etcds://")) {
        TRY(std::ignore, store::parse_etcd_url(url));
        return StorePlace{StorePlace::Engine::etcd, {}, std::string(url)};
    }
    if (url.starts_with(sqlite_scheme) && url.size() > sqlite_scheme.size() + 1 && url[sqlite_scheme.size()] == '/')
        return StorePlace{StorePlace::Engine::sqlite, url.substr(sqlite_scheme.size()), std::string(url)};
    return Error{Code::invalid, fmt::format("\"{}\" is not the URL of a store", url),
                 "write sqlite:///path/of/file or etcd://host:2379,host:2379/prefix"};
}

Result<StorePlace> configured_store(const Config& config) {
    const auto& url = config.text("store.url");
    if (!url.empty()) return place_from_url(url);
    return place_from_url("sqlite://" + std::filesystem::absolute(config.path("data.folder") / "store.db").string());
}

Result<StorePlace> choose_store(const Config& config) {
    TRY(auto place, configured_store(config));
    if (place.engine == StorePlace::Engine::sqlite && std::filesystem::exists(place.file)) {
        TRY(const auto moved, store::sqlite_moved_to(place.file));
        if (moved) {
            log::warn(Context::background(), "the store in {} has moved to {}, which is used; set store.url to say so",
                      place.file.string(), *moved);
            return place_from_url(*moved);
        }
    }
    return place;
}

Task<std::unique_ptr<store::Store>> open_store(Context ctx, asio::any_io_executor executor, const Config& config,
                                               StorePlace place) {
    if (place.engine == StorePlace::Engine::sqlite) {
        store::SqliteOptions options;
        options.path = place.file;
        co_return co_await store::open_sqlite(ctx, executor, std::move(options));
    }
    CO_TRY(auto options, store::parse_etcd_url(place.url));
    options.ca = config.path("store.etcd.ca");
    options.certificate = config.path("store.etcd.certificate");
    options.key = config.path("store.etcd.key");
    options.user = config.text("store.etcd.user");
    options.password_file = config.path("store.etcd.password_file");
    co_return co_await store::open_etcd(ctx, executor, std::move(options));
}

} // namespace orrery::app
