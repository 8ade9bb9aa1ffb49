#include "cli/command_line.h"
#include "cli/commands.h"

#include <fmt/format.h>

#include <ostream>

/// man: the manual page, from the tables of commands.
namespace orrery::cli {

namespace {

/// Text escaped for roff.
std::string roff(std::string_view text) {
    std::string out;
    bool line_begins = true;
    for (const char c : text) {
        if (line_begins && (c == '.' || c == '\'')) out += "\\&";
        if (c == '\\')
            out += "\\e";
        else if (c == '-')
            out += "\\-";
        else
            out += c;
        line_begins = c == '\n';
    }
    return out;
}

std::string roff_options(const std::vector<Option>& options) {
    std::string out;
    for (const auto& option : options) {
        std::string names = option.names;
        if (const auto comma = names.find(','); comma != std::string::npos) names.replace(comma, 1, ", ");
        out += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(names),
                           option.value.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(option.value)), roff(option.help));
    }
    return out;
}

std::string roff_command(const Command& command) {
    auto out = fmt::format(".SS {}\n{}.\n", roff(usage_line(command)), roff(command.summary));
    if (!command.about.empty()) out += fmt::format(".PP\n{}\n", roff(command.about));
    for (const auto& argument : command.arguments)
        out += fmt::format(".TP\n\\fI{}\\fR\n{}\n", roff(argument.name), roff(argument.help));
    out += roff_options(command.options);
    for (const auto& example : command.examples)
        out += fmt::format(".PP\n{}:\n.PP\n.RS\n.nf\n{}\n.fi\n.RE\n", roff(example.description), roff(example.line));
    return out;
}

} // namespace

Result<int> run_man(Invocation& invocation) {
    auto& out = invocation.streams.out;
    out << fmt::format(".TH ORRERY 1 \"\" \"orrery {}\" \"User Commands\"\n", roff(invocation.application.version));
    out << ".SH NAME\norrery \\- one control plane for a private cloud\n";
    out << ".SH SYNOPSIS\n\\fBorrery\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n";
    out << ".SH DESCRIPTION\nA client of the server's API, and the server itself. \\fBorrery\\fR \\fICOMMAND\\fR "
           "\\fB\\-\\-help\\fR explains one "
           "command.\n";
    for (const auto& [name, summary] : invocation.application.own_commands)
        out << fmt::format(".TP\n\\fBorrery {}\\fR\n{}; \\fBorrery {} \\-\\-help\\fR lists its options.\n", roff(name),
                           roff(summary), roff(name));
    for (const auto& chapter : chapters()) {
        out << fmt::format(".SH {}\n", roff(chapter.title));
        for (const auto& command : chapter.commands)
            if (!command.hidden) out << roff_command(command);
    }
    out << ".SH OPTIONS OF EVERY COMMAND\n" << roff_options(common_options());
    out << ".SH FILES\n.TP\n~/.config/orrery/session.yaml\nServers you are logged in to; \\fBORRERY_CONFIG\\fR names another "
           "file.\n"
           ".TP\n/etc/orrery/orrery.yaml\nThe server's configuration.\n";
    out << ".SH SEE ALSO\n/usr/share/doc/orrery/docs/cli.md has the exit codes.\n";
    return exit_code::ok;
}

} // namespace orrery::cli
