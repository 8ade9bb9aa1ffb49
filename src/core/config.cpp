#include "core/config.h"

#include "core/truncate.h"
#include "core/url_text.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <unistd.h>

extern char** environ;

namespace orrery {

namespace {

constexpr std::size_t max_secret = 64 * 1024;

[[noreturn]] void config_bug(std::string_view key, std::string_view what) {
    fmt::print(stderr, "bug: setting {} {}\n", key, what);
    std::abort();
}

struct ConfigText {
    std::string operator()(const std::string& text) const { return mask_userinfo(text); }
    std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(Duration duration) const { return to_text(duration); }
    std::string operator()(const std::vector<std::string>& list) const {
        return mask_userinfo(fmt::format("{}", fmt::join(list, ",")));
    }
    std::string operator()(const std::map<std::string, std::string>& map) const {
        std::string out;
        for (const auto& [key, value] : map) out += fmt::format("{}{}={}", out.empty() ? "" : ";", key, value);
        return mask_userinfo(out);
    }
};

std::string joined_upper(std::string_view key, std::string_view prefix) {
    std::string out(prefix);
    for (const char c : key) out += c == '.' || c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    return out;
}

std::string joined_by_dashes(std::string key) {
    for (char& c : key)
        if (c == '.' || c == '_') c = '-';
    return key;
}

} // namespace

std::string Setting::environment_name() const { return joined_upper(key, "ORRERY_"); }
std::string Setting::flag_name() const { return joined_by_dashes(key); }
std::string RetiredSetting::environment_name() const { return joined_upper(key, "ORRERY_"); }
std::string RetiredSetting::flag_name() const { return joined_by_dashes(key); }

std::vector<std::pair<std::string, std::string>> process_environment() {
    std::vector<std::pair<std::string, std::string>> out;
    for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
        const std::string_view line = *at;
        const auto equals = line.find('=');
        if (equals != std::string_view::npos) out.emplace_back(line.substr(0, equals), line.substr(equals + 1));
    }
    return out;
}

const Config::Entry& Config::entry(std::string_view key) const {
    const auto found = entries_.find(key);
    if (found == entries_.end()) config_bug(key, "is not in the table");
    return found->second;
}

template <class T> const T& Config::get(std::string_view key) const {
    const auto* value = std::get_if<T>(&entry(key).value);
    if (value == nullptr) config_bug(key, "was asked for as another type");
    return *value;
}

const std::string& Config::text(std::string_view key) const { return get<std::string>(key); }
std::int64_t Config::integer(std::string_view key) const { return get<std::int64_t>(key); }
bool Config::boolean(std::string_view key) const { return get<bool>(key); }
Duration Config::duration(std::string_view key) const { return get<Duration>(key); }
std::uint64_t Config::bytes(std::string_view key) const { return static_cast<std::uint64_t>(get<std::int64_t>(key)); }
std::filesystem::path Config::path(std::string_view key) const { return get<std::string>(key); }
const std::vector<std::string>& Config::list(std::string_view key) const { return get<std::vector<std::string>>(key); }
const std::map<std::string, std::string>& Config::map(std::string_view key) const {
    return get<std::map<std::string, std::string>>(key);
}
bool Config::is_set(std::string_view key) const { return origin(key) != "default"; }
const std::string& Config::origin(std::string_view key) const { return entry(key).origin; }

Result<std::optional<std::string>> Config::secret(std::string_view key) const {
    const auto file = path(key);
    if (file.empty()) return std::optional<std::string>{};
    std::ifstream in(file, std::ios::binary);
    if (!in)
        return Error{Code::invalid,
                     fmt::format("the file {} that {} names cannot be read: {}", file.string(), key, std::strerror(errno))};
    std::string contents(max_secret + 1, '\0');
    in.read(contents.data(), static_cast<std::streamsize>(contents.size()));
    contents.resize(static_cast<std::size_t>(in.gcount()));
    if (contents.size() > max_secret)
        return Error{Code::invalid, fmt::format("the file {} that {} names is longer than 64 KiB", file.string(), key)};
    if (contents.ends_with('\n')) contents.pop_back();
    if (contents.ends_with('\r')) contents.pop_back();
    if (contents.empty()) return Error{Code::invalid, fmt::format("the file {} that {} names is empty", file.string(), key)};
    return std::optional<std::string>{std::move(contents)};
}

std::string Config::shown(std::string_view key) const {
    for (const auto& setting : settings_)
        if (setting.key == key && setting.type == Setting::Type::bytes) return bytes_text(bytes(key));
    return std::visit(ConfigText{}, entry(key).value);
}

