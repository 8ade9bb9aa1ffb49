#include "core/config.h"
#include "core/nearest.h"
#include "core/truncate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <sys/stat.h>

namespace orrery {

namespace {

constexpr std::size_t max_file = 1 << 20;

std::string_view nearest_of(std::string_view word, const std::set<std::string>& known) {
    const std::vector<std::string_view> candidates(known.begin(), known.end());
    return nearest(word, candidates.data(), candidates.data() + candidates.size());
}

std::string suggestion(std::string_view word, const std::set<std::string>& known, std::string_view prefix = "") {
    const auto near = nearest_of(word, known);
    return near.empty() ? std::string{} : fmt::format("; did you mean {}{}?", prefix, near);
}

std::string_view wanted(Setting::Type type) {
    using enum Setting::Type;
    switch (type) {
    case text: return "a text";
    case integer: return "a whole number";
    case boolean: return "true or false";
    case duration: return "a duration such as 30s, 15m or 90d";
    case bytes: return "a size such as 512KiB or 4MiB";
    case path: return "a path";
    case list: return "a list";
    case map: return "a map of names to texts";
    case secret_file: return "the path of a file that holds the secret";
    }
    return "";
}

std::vector<std::string> split_text(std::string_view text, char separator) {
    std::vector<std::string> out;
    while (!text.empty()) {
        const auto end = std::min(text.find(separator), text.size());
        auto part = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        while (part.starts_with(' ')) part.remove_prefix(1);
        while (part.ends_with(' ')) part.remove_suffix(1);
        if (!part.empty()) out.emplace_back(part);
    }
    return out;
}

Error not_one_of(const Setting& setting, std::string_view text) {
    const std::set<std::string> known(setting.one_of.begin(), setting.one_of.end());
    return {Code::invalid,
            fmt::format("must be one of {}, not \"{}\"{}", fmt::join(setting.one_of, ", "), text, suggestion(text, known))};
}

/// Reads a value as the environment and flags have it, and scalars as a file has them.
Result<Config::Value> read_value(const Setting& setting, std::string_view text) {
    using Type = Setting::Type;
    const Error wrong{Code::invalid, fmt::format("must be {}, not \"{}\"", wanted(setting.type), truncate(text, 80))};
    switch (setting.type) {
    case Type::text:
    case Type::path:
    case Type::secret_file:
        if (text.find('\n') != std::string_view::npos || text.find('\0') != std::string_view::npos)
            return Error{Code::invalid, "must be a single line"};
        if (!setting.one_of.empty() && std::find(setting.one_of.begin(), setting.one_of.end(), text) == setting.one_of.end())
            return not_one_of(setting, text);
        return Config::Value{std::string(text)};
    case Type::integer: {
        std::int64_t number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (error != std::errc{} || end != text.data() + text.size()) return wrong;
        if (number < setting.min || number > setting.max)
            return Error{Code::invalid, setting.max == std::numeric_limits<std::int64_t>::max()
                                            ? fmt::format("must be at least {}, not {}", setting.min, number)
                                            : fmt::format("must be between {} and {}, not {}", setting.min, setting.max, number)};
        return Config::Value{number};
    }
    case Type::boolean:
        if (text != "true" && text != "false") return wrong;
        return Config::Value{text == "true"};
    case Type::duration: {
        const auto parsed = parse_duration(text);
        if (!parsed.ok()) return wrong;
        return Config::Value{*parsed};
    }
    case Type::bytes: {
        const auto parsed = parse_bytes(text);
        if (!parsed.ok()) return wrong;
        return Config::Value{static_cast<std::int64_t>(*parsed)};
    }
    case Type::list: {
        auto items = split_text(text, ',');
        for (const auto& item : items)
            if (!setting.one_of.empty() && std::find(setting.one_of.begin(), setting.one_of.end(), item) == setting.one_of.end())
                return not_one_of(setting, item);
        return Config::Value{std::move(items)};
    }
    case Type::map: {
        std::map<std::string, std::string> out;
        for (const auto& pair : split_text(text, ';')) {
            const auto equals = pair.rfind('='); // names may hold "=": cn=admins,dc=example=admin
            if (equals == std::string::npos || equals == 0)
                return Error{Code::invalid, fmt::format("\"{}\" is not name=value", pair)};
            out[pair.substr(0, equals)] = pair.substr(equals + 1);
        }
        return Config::Value{std::move(out)};
    }
    }
    return wrong;
}

} // namespace

/// Fills a Config from its sources, collecting what is wrong.
class ConfigReader {
public:
    ConfigReader(Config& config, const ConfigSources& sources) : config_(config), sources_(sources) {
        for (const auto& setting : config.settings_) {
            by_key_[setting.key] = &setting;
            by_environment_[setting.environment_name()] = &setting;
            by_flag_[setting.flag_name()] = &setting;
            keys_.insert(setting.key);
            for (auto dot = setting.key.find('.'); dot != std::string::npos; dot = setting.key.find('.', dot + 1))
                sections_.insert(setting.key.substr(0, dot));
        }
    }

