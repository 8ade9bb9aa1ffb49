#pragma once

#include "core/clock.h"
#include "core/result.h"

#include <boost/json/object.hpp>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace orrery {

/// The declaration of one setting. The table of settings drives the file reader, environment variables (ORRERY_STORE_URL), flags
/// (--store-url), `config show`, `config check` and the commented default file.
struct Setting {
    enum class Type {
        text,
        integer,
        boolean,
        duration,    ///< "90d"
        bytes,       ///< "4MiB"
        path,        ///< in a file: relative to the folder of that file
        list,        ///< in the environment and in flags: "a,b"
        map,         ///< in the environment and in flags: "key=value;key=value", split at the last "="
        secret_file, ///< the path of a file that holds a secret; secrets themselves are never settings
    };
    std::string key; ///< "store.url"
    Type type = Type::text;
    /// In the syntax of environment variables. A path may begin with another setting: "<data.folder>/secrets.key".
    std::string default_value;
    std::string help;
    std::vector<std::string> one_of = {}; ///< allowed values of a text, or of the items of a list
    std::int64_t min = 0;                 ///< of an integer
    std::int64_t max = std::numeric_limits<std::int64_t>::max();

    std::string environment_name() const; ///< "ORRERY_STORE_URL"
    std::string flag_name() const;        ///< "store-url"
};

/// A setting of an earlier version that has no effect any more. A source that still sets it causes a warning, not an error, so that
/// the server starts after an upgrade.
struct RetiredSetting {
    std::string key;
    std::string advice; ///< what replaces it, or why it is not needed: "the plugin is part of the program"

    std::string environment_name() const;
    std::string flag_name() const;
};

/// The sources of a configuration. Precedence: flags, environment, file, defaults.
struct ConfigSources {
    std::filesystem::path file;                                   ///< empty: none
    bool file_may_be_absent = false;                              ///< true for the default path
    std::vector<std::pair<std::string, std::string>> environment; ///< names without the prefix ORRERY_ are ignored
    std::vector<std::string> other_environment; ///< allowed names that are not settings; "ORRERY_TEST_*" allows a prefix
    std::vector<std::pair<std::string, std::string>> flags; ///< "store-url" and its value; lists and maps may be repeated
    std::vector<RetiredSetting> retired;
};

/// The environment of the process, for ConfigSources.
std::vector<std::pair<std::string, std::string>> process_environment();
/// Parses "--store-url X", "--store-url=X", "--server-allow-plaintext" and "-f FILE"/"--config FILE" into `sources`. Other
/// arguments are `invalid`, with the nearest flag as the remedy.
Result<Unit> read_flags(const std::vector<Setting>& settings, const std::vector<std::string>& arguments, ConfigSources& sources);

/// Settings with their values. Immutable after `load`. Reading an unknown key, or a key as a different type, is a bug and ends the
/// process.
class Config {
public:
    /// Errors: `invalid` with all mistakes, one FieldError each, whose path is "orrery.yaml:12", "ORRERY_STORE_URL" or
    /// "--store-url".
    static Result<Config> load(std::vector<Setting> settings, ConfigSources sources);

    const std::string& text(std::string_view key) const;
    std::int64_t integer(std::string_view key) const;
    bool boolean(std::string_view key) const;
    Duration duration(std::string_view key) const;
    std::uint64_t bytes(std::string_view key) const;
    /// The value of a path or secret_file; empty when not set.
    std::filesystem::path path(std::string_view key) const;
    const std::vector<std::string>& list(std::string_view key) const;
    const std::map<std::string, std::string>& map(std::string_view key) const;
    /// Reads the file that a secret_file names and returns its contents without the last newline; nullopt when the setting is
    /// empty. Errors: `invalid` with file and cause.
    Result<std::optional<std::string>> secret(std::string_view key) const;
    /// Whether a source sets it; false when the default applies.
    bool is_set(std::string_view key) const;

    /// The source of the value: "default", "/etc/orrery/orrery.yaml:12", "ORRERY_STORE_URL", "--store-url".
    const std::string& origin(std::string_view key) const;
    const std::vector<Setting>& settings() const { return settings_; }
    /// The value as text for people, with passwords in URLs masked.
    std::string shown(std::string_view key) const;
    /// The same as JSON: {"key", "value", "origin", "secret"?}.
    boost::json::object shown_json(std::string_view key) const;
    /// Accepted but risky configuration, such as a secret file that is readable by all users, and retired settings.
    const std::vector<std::string>& warnings() const { return warnings_; }

    using Value =
        std::variant<std::string, std::int64_t, bool, Duration, std::vector<std::string>, std::map<std::string, std::string>>;

private:
    struct Entry {
        Value value;
        std::string origin;
    };
    const Entry& entry(std::string_view key) const;
    template <class T> const T& get(std::string_view key) const;

    std::vector<Setting> settings_;
    std::map<std::string, Entry, std::less<>> entries_;
    std::vector<std::string> warnings_;
    friend class ConfigReader;
};

/// A configuration file with all settings, their help and their default values, every line commented out.
std::string default_config_file(const std::vector<Setting>& settings);

/// Parses and formats "4MiB", "512KiB", "1GiB", "100" (bytes).
Result<std::uint64_t> parse_bytes(std::string_view text);
std::string bytes_text(std::uint64_t bytes);

} // namespace orrery