boost::json::object Config::shown_json(std::string_view key) const {
    const auto& found = entry(key);
    boost::json::object out;
    out["key"] = key;
    if (const auto* list = std::get_if<std::vector<std::string>>(&found.value))
        for (auto& items = out["value"].emplace_array(); const auto& item : *list) items.emplace_back(mask_userinfo(item));
    else if (const auto* map = std::get_if<std::map<std::string, std::string>>(&found.value)) {
        auto& object = out["value"].emplace_object();
        for (const auto& [name, value] : *map) object[name] = mask_userinfo(value);
    } else if (const auto* flag = std::get_if<bool>(&found.value))
        out["value"] = *flag;
    else if (const auto* number = std::get_if<std::int64_t>(&found.value))
        out["value"] = *number;
    else
        out["value"] = shown(key);
    out["origin"] = found.origin;
    for (const auto& setting : settings_) {
        if (setting.key != key) continue;
        if (setting.type == Setting::Type::bytes) out["value"] = shown(key);
        if (setting.type == Setting::Type::secret_file) out["secret"] = true;
    }
    return out;
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
    const Error bad{Code::invalid, fmt::format("\"{}\" is not a size", truncate(text, 40)),
                    "write it as in 65536, 512KiB, 4MiB or 1GiB"};
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{}) return bad;
    const auto unit = text.substr(static_cast<std::size_t>(end - text.data()));
    int shift = 0;
    if (unit == "KiB")
        shift = 10;
    else if (unit == "MiB")
        shift = 20;
    else if (unit == "GiB")
        shift = 30;
    else if (!unit.empty() && unit != "B")
        return bad;
    if (number > (std::uint64_t{1} << 62U >> static_cast<unsigned>(shift))) return bad;
    return number << static_cast<unsigned>(shift);
}

std::string bytes_text(std::uint64_t bytes) {
    if (bytes > 0 && bytes % (1U << 30U) == 0) return fmt::format("{}GiB", bytes >> 30U);
    if (bytes > 0 && bytes % (1U << 20U) == 0) return fmt::format("{}MiB", bytes >> 20U);
    if (bytes > 0 && bytes % (1U << 10U) == 0) return fmt::format("{}KiB", bytes >> 10U);
    return fmt::format("{}", bytes);
}

namespace {

void append_wrapped(std::string& out, std::string_view text, std::string_view prefix) {
    std::string line(prefix);
    while (!text.empty()) {
        const auto end = std::min(text.find(' '), text.size());
        const auto word = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.size() > prefix.size() && line.size() + 1 + word.size() > 100) {
            out += line + "\n";
            line = prefix;
        }
        if (line.size() > prefix.size()) line += ' ';
        line += word;
    }
    out += line + "\n";
}

/// A value of the default file, as YAML would have it.
std::string default_yaml(const Setting& setting) {
    using enum Setting::Type;
    if (setting.type == list) return fmt::format("[{}]", setting.default_value);
    if (setting.type == map) return "{}";
    if (setting.default_value.empty()) return "\"\"";
    if (setting.type == text && setting.default_value.find_first_of(":#{}[],&*!|>'\"%@`") != std::string::npos)
        return fmt::format("\"{}\"", setting.default_value);
    return setting.default_value;
}

} // namespace

std::string default_config_file(const std::vector<Setting>& settings) {
    std::string out =
        "# Configuration of orrery. Every setting is here with its default, commented out; remove the \"#\" (not the\n"
        "# spaces after it) of a setting and of the sections above it to change it. A flag (--store-url) goes before\n"
        "# an environment variable (ORRERY_STORE_URL), and that before this file. \"orrery config check\" reads it.\n";
    std::vector<std::string> open; // the sections we are in
    for (const auto& setting : settings) {
        std::vector<std::string> parts;
        std::string_view rest = setting.key;
        for (auto dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
            parts.emplace_back(rest.substr(0, dot));
            rest.remove_prefix(dot + 1);
        }
        std::size_t common = 0;
        while (common < parts.size() && common < open.size() && parts[common] == open[common]) ++common;
        if (common == 0) out += "\n";
        for (std::size_t i = common; i < parts.size(); ++i) out += fmt::format("#{:{}}{}:\n", "", 2 * i, parts[i]);
        open = parts;
        const std::string indent(2 * parts.size(), ' ');
        std::string help = setting.help;
        if (!setting.one_of.empty()) help += fmt::format(" One of: {}.", fmt::join(setting.one_of, ", "));
        append_wrapped(out, help, fmt::format("#{}# ", indent));
        auto written = setting;
        if (setting.default_value.starts_with('<')) { // a default that begins with another's
            const auto end = setting.default_value.find('>');
            for (const auto& other : settings)
                if (other.key == setting.default_value.substr(1, end - 1))
                    written.default_value = other.default_value + setting.default_value.substr(end + 1);
        }
        out += fmt::format("#{}{}: {}\n", indent, rest, default_yaml(written));
    }
    return out;
}

} // namespace orrery