    std::vector<FieldError> read() {
        for (const auto& setting : config_.settings_) take(setting, "default", setting.default_value);
        if (!sources_.file.empty()) read_file();
        read_environment();
        read_flag_values();
        expand_defaults();
        check_secret_files();
        return std::move(errors_);
    }

private:
    void fail(std::string where, std::string what) { errors_.push_back({std::move(where), std::move(what)}); }

    void take(const Setting& setting, const std::string& origin, std::string_view text) {
        auto value = read_value(setting, text);
        if (!value.ok()) return fail(origin, fmt::format("{} {}", setting.key, value.error().message));
        config_.entries_[setting.key] = {std::move(value).value(), origin};
    }

    std::string place(const YAML::Mark& mark) const { return fmt::format("{}:{}", sources_.file.string(), mark.line + 1); }

    void read_file() {
        std::ifstream in(sources_.file, std::ios::binary);
        std::error_code ignored;
        if (!in || std::filesystem::is_directory(sources_.file, ignored)) {
            const int reason = in ? EISDIR : errno;
            if (reason == ENOENT && sources_.file_may_be_absent) return;
            return fail(sources_.file.string(), fmt::format("cannot be read: {}", std::strerror(reason)));
        }
        std::string text(max_file + 1, '\0');
        in.read(text.data(), static_cast<std::streamsize>(text.size()));
        text.resize(static_cast<std::size_t>(in.gcount()));
        if (text.size() > max_file) return fail(sources_.file.string(), "is longer than 1 MiB");
        try {
            const auto documents = YAML::LoadAll(text);
            if (documents.size() > 1) fail(place(documents[1].Mark()), "begins a second document; a configuration is one");
            if (documents.empty() || documents[0].IsNull()) return;
            if (!documents[0].IsMap()) return fail(place(documents[0].Mark()), "must be a map of settings");
            read_section(documents[0], "", 0);
        } catch (const YAML::Exception& error) {
            fail(place(error.mark), fmt::format("is not YAML: {}", error.msg));
        }
    }

    void read_section(const YAML::Node& node, const std::string& prefix, int depth) {
        std::set<std::string> seen;
        for (const auto& pair : node) {
            const auto where = place(pair.first.Mark());
            if (!pair.first.IsScalar()) {
                fail(where, "a key must be a text");
                continue;
            }
            const auto key = prefix.empty() ? pair.first.Scalar() : prefix + "." + pair.first.Scalar();
            if (!seen.insert(key).second)
                fail(where, fmt::format("{} is there twice", key));
            else if (const auto found = by_key_.find(key); found != by_key_.end())
                read_setting(*found->second, pair.second, where);
            else if (const auto* retired = retired_setting([&](const auto& one) { return one.key == key; }))
                warn_retired(where, *retired);
            else if (!sections_.contains(key))
                fail(where, unknown_key(key));
            else if (pair.second.IsMap() && depth < 8)
                read_section(pair.second, key, depth + 1);
            else if (!pair.second.IsNull())
                fail(where, fmt::format("{} is a section: it holds further settings, not a value", key));
        }
    }

    template <class Predicate> const RetiredSetting* retired_setting(Predicate is_meant) const {
        const auto found = std::find_if(sources_.retired.begin(), sources_.retired.end(), is_meant);
        return found == sources_.retired.end() ? nullptr : &*found;
    }

    void warn_retired(std::string_view where, const RetiredSetting& retired) {
        config_.warnings_.push_back(
            fmt::format("{}: the setting {} has no effect and can be removed: {}", where, retired.key, retired.advice));
    }

