#include "app/settings.h"

#include <fmt/format.h>

#include <array>
#include <unistd.h>

namespace orrery::app {

std::vector<std::string> other_environment() {
    return {"ORRERY_SERVER", "ORRERY_CA",          "ORRERY_TOKEN",  "ORRERY_TOKEN_FILE",
            "ORRERY_CONFIG", "ORRERY_CONFIG_FILE", "ORRERY_TEST_*", "ORRERY_LAB_*"};
}

Result<Config> load_config(const std::vector<std::string>& arguments,
                           std::vector<std::pair<std::string, std::string>> environment) {
    ConfigSources sources;
    sources.file = default_config_path;
    sources.file_may_be_absent = true;
    for (const auto& [name, value] : environment) {
        if (name != "ORRERY_CONFIG_FILE" || value.empty()) continue;
        sources.file = value;
        sources.file_may_be_absent = false;
    }
    sources.environment = std::move(environment);
    sources.other_environment = other_environment();
    sources.retired = retired_settings();
    TRY(std::ignore, read_flags(server_settings(), arguments, sources));
    TRY(auto config, Config::load(server_settings(), std::move(sources)));
    TRY(std::ignore, check_config(config));
    return config;
}

std::vector<std::string> config_warnings(const Config& config) {
    std::vector<std::string> out;
    if (config.text("identity.ldap.url").empty()) return out;
    for (const auto& [group, role] : config.map("identity.ldap.roles"))
        if (group.find('=') == std::string::npos)
            out.push_back(
                fmt::format("identity.ldap.roles gives the role {} to every group named \"{}\" anywhere in the directory; use the "
                            "DN, for example cn={},ou=groups,dc=example,dc=org",
                            role, group, group));
    return out;
}

std::string server_name(const Config& config) {
    if (!config.text("server.name").empty()) return config.text("server.name");
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "orrery";
    return name.data();
}

} // namespace orrery::app
