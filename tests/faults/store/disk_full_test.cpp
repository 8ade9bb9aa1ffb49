// A store on a filesystem of eight megabytes, which is filled, and then is not full any more. Needs root to mount it.

#include "core/test_fixture.h"
#include "store/sqlite/backup.h"
#include "store/sqlite/sqlite_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sys/mount.h>
#include <unistd.h>

namespace orrery::store::faults {
namespace {

using namespace std::chrono_literals;

/// A small filesystem for one test.
class SmallDisk {
public:
    enum class Kind { tmpfs, ext4 };
    explicit SmallDisk(Kind kind) {
        std::filesystem::create_directory(path());
        if (kind == Kind::tmpfs) {
            mounted_ = ::mount("tmpfs", path().c_str(), "tmpfs", 0, "size=8m") == 0;
            return;
        }
        const auto image = (folder_ / "image").string();
        const auto command = fmt::format("truncate -s 12M {0} && mkfs.ext4 -q -m 0 -O ^has_journal {0} && mount -o loop {0} {1}",
                                         image, path().string());
        mounted_ = std::system(fmt::format("({}) >/dev/null 2>&1", command).c_str()) == 0;
    }
    ~SmallDisk() {
        if (mounted_) ::umount2(path().c_str(), MNT_DETACH);
    }
    bool mounted() const { return mounted_; }
    std::filesystem::path path() const { return folder_ / "disk"; }

private:
    testing::TemporaryFolder folder_;
    bool mounted_ = false;
};

asio::awaitable<void> fill_and_free(asio::io_context& loop, std::filesystem::path disk) {
    const auto ctx = Context::background();
    // What will be deleted later to make room.
    std::ofstream(disk / "ballast") << std::string(2 << 20, 'b');
    auto opened = co_await open_sqlite(ctx, loop.get_executor(), {.path = disk / "store.db", .wal_pages = 64});
    CO_ASSERT_OK(opened);
    auto store = std::move(*opened);
    int kept = 0;
    Result<Revision> written;
    for (;; ++kept) {
        written = co_await store->apply(ctx, Transaction().put(fmt::format("k/{:04}", kept), std::string(30'000, 'v')));
        if (!written.ok() || kept > 2000) break;
    }
    CO_ASSERT(!written.ok());
    EXPECT_EQ(written.error().code, Code::no_space) << written.error().text();
    EXPECT_GT(kept, 10);
    // Reads go on; what was acknowledged is there, what was refused is not.
    EXPECT_EQ(store->count("k/"), static_cast<std::size_t>(kept));
    EXPECT_EQ(store->revision(), kept);
    CO_ASSERT(!store->health().ok());
    EXPECT_EQ(store->health().error().code, Code::no_space);
    EXPECT_FALSE(store->health().error().remedy.empty());
    // Leases and compactions fail in the same words, and nothing hangs.
    for (int i = 0; i < 20; ++i) {
        auto again = co_await store->apply(ctx, Transaction().put("large", std::string(1'000'000, 'x')));
        CO_ASSERT(!again.ok());
        EXPECT_EQ(again.error().code, Code::no_space);
    }

    // No client writes, but there is room again: the store notices by itself.
    std::filesystem::remove(disk / "ballast");
    for (int i = 0; i < 100 && !store->health().ok(); ++i) (void)co_await real_clock().sleep(100ms);
    EXPECT_TRUE(store->health().ok()) << store->health().error().text();
    written = co_await store->apply(ctx, Transaction().put("after", std::string(30'000, 'a')));
    CO_ASSERT_OK(written);
    const auto revision = store->revision();
    EXPECT_EQ(revision, kept + 1);
    co_await store->stop();
    store.reset();

    auto verified = verify_sqlite(disk / "store.db");
    CO_ASSERT_OK(verified);
    EXPECT_EQ(verified->revision, revision);
    EXPECT_EQ(verified->keys, static_cast<std::size_t>(kept) + 1);
    opened = co_await open_sqlite(ctx, loop.get_executor(), {.path = disk / "store.db"});
    CO_ASSERT_OK(opened);
    EXPECT_EQ((*opened)->count("k/"), static_cast<std::size_t>(kept));
    co_await (*opened)->stop();
}

void run_on(SmallDisk::Kind kind) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may mount a small filesystem";
    SmallDisk disk(kind);
    if (!disk.mounted()) GTEST_SKIP() << "a small filesystem cannot be mounted here";
    asio::io_context loop(1);
    std::exception_ptr failure;
    asio::co_spawn(loop, fill_and_free(loop, disk.path()), [&](std::exception_ptr exception) { failure = std::move(exception); });
    loop.run();
    if (failure) std::rethrow_exception(failure);
}

TEST(DiskFull, WritesFailReadsContinueAndItRecoversOnTmpfs) { run_on(SmallDisk::Kind::tmpfs); }
TEST(DiskFull, WritesFailReadsContinueAndItRecoversOnExt4) { run_on(SmallDisk::Kind::ext4); }

} // namespace
} // namespace orrery::store::faults
