#include "app/first_login.h"

#include "app/settings.h"
#include "core/log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace orrery::app {

namespace {

std::filesystem::path first_login_file(const std::filesystem::path& folder) { return folder / "first-login"; }

std::string first_login_text(const std::string& url, const std::string& password) {
    return fmt::format("First login: user admin, one-time password {}\n  orrery --server {} login admin\n", password, url);
}

Result<Unit> write_first_login(const std::filesystem::path& file, const std::string& text) {
    const auto failed = [&] {
        return Error{Code::unavailable, fmt::format("cannot write the first login to {}: {}", file.string(), std::strerror(errno)),
                     "make the folder writable, or choose the password with identity.admin_password_file"};
    };
    const int out = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out < 0) return failed();
    const bool written = ::write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(out) == 0;
    auto error = written ? Result<Unit>(Unit{}) : Result<Unit>(failed());
    ::close(out);
    return error;
}

} // namespace

Task<std::optional<std::string>> create_first_admin(Context ctx, identity::Identity& identity, const Config& config) {
    const auto folder = config.path("data.folder");
    const auto file = first_login_file(folder);
    CO_TRY(const auto given, config.secret("identity.admin_password_file"));
    CO_TRY(const auto address, parse_listen(config.list("server.listen").front()));
    const auto url = listen_url(config, address, address.port);
    bool kept = false;
    CO_TRY(auto made, co_await identity.ensure_admin(ctx, given, [&](const std::string& one_time) -> Result<Unit> {
        TRY(std::ignore, write_first_login(file, first_login_text(url, one_time)));
        kept = true;
        return Unit{};
    }));
    if (kept && !made) remove_first_login(folder); // another server created the user first
    if (made)
        log::info(ctx, "user admin created; its one-time password is in a file: file={}", file.string());
    else if (std::error_code ignored; std::filesystem::exists(file, ignored))
        log::info(ctx, "user admin has not logged in yet; its one-time password is in a file: file={}", file.string());
    co_return made;
}

void show_first_login(const std::string& url, const std::string& password) {
    if (::isatty(1) == 0) return;
    const auto text = first_login_text(url, password);
    [[maybe_unused]] const auto written = ::write(1, text.data(), text.size());
}

void remove_first_login(const std::filesystem::path& folder) {
    std::error_code ignored;
    std::filesystem::remove(first_login_file(folder), ignored);
}

asio::awaitable<void> warn_of_ignored_password_file(Context ctx, identity::Identity& identity, const Config& config) {
    const auto given = config.secret("identity.admin_password_file");
    if (!given.ok() || !*given) co_return;
    const auto same = co_await identity.verify_user_password(ctx, "admin", **given);
    if (!same.ok() || *same) co_return;
    log::warn(ctx,
              "identity.admin_password_file has no effect: it is read at the first start only, and the password of admin differs "
              "from it; remove "
              "the setting, or set the password with \"orrery user password admin\" or, with the server stopped, \"orrery store "
              "reset-admin\"");
}

} // namespace orrery::app
