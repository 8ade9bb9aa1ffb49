#include "app/store_admin.h"

#include <fmt/format.h>

#include "core/log.h"
#include "store/migrate.h"
#include "store/sqlite/sqlite_store.h"

namespace orrery::app {

namespace {

class Admin final : public api::StoreAdmin {
public:
    Admin(asio::any_io_executor executor, const Config& config, StorePlace place, store::Store& store, std::function<void()> moved)
        : executor_(std::move(executor)), config_(config), place_(std::move(place)), store_(store), moved_(std::move(moved)) {}

    std::string engine() const override { return place_.engine == StorePlace::Engine::sqlite ? "sqlite" : "etcd"; }
    std::string location() const override { return place_.url; }

    Task<Backup> backup(Context ctx) override { co_return Error{Code::unsupported, "not built yet"}; }

    Task<Migration> migrate(Context ctx, std::string to, std::function<void(std::int64_t, std::int64_t)> progress) override {
        co_return Error{Code::unsupported, "not built yet"};
    }

private:
    asio::any_io_executor executor_;
    [[maybe_unused]] const Config& config_;
    StorePlace place_;
    [[maybe_unused]] store::Store& store_;
    std::function<void()> moved_;
};

} // namespace

std::unique_ptr<api::StoreAdmin> make_store_admin(asio::any_io_executor executor, const Config& config, StorePlace place, store::Store& store, std::function<void()> moved) {
    return std::make_unique<Admin>(std::move(executor), config, std::move(place), store, std::move(moved));
}

} // namespace orrery::app
