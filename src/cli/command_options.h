#pragma once

#include "cli/command.h"

/// Options that several commands share, and the tables of commands. For the files with tables.
namespace orrery::cli {

using Count = Argument::Count;

inline Option output(std::vector<std::string> forms) { return {"-o,--output", "FORMAT", "output format", std::move(forms)}; }
inline Option files(std::string help) { return {"-f,--file", "FILE", std::move(help), {}, Means::file, true}; }
inline Option dry_run() { return {"--dry-run", "", "check everything and print the outcome, but change nothing"}; }
inline Option parameter() {
    return {"-p,--param", "NAME=VALUE", "the value of a parameter; repeatable", {}, Means::anything, true};
}
inline Option labels() {
    return {
        "-l,--labels", "SELECTOR", "only resources whose labels match, as in role=compute,zone!=b,gpu,!legacy", {}, Means::label};
}
inline Option count() { return {"--count", "N", "stop after N changes"}; }
inline Option reason() {
    Option out{"--reason", "TEXT", "the reason of the change; stored in the audit event"};
    out.alias = "--because";
    return out;
}

/// The tables one after the other.
std::vector<Command> concatenated(const std::vector<std::vector<Command>>& tables);

std::vector<Command> resource_commands();
std::vector<Command> job_commands();
std::vector<Command> template_commands();
std::vector<Command> diagnosis_commands();
std::vector<Command> gslb_commands();
std::vector<Command> fleet_commands();
std::vector<Command> identity_commands();
std::vector<Command> installation_commands();

} // namespace orrery::cli
