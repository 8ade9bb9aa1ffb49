#include "store/conformance_test.h"
#include "store/sqlite/sqlite_store.h"

namespace orrery::store::conformance {
namespace {

class SqliteLab final : public EngineFixture {
public:
    Task<std::unique_ptr<Store>> open(asio::any_io_executor executor, Mirror::Options mirror) override {
        SqliteOptions options{.path = folder_ / "store.db", .clock = &clock_, .mirror = mirror};
        co_return co_await open_sqlite(ctx, executor, std::move(options));
    }
    asio::awaitable<void> advance(Duration time) override {
        clock_.advance(time);
        co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    }

private:
    orrery::testing::TemporaryFolder folder_;
    VirtualClock clock_;
};

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreConformance,
                         ::testing::Values(Engine{"sqlite", [] { return std::make_unique<SqliteLab>(); }}),
                         [](const auto& info) { return info.param.name; });

} // namespace
} // namespace orrery::store::conformance
