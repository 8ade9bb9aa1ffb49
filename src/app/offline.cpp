#include "app/offline.h"

#include "app/settings.h"
#include "app/store_choice.h"
#include "store/sqlite/backup.h"

#include <fmt/format.h>

#include <ostream>

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
    out << fmt::format("{}: whole; {} keys, revision {}, history from {}, identity {}\n", file, found.keys, found.revision,
                       found.compacted, found.identity);
    if (found.moved_to) out << fmt::format("it has moved to {}\n", *found.moved_to);
}

} // namespace

int verify_store_file(std::vector<std::string> arguments, cli::Streams& streams) {
    if (arguments.size() != 1)
        return misused(streams, "orrery store verify takes one file", "orrery store verify /var/lib/orrery/store.db");
    auto found = store::verify_sqlite(arguments.front());
    if (!found.ok()) return fail(streams, found.error());
    tell(streams.out, arguments.front(), *found);
    return cli::exit_code::ok;
}

int restore_store_file(std::vector<std::string> arguments, cli::Streams& streams) {
    std::string backup;
    std::vector<std::string> flags;
    auto overwrite = store::Overwrite::no;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i] == "--force")
            overwrite = store::Overwrite::yes;
        else if (backup.empty() && !arguments[i].starts_with('-') &&
                 (i == 0 || !arguments[i - 1].starts_with("--") || arguments[i - 1] == "--force"))
            backup = arguments[i];
        else
            flags.push_back(arguments[i]);
    }
    if (backup.empty())
        return misused(streams, "orrery store restore needs a backup",
                       "orrery store restore orrery.backup [--data-folder FOLDER] [--force]");
    auto config = load_config(flags, streams.environment);
    if (!config.ok()) return fail(streams, config.error());
    auto place = configured_store(*config);
    if (!place.ok()) return fail(streams, place.error());
    if (place->engine != StorePlace::Engine::sqlite)
        return fail(streams,
                    Error{Code::unsupported,
                          fmt::format("the configuration says that the store is at {}, and a backup is a file", place->url),
                          "name the file's folder with --data-folder, or use etcd's own tool"});
    auto restored = store::restore_sqlite(backup, place->file, overwrite);
    if (!restored.ok()) return fail(streams, restored.error());
    tell(streams.out, place->file.string(), *restored);
    streams.out << fmt::format("restored; its secrets open with the key they were sealed with, looked for in {}\n",
                               config->path("secrets.key_file").string());
    return cli::exit_code::ok;
}

} // namespace orrery::app
