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

/// One setting, declared once. From the table of them come the file's reader, the environment variable ORRERY_STORE_URL, the flag
/// --store-url, `config show`, `config check` and the commented default file.
struct Setting {
    enum class Type {
        text,
        integer,
        boolean,
        duration,    ///< "90d"
        bytes,       ///< "4MiB"
        path,        ///< in a file: relative to that file's folder
        list,        ///< in the environment and in flags: "a,b"
        map,         ///< in the environment and in flags: "key=value;key=value", split at the last "="
        secret_file, ///< the path of a file that holds a secret; secrets themselves are never settings
    };
    std::string key; ///< "store.url"
    Type type = Type::text;
    /// As it would be written in the environment. A path may begin with another setting: "<data.folder>/secrets.key".
    std::string otherwise;
    std::string help;
    std::vector<std::string> one_of = {}; ///< of a text, or of a list's items
    std::int64_t least = 0;               ///< of an integer
    std::int64_t greatest = std::numeric_limits<std::int64_t>::max();

    std::string environment_name() const; ///< "ORRERY_STORE_URL"
    std::string flag_name() const;        ///< "store-url"
};

/// Where a configuration is read from. Precedence: flags, environment, file, defaults.
struct ConfigSources {
    std::filesystem::path file;                                   ///< empty: none
    bool file_may_be_absent = false;                              ///< the place where one is looked for unasked
    std::vector<std::pair<std::string, std::string>> environment; ///< only names that begin with ORRERY_ are looked at
    std::vector<std::string> other_environment; ///< such names that are no settings; "ORRERY_TEST_*" allows all of that beginning
    std::vector<std::pair<std::string, std::string>> flags; ///< "store-url" and its value; lists and maps may be repeated
};

/// The process's environment, for ConfigSources.
std::vector<std::pair<std::string, std::string>> process_environment();
/// Takes "--store-url X", "--store-url=X", "--server-allow-plaintext" and "-f FILE"/"--config FILE" apart, into `sources`.
/// `invalid` for anything else, with the nearest flag as remedy.
Result<Unit> read_flags(const std::vector<Setting>& settings, const std::vector<std::string>& arguments, ConfigSources& sources);

/// Settings with their values. Immutable once loaded. Asking for a key that is not in the table, or as another type, is a bug and
/// ends the process.
class Config {
public:
    /// All that is wrong at once, each with its place: `invalid`, one field an error, whose path is "orrery.yaml:12",
    /// "ORRERY_STORE_URL" or "--store-url".
    static Result<Config> load(std::vector<Setting> settings, ConfigSources sources);

    const std::string& text(std::string_view key) const;
    std::int64_t integer(std::string_view key) const;
    bool boolean(std::string_view key) const;
    Duration duration(std::string_view key) const;
    std::uint64_t bytes(std::string_view key) const;
    /// Of a path or secret_file; empty where not set.
    std::filesystem::path path(std::string_view key) const;
    const std::vector<std::string>& list(std::string_view key) const;
    const std::map<std::string, std::string>& map(std::string_view key) const;
    /// Reads the file a secret_file names: its contents without the last newline. nothing where the setting is empty; `invalid`
    /// names file and reason.
    Result<std::optional<std::string>> secret(std::string_view key) const;
    /// Set anywhere, rather than left at its default?
    bool is_set(std::string_view key) const;

    /// Where a value came from: "default", "/etc/orrery/orrery.yaml:12", "ORRERY_STORE_URL", "--store-url".
    const std::string& origin(std::string_view key) const;
    const std::vector<Setting>& settings() const { return settings_; }
    /// For people: the value as text, with passwords in URLs masked.
    std::string shown(std::string_view key) const;
    /// The same as JSON: {"key", "value", "origin", "secret"?}.
    boost::json::object shown_json(std::string_view key) const;
    /// What is allowed but doubtful, such as a secret that everybody can read.
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

/// A file of all settings with their help, every line commented out: what holds without it.
std::string default_config_file(const std::vector<Setting>& settings);

/// "4MiB", "512KiB", "1GiB", "100" (bytes), and back.
Result<std::uint64_t> parse_bytes(std::string_view text);
std::string bytes_text(std::uint64_t bytes);

} // namespace orrery
