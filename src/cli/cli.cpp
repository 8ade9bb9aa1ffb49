#include "cli/cli.h"

#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/terminal.h"

#include <fmt/format.h>

#include <ostream>

namespace orrery::cli {

void print_error(std::ostream& err, const Error& error, bool colour) {
    err << paint("error:", Style::red, colour) << ' '
        << printable(error.message.empty() ? std::string(name_of(error.code)) : error.message) << '\n';
    for (const auto& field : error.fields)
        if (field.message.empty() || error.message.find(field.message) == std::string::npos) // not a repetition of the message
            err << "  " << printable(field.path) << ": " << printable(field.message) << '\n';
    if (!error.remedy.empty()) err << paint("remedy:", Style::cyan, colour) << ' ' << printable(error.remedy) << '\n';
}

int exit_code_of(const Error& error) {
    switch (error.code) {
    case Code::invalid:
    case Code::too_large:
    case Code::unsupported: return exit_code::invalid;
    case Code::unauthenticated:
    case Code::denied: return exit_code::denied;
    case Code::not_found: return exit_code::not_found;
    case Code::conflict: return exit_code::conflict;
    case Code::timeout:
    case Code::unavailable:
    case Code::throttled:
    case Code::no_space: return exit_code::unavailable;
    case Code::cancelled: return exit_code::interrupted;
    case Code::compacted:
    case Code::internal: return exit_code::other;
    }
    return exit_code::other;
}

int finish_output(std::ostream& out, std::ostream& err, int code) {
    out.flush();
    if (out.good()) return code;
    print_error(err, {Code::internal, "writing to standard output failed", "check the free disk space, and the file or pipe"});
    return code == exit_code::ok || code == exit_code::differences ? exit_code::other : code;
}

namespace {

int run_command(std::vector<std::string> args, Streams& streams, const Application& application) {
    const bool colour = streams.err_is_terminal && streams.variable("NO_COLOR").empty();
    const auto usage = [&](const Error& error) {
        print_error(streams.err, error, colour);
        return exit_code::usage;
    };
    if (args.size() == 1 && args[0] == "--version") args = {"version"};
    auto located = locate_command(args, application);
    if (!located.ok()) return usage(located.error());
    if (located->command == nullptr) {
        const bool wrong = !located->help && (!located->group.empty() || !located->arguments.empty());
        if (wrong && located->group.empty()) return usage({Code::invalid, "no command was given", "\"orrery --help\" lists them"});
        (wrong ? streams.err : streams.out) << (located->group.empty() ? program_help(application, streams.colour())
                                                                       : group_help(located->group, !wrong && streams.colour()));
        return wrong ? exit_code::usage : exit_code::ok;
    }
    if (located->help) {
        streams.out << command_help(*located->command, streams.colour());
        return exit_code::ok;
    }
    Invocation invocation(streams, application, *located->command);
    if (located->command->raw)
        invocation.raw_arguments = std::move(located->arguments);
    else {
        auto values = parse_arguments(*located->command, located->arguments);
        if (!values.ok()) return usage(values.error());
        invocation.values = std::move(*values);
    }
    auto done = located->command->run(invocation);
    streams.out.flush();
    if (done.ok()) return *done;
    if (done.error().code == Code::cancelled) {
        if (streams.out_is_terminal) streams.out << '\n' << std::flush;
        return exit_code::interrupted;
    }
    print_error(streams.err, done.error(), colour);
    streams.err.flush();
    return invocation.is_usage_error() ? exit_code::usage : exit_code_of(done.error());
}

} // namespace

int run(std::vector<std::string> args, Streams& streams, const Application& application) {
    return finish_output(streams.out, streams.err, run_command(std::move(args), streams, application));
}

} // namespace orrery::cli
