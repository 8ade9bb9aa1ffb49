#include "cli/commands.h"
#include "cli/table.h"
#include "core/text.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <ostream>

/// config and version: commands that need no server.
namespace orrery::cli {

namespace {

/// Removes "-o X" from the flags; the others are flags of the server.
Result<std::string> remove_output_flag(Invocation& invocation, std::vector<std::string>& flags, std::string_view default_value) {
    std::string form(default_value);
    for (auto at = flags.begin(); at != flags.end();) {
        if (*at == "-o" || *at == "--output") {
            if (at + 1 == flags.end())
                return invocation.usage_error(fmt::format("{} needs a value", *at), "give table, yaml or json");
            form = *(at + 1);
            at = flags.erase(at, at + 2);
        } else if (at->starts_with("--output=")) {
            form = at->substr(9);
            at = flags.erase(at);
        } else
            ++at;
    }
    if (form != "table" && form != "yaml" && form != "json")
        return invocation.usage_error(fmt::format("unknown output format \"{}\"", form), "give table, yaml or json");
    return form;
}

Result<Config> load(Invocation& invocation, const std::vector<std::string>& flags) {
    if (!invocation.application.load_config) return Error{Code::unsupported, "this program has no configuration"};
    return invocation.application.load_config(flags, invocation.streams.environment);
}

void put_nested(json::object& into, std::string_view key, json::value value) {
    const auto dot = key.find('.');
    if (dot == std::string_view::npos) {
        into[key] = std::move(value);
        return;
    }
    auto& section = into[key.substr(0, dot)];
    if (!section.is_object()) section = json::object{};
    put_nested(section.get_object(), key.substr(dot + 1), std::move(value));
}

} // namespace

Result<int> run_config_check(Invocation& invocation) {
    TRY(const auto config, load(invocation, invocation.raw_arguments));
    for (const auto& warning : config.warnings()) invocation.streams.err << "warning: " << warning << '\n';
    const auto set = std::count_if(config.settings().begin(), config.settings().end(),
                                   [&](const Setting& setting) { return config.is_set(setting.key); });
    invocation.streams.out << fmt::format("the configuration is valid: {} of {} settings are set, the others have their defaults\n",
                                          set, config.settings().size());
    return exit_code::ok;
}

Result<int> run_config_show(Invocation& invocation) {
    auto flags = invocation.raw_arguments;
    TRY(const auto form, remove_output_flag(invocation, flags, "table"));
    TRY(const auto config, load(invocation, flags));
    auto& streams = invocation.streams;
    if (form == "json") {
        json::array items;
        for (const auto& setting : config.settings()) items.push_back(config.shown_json(setting.key));
        streams.out << to_pretty_json(json::object{{"settings", std::move(items)}}) << '\n';
    } else if (form == "yaml") {
        json::object nested;
        for (const auto& setting : config.settings()) {
            auto shown = config.shown_json(setting.key);
            // As in the file: durations and sizes with units.
            put_nested(nested, setting.key, std::move(shown["value"]));
        }
        streams.out << to_yaml(nested);
    } else {
        Table table({"SETTING", "VALUE", "FROM"});
        for (const auto& setting : config.settings()) {
            auto value = config.shown(setting.key);
            if (setting.type == Setting::Type::secret_file && !value.empty()) value += " (contents not shown)";
            const bool set = config.is_set(setting.key);
            table.add(
                {{setting.key}, {value.empty() ? "-" : value}, {config.origin(setting.key), set ? Style::green : Style::dim}});
        }
        streams.out << table.render(streams.width, streams.colour());
    }
    for (const auto& warning : config.warnings()) streams.err << "warning: " << warning << '\n';
    return exit_code::ok;
}

Result<int> run_config_default(Invocation& invocation) {
    invocation.streams.out << default_config_file(invocation.application.settings);
    return exit_code::ok;
}

Result<int> run_version(Invocation& invocation) {
    const auto& application = invocation.application;
    if (invocation.text("output", "table") == "json") {
        invocation.streams.out << to_pretty_json(json::object{{"version", application.version}, {"commit", application.commit}})
                               << '\n';
        return exit_code::ok;
    }
    invocation.streams.out << "orrery " << application.version;
    if (!application.commit.empty()) invocation.streams.out << " (" << application.commit << ')';
    invocation.streams.out << '\n';
    return exit_code::ok;
}

} // namespace orrery::cli
