#include "cli/command_line.h"

#include "core/nearest.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace orrery::cli {

namespace {

const Command* command_at(std::string_view path) {
    for (const auto& command : all_commands())
        if (command.path == path) return &command;
    return nullptr;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
    const std::vector<std::string_view> candidates(known.begin(), known.end());
    return std::string(nearest(word, candidates.data(), candidates.data() + candidates.size()));
}

bool takes_value(const std::string& flag) {
    for (const auto& option : common_options())
        if (!option.value.empty() && ("," + option.names + ",").find("," + flag + ",") != std::string::npos) return true;
    return false;
}

Error no_such_command(const std::string& group, const std::string& word, const Application& application) {
    std::vector<std::string> known = top_level_names(application);
    if (!group.empty()) {
        known.clear();
        for (const auto& command : all_commands())
            if (command.path.starts_with(group + " ")) known.push_back(command.path.substr(group.size() + 1));
    }
    const auto near = nearest_word(word, known);
    const auto lead = group.empty() ? std::string("orrery") : "orrery " + group;
    return {Code::invalid,
            group.empty() ? fmt::format("there is no command \"{}\"", word) : fmt::format("{} has no command \"{}\"", lead, word),
            near.empty() ? fmt::format("\"{} --help\" lists all commands", lead)
                         : fmt::format("did you mean \"{} {}\"?", lead, near)};
}

std::vector<std::string> option_names(const Command& command) {
    std::vector<std::string> out = {"--help"};
    for (const auto* options : {&command.options, &common_options()})
        for (const auto& option : *options) {
            std::string_view names = option.names;
            for (auto comma = names.find(','); comma != std::string_view::npos; comma = names.find(',')) {
                out.emplace_back(names.substr(0, comma));
                names.remove_prefix(comma + 1);
            }
            out.emplace_back(names);
        }
    return out;
}

Error usage_error(const Command& command, std::string message, std::string remedy = {}) {
    if (remedy.empty()) remedy = fmt::format("usage: {}; see \"orrery {} --help\"", usage_line(command), command.path);
    return {Code::invalid, std::move(message), std::move(remedy)};
}

/// A command without arguments that reads a file or a URL gets it by an option; a user may give it as an argument.
Error unexpected_argument(const Command& command, const std::string& argument) {
    std::string remedy;
    for (const auto& option : command.options)
        if (command.arguments.empty() && (option.key() == "file" || option.key() == "to"))
            remedy = fmt::format("did you mean \"orrery {} {} {}\"?", command.path, option.names.substr(0, option.names.find(',')),
                                 argument);
    return usage_error(command, fmt::format("unexpected argument \"{}\"", argument), std::move(remedy));
}

Error unknown_extra(const Command& command, const std::string& extra) {
    if (!extra.starts_with('-')) return unexpected_argument(command, extra);
    const auto name = extra.substr(0, extra.find('='));
    // All options of one letter are similar to each other.
    const auto near = name.size() > 2 ? nearest_word(name, option_names(command)) : std::string();
    return usage_error(command, fmt::format("orrery {} has no option {}", command.path, name),
                       near.empty() ? std::string{} : fmt::format("did you mean {}?", near));
}

/// CLI11 says "--file: 1 required TEXT missing" and "--output: At Most 1 required but received 2".
std::string mismatch_text(std::string_view text) {
    const auto option = text.substr(0, text.find(':'));
    if (text.ends_with("missing")) return fmt::format("{} needs a value", option);
    if (text.find("At Most 1") != std::string_view::npos) return fmt::format("{} is given more than once", option);
    return std::string(text);
}

/// Assigns positional values to the arguments of the command.
Result<Unit> assign_positionals(const Command& command, std::vector<std::string> given,
                                std::map<std::string, std::vector<std::string>, std::less<>>& out) {
    using enum Argument::Count;
    std::size_t used = 0;
    for (const auto& argument : command.arguments) {
        const auto left = given.size() - used;
        if (left == 0 && (argument.count == one || argument.count == some))
            return usage_error(command, fmt::format("orrery {} needs {}: {}", command.path, argument.name, argument.help));
        const auto taken = argument.count == some || argument.count == any ? left : std::min<std::size_t>(left, 1);
        for (const auto end = used + taken; used < end; ++used) out[argument.name].push_back(std::move(given[used]));
    }
    if (used < given.size()) return unexpected_argument(command, given[used]);
    return Unit{};
}

Result<Unit> check_choices(const Command& command, const std::string& what, const std::vector<std::string>& choices,
                           const std::vector<std::string>& given) {
    if (choices.empty()) return Unit{};
    for (const auto& value : given) {
        if (std::find(choices.begin(), choices.end(), value) != choices.end()) continue;
        const auto near = nearest_word(value, choices);
        return usage_error(command, fmt::format("{} must be one of {}, not \"{}\"", what, fmt::join(choices, ", "), value),
                           near.empty() ? std::string{} : fmt::format("did you mean {}?", near));
    }
    return Unit{};
}

} // namespace

