#include "app/store_admin.h"

#include "core/ids.h"
#include "core/log.h"
#include "store/etcd/etcd_store.h"
#include "store/migrate.h"
#include "store/sqlite/backup.h"
#include "store/sqlite/sqlite_store.h"

#include <fmt/format.h>

namespace orrery::app {

namespace {

class Admin final : public api::StoreAdmin {
public:
    Admin(asio::any_io_executor executor, const Config& config, StoreLocation location, store::FreezableStore& store,
          std::function<void()> migrated)
        : executor_(std::move(executor)),
          config_(config),
          location_(std::move(location)),
          store_(store),
          migrated_(std::move(migrated)) {}

    std::string engine() const override { return location_.engine == StoreLocation::Engine::sqlite ? "sqlite" : "etcd"; }
    std::string location() const override { return location_.url; }

    Task<Backup> backup(Context ctx) override {
        if (location_.engine != StoreLocation::Engine::sqlite)
            co_return Error{Code::unsupported, "the store of this server is etcd, which has its own backup tool",
                            "etcdctl snapshot save FILE"};
        // In the folder of the store: on the same file system, and readable by the same user only.
        const auto file = location_.file.parent_path() / fmt::format("backup-{}.tmp", random_id());
        CO_TRY(const auto revision, co_await store::backup_to(ctx, store_.inner(), file));
        co_return Backup{file.string(), revision};
    }

    Result<Unit> check_target(const std::string& to) const override {
        TRY(std::ignore, target_of(to));
        return Unit{};
    }

    Task<Migration> migrate(Context ctx, std::string to, std::function<void(std::int64_t, std::int64_t)> progress) override {
        CO_TRY(const auto location, target_of(to));
        log::info(ctx, "store migration started: from={} to={}", location_.url, location.url);
        CO_TRY(auto target, co_await open_store(ctx, executor_, config_, location));
        auto outcome = co_await move_to(ctx, *target, location.url, std::move(progress));
        co_await target->stop();
        if (!outcome.ok())
            log::warn(ctx, "store migration failed; the store stays: store={} error={}", location_.url, outcome.error().text());
        else
            migrated_();
        co_return outcome;
    }

private:
    Result<StoreLocation> target_of(const std::string& to) const {
        TRY(auto location, location_from_url(to));
        if (location_.engine != StoreLocation::Engine::sqlite)
            return Error{Code::unsupported, fmt::format("the store of this server is already at {}", location_.url),
                         "only an SQLite store can be migrated"};
        if (location.engine != StoreLocation::Engine::etcd)
            return Error{Code::invalid, "a store can be migrated to etcd only",
                         "use etcds://host:2379,host:2379/prefix; to copy a file, use backup and restore"};
        TRY(auto options, store::parse_etcd_url(location.url));
        options.allow_plaintext = config_.boolean("store.etcd.allow_plaintext");
        TRY(std::ignore, store::check_etcd_plaintext(options));
        return location;
    }

    Task<Migration> move_to(Context ctx, store::Store& target, std::string where,
                            std::function<void(std::int64_t, std::int64_t)> progress) {
        CO_TRY(const auto report, co_await store::migrate(ctx, store_, target, std::move(progress)));
        // This commit completes the migration: from now on the file names the new store.
        auto sealed = co_await store::seal_migrated(ctx, store_.inner(), where);
        if (!sealed.ok()) {
            store_.accept_writes();
            co_return std::move(sealed).error();
        }
        log::info(ctx, "store migrated: keys={} to={} digest={}", report.keys, where, report.digest);
        co_return Migration{static_cast<std::int64_t>(report.keys), report.digest};
    }

    asio::any_io_executor executor_;
    const Config& config_;
    StoreLocation location_;
    store::FreezableStore& store_;
    std::function<void()> migrated_;
};

} // namespace

std::unique_ptr<api::StoreAdmin> make_store_admin(asio::any_io_executor executor, const Config& config, StoreLocation location,
                                                  store::FreezableStore& store, std::function<void()> migrated) {
    return std::make_unique<Admin>(std::move(executor), config, std::move(location), store, std::move(migrated));
}

} // namespace orrery::app