    std::string unknown_key(const std::string& key) const {
        if (by_key_.contains(key + "_file"))
            return fmt::format(
                "{} is not a setting: secrets are not written here; write it to a file of its own and name that with {}_file", key,
                key);
        auto known = keys_;
        known.insert(sections_.begin(), sections_.end());
        return fmt::format("{} is not a setting{}", key, suggestion(key, known));
    }

    void read_setting(const Setting& setting, const YAML::Node& node, const std::string& where) {
        using Type = Setting::Type;
        if (node.IsNull())
            return fail(where, fmt::format("{} has no value; remove the line or give it {}", setting.key, wanted(setting.type)));
        if (setting.type == Type::map) return read_map(setting, node, where);
        if (setting.type == Type::list) return read_list(setting, node, where);
        if (!node.IsScalar())
            return fail(where,
                        fmt::format("{} must be {}, not a {}", setting.key, wanted(setting.type), node.IsMap() ? "map" : "list"));
        std::string text = node.Scalar();
        const bool is_path = setting.type == Type::path || setting.type == Type::secret_file;
        if (is_path && !text.empty() && text.front() != '/')
            text = (std::filesystem::absolute(sources_.file).parent_path() / text).lexically_normal().string();
        take(setting, where, text);
    }

    void read_list(const Setting& setting, const YAML::Node& node, const std::string& where) {
        if (!node.IsSequence()) return fail(where, fmt::format("{} must be a list, as in [one, two]", setting.key));
        std::vector<std::string> items;
        for (const auto& item : node) {
            if (!item.IsScalar()) return fail(place(item.Mark()), fmt::format("{} must be a list of texts", setting.key));
            if (!setting.one_of.empty() &&
                std::find(setting.one_of.begin(), setting.one_of.end(), item.Scalar()) == setting.one_of.end())
                return fail(place(item.Mark()), fmt::format("{} {}", setting.key, not_one_of(setting, item.Scalar()).message));
            items.push_back(item.Scalar());
        }
        config_.entries_[setting.key] = {std::move(items), where};
    }

    void read_map(const Setting& setting, const YAML::Node& node, const std::string& where) {
        if (!node.IsMap()) return fail(where, fmt::format("{} must be {}", setting.key, wanted(setting.type)));
        std::map<std::string, std::string> out;
        for (const auto& pair : node) {
            if (!pair.first.IsScalar() || !pair.second.IsScalar())
                return fail(place(pair.first.Mark()), fmt::format("{} must be {}", setting.key, wanted(setting.type)));
            if (!out.emplace(pair.first.Scalar(), pair.second.Scalar()).second)
                return fail(place(pair.first.Mark()), fmt::format("{} has {} twice", setting.key, pair.first.Scalar()));
        }
        config_.entries_[setting.key] = {std::move(out), where};
    }

    bool is_other_environment(std::string_view name) const {
        return std::any_of(sources_.other_environment.begin(), sources_.other_environment.end(), [&](std::string_view other) {
            return other.ends_with('*') ? name.starts_with(other.substr(0, other.size() - 1)) : name == other;
        });
    }

    void read_environment() {
        for (const auto& [name, value] : sources_.environment) {
            if (!name.starts_with("ORRERY_")) continue;
            if (const auto found = by_environment_.find(name); found != by_environment_.end()) {
                take(*found->second, name, value);
            } else if (const auto* retired = retired_setting([&](const auto& one) { return one.environment_name() == name; })) {
                warn_retired(name, *retired);
            } else if (!is_other_environment(name)) {
                std::set<std::string> known;
                for (const auto& [known_name, setting] : by_environment_) known.insert(known_name);
                const bool secret = by_environment_.contains(name + "_FILE");
                fail(name, secret ? fmt::format("is not a setting: secrets are not taken from the environment; name a file that "
                                                "holds it with {}_FILE",
                                                name)
                                  : fmt::format("is not a setting{}", suggestion(name, known)));
            }
        }
    }

    void read_flag_values() {
        std::set<std::string> repeated;
        std::map<std::string, std::string> joined;
        for (const auto& [flag, value] : sources_.flags) {
            const auto found = by_flag_.find(flag);
            if (found == by_flag_.end()) {
                if (const auto* retired = retired_setting([&](const auto& one) { return one.flag_name() == flag; }))
                    warn_retired("--" + flag, *retired);
                else
                    fail("--" + flag, "is not a setting");
                continue;
            }
            const auto type = found->second->type;
            auto& text = joined[flag];
            if (!repeated.insert(flag).second && (type == Setting::Type::list || type == Setting::Type::map))
                text += type == Setting::Type::list ? ',' : ';';
            else
                text.clear();
            text += value;
        }
        for (const auto& [flag, text] : joined) take(*by_flag_.at(flag), "--" + flag, text);
    }

