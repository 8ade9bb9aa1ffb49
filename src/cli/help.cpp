#include "cli/command_line.h"
#include "cli/terminal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace orrery::cli {

namespace {

using HelpRows = std::vector<std::pair<std::string, std::string>>;

std::string aligned(const HelpRows& rows, bool colour) {
    int widest = 0;
    for (const auto& [left, right] : rows) widest = std::max(widest, display_width(left));
    std::string out;
    for (const auto& [left, right] : rows) {
        const auto padding = std::string(static_cast<std::size_t>(widest - display_width(left) + 2), ' ');
        out += fmt::format("  {}{}{}\n", paint(left, Style::cyan, colour), padding, right);
    }
    return out;
}

std::string heading(std::string_view text, bool colour) { return fmt::format("\n{}\n", paint(text, Style::bold, colour)); }

/// " (table, yaml, json)"
std::string choices_text(const std::vector<std::string>& choices) {
    return choices.empty() ? std::string() : fmt::format(" ({})", fmt::join(choices, ", "));
}

HelpRows option_rows(const std::vector<Option>& options) {
    HelpRows rows;
    for (const auto& option : options) {
        std::string left = option.names;
        for (auto comma = left.find(','); comma != std::string::npos; comma = left.find(',', comma + 2))
            left.replace(comma, 1, ", ");
        if (!left.starts_with("-") || left.starts_with("--")) left = "    " + left;
        if (!option.value.empty()) left += " " + option.value;
        rows.emplace_back(std::move(left), option.help + choices_text(option.choices));
    }
    return rows;
}

std::string footer() { return "\n\"orrery COMMAND --help\" shows the options of a command and examples.\n"; }

} // namespace

std::string Option::key() const {
    const auto comma = names.rfind(',');
    auto name = comma == std::string::npos ? names : names.substr(comma + 1);
    name.erase(0, name.find_first_not_of('-'));
    return name;
}

std::string usage_line(const Command& command) {
    std::string out = "orrery " + command.path;
    for (const auto& argument : command.arguments) {
        using enum Argument::Count;
        switch (argument.count) {
        case one: out += " " + argument.name; break;
        case optional: out += fmt::format(" [{}]", argument.name); break;
        case some: out += fmt::format(" {}...", argument.name); break;
        case any: out += fmt::format(" [{}...]", argument.name); break;
        }
    }
    if (!command.options.empty()) out += " [OPTIONS]";
    return out;
}

std::string command_help(const Command& command, bool colour) {
    std::string out = fmt::format("{}\n", command.summary);
    if (!command.about.empty()) out += fmt::format("\n{}\n", command.about);
    out += heading("Usage", colour) + fmt::format("  {}\n", usage_line(command));
    if (!command.arguments.empty()) {
        HelpRows rows;
        for (const auto& argument : command.arguments)
            rows.emplace_back(argument.name, argument.help + choices_text(argument.choices));
        out += heading("Arguments", colour) + aligned(rows, colour);
    }
    if (!command.options.empty()) out += heading("Options", colour) + aligned(option_rows(command.options), colour);
    if (!command.raw) out += heading("Options of every command", colour) + aligned(option_rows(common_options()), colour);
    if (!command.examples.empty()) {
        out += heading("Examples", colour);
        for (const auto& example : command.examples)
            out += fmt::format("  {}\n  {}\n", paint("# " + example.description, Style::dim, colour), example.line);
    }
    return out;
}

std::string group_help(std::string_view group, bool colour) {
    HelpRows rows;
    for (const auto& command : all_commands())
        if (command.path.starts_with(fmt::format("{} ", group)) && !command.hidden)
            rows.emplace_back("orrery " + command.path, command.summary);
    return fmt::format("Commands of orrery {}:\n{}{}", group, aligned(rows, colour), footer());
}

namespace {

/// One row for each command of a chapter; the commands of a group share a row.
HelpRows chapter_rows(const std::vector<Command>& commands) {
    HelpRows rows;
    std::size_t members = 0; // of the group in the last row
    for (const auto& command : commands) {
        if (command.hidden) continue;
        const auto space = command.path.find(' ');
        const auto word = command.path.substr(0, space);
        const auto rest = space == std::string::npos ? std::string() : command.path.substr(space + 1);
        const auto same_group = !rows.empty() && members > 0 && rows.back().first.substr(0, rows.back().first.find(' ')) == word;
        if (!same_group) {
            rows.emplace_back(command.path, command.summary);
            members = rest.empty() ? 0 : 1;
        } else {
            if (members++ == 1) rows.back() = {word, rows.back().first.substr(space + 1)};
            rows.back().second += " | " + rest;
        }
    }
    return rows;
}

} // namespace

std::string program_help(const Application& application, bool colour) {
    std::string out = "orrery: one control plane for a private cloud\n";
    out += heading("Usage", colour) + "  orrery COMMAND [OPTIONS]\n";
    for (const auto& chapter : chapters()) {
        HelpRows rows;
        if (chapter.title == "Installation") rows = application.own_commands;
        for (auto& row : chapter_rows(chapter.commands)) rows.push_back(std::move(row));
        out += heading(chapter.title, colour) + aligned(rows, colour);
    }
    out += heading("Options of every command", colour) + aligned(option_rows(common_options()), colour);
    return out + footer();
}

} // namespace orrery::cli
