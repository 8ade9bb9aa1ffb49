#include "app/offline.h"

#include <fmt/format.h>

#include <ostream>

#include "store/sqlite/backup.h"

namespace orrery::app {

namespace {

int fail(cli::Streams& streams, const Error& error) {
    cli::print_error(streams.err, error, streams.err_is_terminal);
    return cli::exit_code_of(error);
}

int misused(cli::Streams& streams, std::string message, std::string remedy) {
    cli::print_error(streams.err, Error{Code::invalid, std::move(message), std::move(remedy)}, streams.err_is_terminal);
    return cli::exit_code::usage;
}

void tell(std::ostream& out, const std::string& file, const store::Verified& found) {
    out << fmt::format("{}: whole; {} keys, revision {}, history from {}, identity {}\n", file, found.keys, found.revision, found.compacted, found.identity);
    if (found.moved_to) out << fmt::format("it has moved to {}\n", *found.moved_to);
}

} // namespace

int verify_store_file(std::vector<std::string> arguments, cli::Streams& streams) {
    if (arguments.size() != 1) return misused(streams, "orrery store verify takes one file", "orrery store verify /var/lib/orrery/store.db");
    auto found = store::verify_sqlite(arguments.front());
    if (!found.ok()) return fail(streams, found.error());
    tell(streams.out, arguments.front(), *found);
    return cli::exit_code::ok;
}

int restore_store_file(std::vector<std::string> arguments, cli::Streams& streams) {
    std::string backup, to;
    auto overwrite = store::Overwrite::no;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i] == "--force") overwrite = store::Overwrite::yes;
        else if (arguments[i] == "--to" && i + 1 < arguments.size()) to = arguments[++i];
        else if (arguments[i].starts_with("--to=")) to = arguments[i].substr(5);
        else if (backup.empty() && !arguments[i].starts_with('-')) backup = arguments[i];
        else return misused(streams, fmt::format("orrery store restore does not know \"{}\"", arguments[i]), "orrery store restore BACKUP --to FILE [--force]");
    }
    if (backup.empty() || to.empty()) return misused(streams, "orrery store restore needs a backup and where to put it", "orrery store restore orrery.backup --to /var/lib/orrery/store.db");
    auto restored = store::restore_sqlite(backup, to, overwrite);
    if (!restored.ok()) return fail(streams, restored.error());
    tell(streams.out, to, *restored);
    streams.out << "restored; the secrets in it open with the key file they were sealed with\n";
    return cli::exit_code::ok;
}

} // namespace orrery::app