    void expand_defaults() {
        for (auto& [key, entry] : config_.entries_) {
            auto* text = std::get_if<std::string>(&entry.value);
            if (entry.origin != "default" || text == nullptr || !text->starts_with('<')) continue;
            const auto end = text->find('>');
            const auto other = config_.entries_.find(text->substr(1, end - 1));
            if (other == config_.entries_.end()) continue;
            *text = std::get<std::string>(other->second.value) + text->substr(end + 1);
        }
    }

    void check_secret_files() {
        for (const auto& setting : config_.settings_) {
            if (setting.type != Setting::Type::secret_file || !config_.entries_.contains(setting.key)) continue;
            const auto file = config_.path(setting.key);
            struct stat about{};
            if (!file.empty() && ::stat(file.c_str(), &about) == 0 && (about.st_mode & S_IROTH) != 0)
                config_.warnings_.push_back(
                    fmt::format("{} (setting {}) is readable by all users of this host", file.string(), setting.key));
        }
    }

    Config& config_;
    const ConfigSources& sources_;
    std::map<std::string, const Setting*> by_key_, by_environment_, by_flag_;
    std::set<std::string> keys_, sections_;
    std::vector<FieldError> errors_;
};

Result<Config> Config::load(std::vector<Setting> settings, ConfigSources sources) {
    Config config;
    config.settings_ = std::move(settings);
    auto errors = ConfigReader(config, sources).read();
    if (errors.empty()) return config;
    Error error{Code::invalid, fmt::format("the configuration has {} error{}", errors.size(), errors.size() == 1 ? "" : "s"),
                "\"orrery config default\" prints every setting with its meaning"};
    error.fields = std::move(errors);
    return error;
}

Result<Unit> read_flags(const std::vector<Setting>& settings, const std::vector<std::string>& arguments, ConfigSources& sources) {
    std::map<std::string, const Setting*> by_flag;
    std::set<std::string> known = {"config", "help"};
    for (const auto& setting : settings) {
        by_flag[setting.flag_name()] = &setting;
        known.insert(setting.flag_name());
    }
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const auto& argument = arguments[i];
        const bool short_file = argument == "-f";
        if (!argument.starts_with("--") && !short_file)
            return Error{
                Code::invalid, fmt::format("\"{}\" is not a flag", argument),
                "a file is given as --config FILE, a setting as --store-url URL; \"orrery config default\" prints every setting"};
        const auto equals = short_file ? std::string::npos : argument.find('=');
        const auto flag =
            short_file ? std::string("config") : argument.substr(2, equals == std::string::npos ? equals : equals - 2);
        const auto found = by_flag.find(flag);
        const bool is_retired = std::any_of(sources.retired.begin(), sources.retired.end(),
                                            [&](const RetiredSetting& retired) { return retired.flag_name() == flag; });
        if (flag != "config" && found == by_flag.end() && !is_retired) {
            const bool secret = by_flag.contains(flag + "-file");
            const auto near = secret ? flag + "-file" : std::string(nearest_of(flag, known));
            return Error{Code::invalid, fmt::format("there is no flag --{}", flag),
                         secret ? fmt::format("secrets are not given as flags, where all users of the host see them; name a file "
                                              "that holds it with --{}",
                                              near)
                         : near.empty() ? std::string("\"orrery config default\" prints every setting")
                                        : fmt::format("did you mean --{}?", near)};
        }
        std::string value;
        if (equals != std::string::npos)
            value = argument.substr(equals + 1);
        else if (found != by_flag.end() && found->second->type == Setting::Type::boolean)
            value = "true";
        else if (++i < arguments.size())
            value = arguments[i];
        else
            return Error{Code::invalid, fmt::format("{} needs a value", argument)};
        if (flag == "config") {
            sources.file = value;
            sources.file_may_be_absent = false;
        } else {
            sources.flags.emplace_back(flag, value);
        }
    }
    return Unit{};
}

} // namespace orrery
