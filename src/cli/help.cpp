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

HelpRows option_rows(const std::vector<Option>& options) {
    HelpRows rows;
    for (const auto& option : options) {
        std::string left = option.names;
        for (auto comma = left.find(','); comma != std::string::npos; comma = left.find(',', comma + 2))
            left.replace(comma, 1, ", ");
        if (!left.starts_with("-") || left.starts_with("--")) left = "    " + left;
        if (!option.value.empty()) left += " " + option.value;
        auto right = option.help;
        if (!option.choices.empty()) right += fmt::format(" ({})", fmt::join(option.choices, ", "));
        rows.emplace_back(std::move(left), std::move(right));
    }
    return rows;
}

std::string footer() { return "\n\"orrery COMMAND --help\" says more about a command, with examples.\n"; }

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
        for (const auto& argument : command.arguments) rows.emplace_back(argument.name, argument.help);
        out += heading("Arguments", colour) + aligned(rows, colour);
    }
    if (!command.options.empty()) out += heading("Options", colour) + aligned(option_rows(command.options), colour);
    if (!command.raw) out += heading("Options of every command", colour) + aligned(option_rows(common_options()), colour);
    if (!command.examples.empty()) {
        out += heading("Examples", colour);
        for (const auto& example : command.examples)
            out += fmt::format("  {}\n  {}\n", paint("# " + example.what, Style::dim, colour), example.line);
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

std::string program_help(const Application& application, bool colour) {
    struct Chapter {
        std::string_view title;
        std::vector<std::string> words;
    };
    static const std::vector<Chapter> chapters = {
        {"Resources", {"apply", "diff", "get", "describe", "delete", "watch", "events", "kinds", "explain"}},
        {"Identity", {"login", "logout", "whoami", "user", "token"}},
        {"Installation", {"store", "config", "version", "completion"}},
    };
    std::string out = "orrery: one control plane for a private cloud\n";
    out += heading("Usage", colour) + "  orrery COMMAND [OPTIONS]\n";
    for (const auto& chapter : chapters) {
        HelpRows rows;
        for (const auto& word : chapter.words) {
            std::vector<std::string> parts;
            for (const auto& command : all_commands()) {
                if (command.path == word)
                    rows.emplace_back(word, command.summary);
                else if (command.path.starts_with(word + " ") && !command.hidden)
                    parts.push_back(command.path.substr(word.size() + 1));
            }
            if (!parts.empty()) rows.emplace_back(word, fmt::format("{}", fmt::join(parts, " | ")));
        }
        if (chapter.title == "Installation")
            rows.insert(rows.begin(), application.own_commands.begin(), application.own_commands.end());
        out += heading(chapter.title, colour) + aligned(rows, colour);
    }
    out += heading("Options of every command", colour) + aligned(option_rows(common_options()), colour);
    return out + footer();
}

} // namespace orrery::cli
