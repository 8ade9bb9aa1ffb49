#include "app/first_login.h"

#include "core/log.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

namespace orrery::app {

namespace {
std::filesystem::path first_login_file(const std::filesystem::path& folder) { return folder / "first-login"; }
} // namespace

void show_first_login(const Context& ctx, const std::filesystem::path& folder, const std::string& address,
                      const std::string& password) {
    const auto text =
        fmt::format("First login: user admin, one-time password {}\n  orrery --server {} login admin\n", password, address);
    int out = 1;
    const auto file = first_login_file(folder);
    if (::isatty(1) == 0) {
        out = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (out < 0) {
            log::error(ctx,
                       "the first login cannot be written to {}; make it readable, remove the store and start again, or set "
                       "identity.admin_password_file",
                       file.string());
            return;
        }
        log::info(ctx, "made the user admin; its one-time password is in {}", file.string());
    }
    [[maybe_unused]] const auto written = ::write(out, text.data(), text.size());
    if (out != 1) ::close(out);
}

void forget_first_login(const std::filesystem::path& folder) {
    std::error_code ignored;
    std::filesystem::remove(first_login_file(folder), ignored);
}

} // namespace orrery::app
