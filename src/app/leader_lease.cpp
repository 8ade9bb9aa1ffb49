#include "app/leader_lease.h"

#include "core/log.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace orrery::app {

namespace {

constexpr std::string_view controllers_key = "sys/leader/controllers";

void keep_lease(int file, store::LeaseId lease) {
    // Fixed width, so that one write replaces the old id.
    const auto text = fmt::format("{:020d}\n", lease);
    if (::pwrite(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) || ::fdatasync(file) != 0)
        log::warn(Context::background(), "id of the leader lease not stored: error={}", std::strerror(errno));
}

} // namespace

LeaderLease::LeaderLease(std::filesystem::path folder) {
    file_ = ::open((folder / "leader-lease").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file_ >= 0 && ::flock(file_, LOCK_EX | LOCK_NB) != 0) {
        ::close(file_);
        file_ = -1;
    }
}

LeaderLease::~LeaderLease() {
    if (file_ >= 0) ::close(file_);
}

Task<Unit> LeaderLease::release_previous(Context ctx, store::Store& store) {
    if (file_ < 0) co_return Unit{};
    std::array<char, 20> text{};
    if (::pread(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) co_return Unit{};
    store::LeaseId lease = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), lease);
    const auto record = store.find(controllers_key);
    if (failed != std::errc{} || lease == 0 || !record || record->lease != lease) co_return Unit{};
    log::info(ctx, "revoking the leader lease of the previous process");
    auto revoked = co_await store.revoke(ctx, lease);
    if (!revoked.ok() && revoked.error().code != Code::not_found) co_return std::move(revoked).error();
    co_return Unit{};
}

asio::awaitable<void> LeaderLease::run(Context ctx, store::Store& store, store::Leadership& leadership, Pool& pool) {
    while (file_ >= 0 && (co_await leadership.wait_until_elected(ctx)).ok()) {
        if (const auto record = store.find(controllers_key)) {
            auto write = [file = file_, lease = record->lease]() -> Result<Unit> {
                keep_lease(file, lease);
                return Unit{};
            };
            std::ignore = co_await blocking(pool, std::move(write));
        }
        if (!(co_await leadership.wait_until_deposed(ctx)).ok()) co_return;
    }
}

} // namespace orrery::app
