#include "app/store_admin.h"

#include "core/ids.h"
#include "core/log.h"
#include "store/migrate.h"
#include "store/sqlite/backup.h"
#include "store/sqlite/sqlite_store.h"

#include <fmt/format.h>

namespace orrery::app {

namespace {

class Admin final : public api::StoreAdmin {
public:
    Admin(asio::any_io_executor executor, const Config& config, StorePlace place, store::Gate& store, std::function<void()> moved)
        : executor_(std::move(executor)), config_(config), place_(std::move(place)), store_(store), moved_(std::move(moved)) {}

    std::string engine() const override { return place_.engine == StorePlace::Engine::sqlite ? "sqlite" : "etcd"; }
    std::string location() const override { return place_.url; }

    Task<Backup> backup(Context ctx) override {
        if (place_.engine != StorePlace::Engine::sqlite)
            co_return Error{Code::unsupported, "this server's store is in etcd, which makes its own backups",
                            "etcdctl snapshot save FILE"};
        // Beside the store: the same disk has room for it or says so, and the same user alone can read it.
        const auto file = place_.file.parent_path() / fmt::format("backup-{}.tmp", random_id());
        CO_TRY(const auto revision, co_await store::backup_to(ctx, store_.inner(), file));
        co_return Backup{file.string(), revision};
    }

    Task<Migration> migrate(Context ctx, std::string to, std::function<void(std::int64_t, std::int64_t)> progress) override {
        CO_TRY(const auto place, place_from_url(to));
        if (place_.engine != StorePlace::Engine::sqlite)
            co_return Error{Code::unsupported, fmt::format("this server's store is at {} already", place_.url),
                            "only a store in SQLite can be moved"};
        if (place.engine != StorePlace::Engine::etcd)
            co_return Error{Code::invalid, "a store can be moved to etcd only",
                            "write etcd://host:2379,host:2379/prefix; to copy a file, use backup and restore"};
        log::info(ctx, "moving the store from {} to {}", place_.url, place.url);
        CO_TRY(auto target, co_await open_store(ctx, executor_, config_, place));
        auto outcome = co_await move_to(ctx, *target, place.url, std::move(progress));
        co_await target->stop();
        if (!outcome.ok())
            log::warn(ctx, "the store stays at {}: {}", place_.url, outcome.error().text());
        else
            moved_();
        co_return outcome;
    }

private:
    Task<Migration> move_to(Context ctx, store::Store& target, std::string where,
                            std::function<void(std::int64_t, std::int64_t)> progress) {
        CO_TRY(const auto report, co_await store::migrate(ctx, store_, target, std::move(progress)));
        // From this commit on the file says where the store is: the moment of the move.
        auto sealed = co_await store::seal_moved(ctx, store_.inner(), where);
        if (!sealed.ok()) {
            store_.thaw();
            co_return std::move(sealed).error();
        }
        log::info(ctx, "moved {} keys to {}; digest {}", report.keys, where, report.digest);
        co_return Migration{static_cast<std::int64_t>(report.keys), report.digest};
    }

    asio::any_io_executor executor_;
    const Config& config_;
    StorePlace place_;
    store::Gate& store_;
    std::function<void()> moved_;
};

} // namespace

std::unique_ptr<api::StoreAdmin> make_store_admin(asio::any_io_executor executor, const Config& config, StorePlace place,
                                                  store::Gate& store, std::function<void()> moved) {
    return std::make_unique<Admin>(std::move(executor), config, std::move(place), store, std::move(moved));
}

} // namespace orrery::app
