#include "cli/commands.h"

#include "cli/command_options.h"

/// The tables of all commands, in the order of the help. The tables declare everything about a command except its function.
namespace orrery::cli {

std::vector<Command> concatenated(const std::vector<std::vector<Command>>& tables) {
    std::vector<Command> out;
    for (const auto& table : tables) out.insert(out.end(), table.begin(), table.end());
    return out;
}

const std::vector<Chapter>& chapters() {
    static const std::vector<Chapter> all = {
        {"Resources", resource_commands()},     {"Jobs", job_commands()},
        {"Job templates", template_commands()}, {"Diagnosis", diagnosis_commands()},
        {"Load balancing", gslb_commands()},    {"Fleet", fleet_commands()},
        {"Identity", identity_commands()},      {"Installation", installation_commands()},
    };
    return all;
}

const std::vector<Command>& all_commands() {
    static const std::vector<Command> commands = [] {
        std::vector<Command> out;
        for (const auto& chapter : chapters()) out.insert(out.end(), chapter.commands.begin(), chapter.commands.end());
        return out;
    }();
    return commands;
}

const std::vector<Option>& common_options() {
    static const std::vector<Option> options = {
        {"-s,--server", "URL", "the server (default: ORRERY_SERVER, then the current context, then http://127.0.0.1:8421)"},
        {"--ca", "FILE", "the CA certificate of the server (default: ORRERY_CA, then the context)", {}, Means::file},
        {"--token-file",
         "FILE",
         "read the token from this file (default: ORRERY_TOKEN_FILE, ORRERY_TOKEN, then the context)",
         {},
         Means::file},
        {"--timeout", "DURATION", "time limit of a request (default: 30s)"},
        {"-q,--quiet", "", "print only the requested data and errors"},
    };
    return options;
}

} // namespace orrery::cli
