#pragma once

#include "core/config.h"
#include "dns/rate_limit.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The settings of `orrery server`: the table, and the checks that concern several settings.
namespace orrery::app {

/// The table of all settings (settings_table.cpp).
std::vector<Setting> server_settings();

/// Settings of earlier versions that still occur in configuration files and have no effect (settings_table.cpp).
std::vector<RetiredSetting> retired_settings();

/// Names of ORRERY_ variables that belong to the command line and to tests, not to the server.
std::vector<std::string> other_environment();

/// The default path of the configuration file (`-f`, ORRERY_CONFIG_FILE).
inline constexpr std::string_view default_config_path = "/etc/orrery/orrery.yaml";

/// Loads the configuration of `orrery server` and `orrery config` from file, environment and flags, and checks it. `arguments` are
/// the flags after the name of the command.
Result<Config> load_config(const std::vector<std::string>& arguments, std::vector<std::pair<std::string, std::string>> environment);

/// Checks the configuration as a whole (settings_check.cpp): listeners beyond loopback without TLS, incomplete key pairs, missing
/// files, directories without a search base, malformed addresses. The error lists all problems.
Result<Unit> check_config(const Config& config);

/// Warnings about valid but risky combinations of settings, for the log at start.
std::vector<std::string> config_warnings(const Config& config);

struct ListenAddress {
    std::string host; ///< an IP address, IPv6 without brackets
    std::uint16_t port = 0;
    bool is_loopback() const;
};
/// "127.0.0.1:8421", "[::1]:8421", "*:8421" or ":8421" (all addresses), "localhost:8421".
Result<ListenAddress> parse_listen(std::string_view text);

/// The rate limit of the DNS server whose address is in the setting `listen`. The default of dns.rate_limit does not apply to a
/// server on loopback, nor to clients on loopback.
dns::RateLimit::Options dns_rate_limit(const Config& config, std::string_view listen);

/// The URL of a listener, "https://[::1]:8421", with the port that was bound.
std::string listen_url(const Config& config, const ListenAddress& address, std::uint16_t port);

/// server.name; if it is empty, the host name.
std::string server_name(const Config& config);

} // namespace orrery::app
