#pragma once

#include "core/config.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The settings of `orrery server`: the table, and what no single setting can say by itself.
namespace orrery::app {

std::vector<Setting> server_settings();

/// ORRERY_ names that belong to the command line and to tests, not to the server.
std::vector<std::string> other_environment();

/// Where the configuration file is looked for unless one is named (`-f`, ORRERY_CONFIG_FILE).
inline constexpr std::string_view default_config_path = "/etc/orrery/orrery.yaml";

/// File, environment and flags as `orrery server` and `orrery config` take them. `arguments` are the flags after the command's
/// name. Checked as a whole, see below.
Result<Config> load_config(const std::vector<std::string>& arguments, std::vector<std::pair<std::string, std::string>> environment);

/// What concerns several settings at once, all errors together: listening beyond loopback without TLS, half a key pair, files that
/// are not there, a directory without its base, an address that is none.
Result<Unit> check_config(const Config& config);

struct ListenAddress {
    std::string host; ///< an IP address, IPv6 without brackets
    std::uint16_t port = 0;
    bool is_loopback() const;
};
/// "127.0.0.1:8421", "[::1]:8421", "*:8421" or ":8421" (all addresses), "localhost:8421".
Result<ListenAddress> parse_listen(std::string_view text);

/// server.name, or the machine's host name where that is empty.
std::string server_name(const Config& config);

} // namespace orrery::app