bool is_group(std::string_view path) {
    return std::any_of(all_commands().begin(), all_commands().end(),
                       [&](const Command& command) { return command.path.starts_with(fmt::format("{} ", path)); });
}

std::vector<std::string> top_level_names(const Application& application) {
    std::vector<std::string> out;
    for (const auto& command : all_commands()) {
        const auto word = command.path.substr(0, command.path.find(' '));
        if (!command.hidden && std::find(out.begin(), out.end(), word) == out.end()) out.push_back(word);
    }
    for (const auto& [name, summary] : application.own_commands) out.push_back(name);
    return out;
}

Result<Located> locate_command(const std::vector<std::string>& args, const Application& application) {
    Located located;
    std::string path;
    std::size_t i = 0;
    for (; i < args.size(); ++i) {
        const auto& word = args[i];
        if (word == "-h" || word == "--help") {
            located.help = true;
        } else if (word.size() > 1 && word.front() == '-') {
            located.arguments.push_back(word);
            if (takes_value(word) && i + 1 < args.size()) located.arguments.push_back(args[++i]);
        } else {
            const auto longer = path.empty() ? word : path + " " + word;
            const bool own = std::any_of(application.own_commands.begin(), application.own_commands.end(),
                                         [&](const auto& known) { return known.first == longer; });
            if (own)
                return Error{Code::unsupported, fmt::format("\"{}\" is not a command of the client", longer),
                             fmt::format("orrery {} --help", longer)};
            if (path.empty() && word == "help") { // "orrery help get" is "orrery get --help"
                located.help = true;
                continue;
            }
            if (command_at(longer) == nullptr && !is_group(longer)) return no_such_command(path, word, application);
            path = longer;
            if (command_at(path) != nullptr) break;
        }
    }
    located.command = command_at(path);
    located.group = path;
    bool literal = false;
    for (++i; i < args.size(); ++i) {
        if (args[i] == "--") literal = true;
        if (!literal && (args[i] == "-h" || args[i] == "--help") && !(located.command != nullptr && located.command->hidden))
            located.help = true;
        else
            located.arguments.push_back(args[i]);
    }
    return located;
}

Result<std::map<std::string, std::vector<std::string>, std::less<>>> parse_arguments(const Command& command,
                                                                                     const std::vector<std::string>& arguments) {
    CLI::App app;
    app.set_help_flag();
    std::map<std::string, std::vector<std::string>> options;
    std::map<std::string, bool> switches;
    const auto add = [&](const Option& option) {
        const auto key = option.key();
        const auto names = option.alias.empty() ? option.names : option.names + "," + option.alias;
        if (option.value.empty())
            app.add_flag(names, switches[key]);
        else {
            auto* added = app.add_option(names, options[key])->allow_extra_args(false);
            if (!option.repeated) added->multi_option_policy(CLI::MultiOptionPolicy::Throw)->expected(1);
        }
    };
    for (const auto& option : command.options) add(option);
    for (const auto& option : common_options())
        if (std::none_of(command.options.begin(), command.options.end(),
                         [&](const Option& own) { return own.key() == option.key(); }))
            add(option);
    // Positional values come in one list; the table says which argument each of them is.
    std::vector<std::string> positionals;
    app.add_option("ARGUMENTS", positionals);
    try {
        std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
        app.parse(reversed);
    } catch (const CLI::ExtrasError&) {
        return unknown_extra(command, app.remaining().empty() ? std::string("?") : app.remaining().front());
    } catch (const CLI::ArgumentMismatch& error) {
        return usage_error(command, mismatch_text(error.what()));
    } catch (const CLI::ParseError& error) {
        return usage_error(command, error.what());
    }

    std::map<std::string, std::vector<std::string>, std::less<>> out;
    for (const auto& [key, given] : switches)
        if (given) out[key] = {"true"};
    for (auto& [key, given] : options)
        if (!given.empty()) out[key] = std::move(given);
    TRY(std::ignore, assign_positionals(command, std::move(positionals), out));
    for (const auto& option : command.options)
        if (const auto given = out.find(option.key()); given != out.end()) {
            TRY(std::ignore, check_choices(command, "--" + option.key(), option.choices, given->second));
        }
    for (const auto& argument : command.arguments)
        if (const auto given = out.find(argument.name); given != out.end()) {
            TRY(std::ignore, check_choices(command, argument.name, argument.choices, given->second));
        }
    return out;
}

} // namespace orrery::cli
