#include "app/offline.h"

#include "app/data_folder.h"
#include "app/settings.h"
#include "app/store_choice.h"
#include "identity/identity.h"
#include "resource/kinds.h"
#include "resource/resources.h"
#include "store/sqlite/backup.h"
#include "store/sqlite/sqlite_store.h"

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

void print_summary(std::ostream& out, const std::string& file, const store::StoreFileSummary& found) {
    out << fmt::format("{}: valid; {} keys, revision {}, history from {}, identity {}\n", file, found.keys, found.revision,
                       found.compacted, found.identity);
    if (found.migrated_to) out << fmt::format("it was migrated to {}\n", *found.migrated_to);
}

} // namespace

int verify_store_file(std::vector<std::string> arguments, cli::Streams& streams) {
    if (arguments.size() != 1)
        return misused(streams, "orrery store verify requires one file", "orrery store verify /var/lib/orrery/store.db");
    auto found = store::verify_sqlite(arguments.front());
    if (!found.ok()) {
        auto error = std::move(found).error();
        if (error.code == Code::internal) // damaged; the store does not know whether the file is a backup
            error.remedy = "do not use the file: of a backup, use another one; of a server, restore a backup with \"orrery store "
                           "restore\"; the file was not changed";
        return fail(streams, error);
    }
    print_summary(streams.out, arguments.front(), *found);
    return cli::exit_code::ok;
}

resource::Registry offline_identity_kinds() {
    resource::Registry registry;
    registry.add(resource::event_kind());
    registry.add(identity::user_kind());
    registry.add(identity::token_kind(real_clock()));
    return registry;
}

namespace {

Task<int> end_stored_sessions(Context ctx, store::Store& store) {
    const auto sealer = resource::Sealer::ephemeral(); // no secret is sealed or unsealed here
    const auto registry = offline_identity_kinds();
    resource::Resources resources(store, registry, *sealer, real_clock());
    identity::Identity identity(resources, real_clock(), {});
    CO_TRY(const int ended, co_await identity.end_all_sessions(ctx, "the store was restored from a backup"));
    CO_TRY(std::ignore, co_await resources.record(ctx, {.subject = "Store/store",
                                                        .action = "sessions-ended",
                                                        .reason = "the store was restored from a backup",
                                                        .evidence = boost::json::object{{"tokens", ended}}}));
    co_return ended;
}

/// Ends all sessions in the copy of a backup before it replaces the store.
Task<int> end_sessions_in(Context ctx, asio::any_io_executor executor, std::filesystem::path copy) {
    CO_TRY(auto store, co_await store::open_sqlite(ctx, executor, {.path = std::move(copy)}));
    auto ended = co_await end_stored_sessions(ctx, *store);
    co_await store->stop();
    co_return ended;
}

Result<int> end_sessions(const std::filesystem::path& copy) {
    asio::io_context loop(1);
    return run_to_end(loop, end_sessions_in(Context::make("store restore"), loop.get_executor(), copy));
}

} // namespace

int restore_store_file(std::vector<std::string> arguments, cli::Streams& streams) {
    std::string backup;
    std::vector<std::string> flags;
    auto overwrite = store::Overwrite::no;
    bool ends_sessions = false;
    const auto takes_value = [](const std::string& flag) {
        return flag.starts_with("--") && flag != "--force" && flag != "--end-sessions";
    };
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i] == "--force")
            overwrite = store::Overwrite::yes;
        else if (arguments[i] == "--end-sessions")
            ends_sessions = true;
        else if (backup.empty() && !arguments[i].starts_with('-') && (i == 0 || !takes_value(arguments[i - 1])))
            backup = arguments[i];
        else
            flags.push_back(arguments[i]);
    }
    if (backup.empty())
        return misused(streams, "orrery store restore requires a backup",
                       "orrery store restore orrery.backup [--data-folder FOLDER] [--force] [--end-sessions]");
    auto config = load_config(flags, streams.environment);
    if (!config.ok()) return fail(streams, config.error());
    auto location = configured_store(*config);
    if (!location.ok()) return fail(streams, location.error());
    if (location->engine != StoreLocation::Engine::sqlite)
        return fail(streams,
                    Error{Code::unsupported,
                          fmt::format("the configuration names the store {}, and a backup can be restored to an SQLite file only",
                                      location->url),
                          "name the data folder with --data-folder, or use the tools of etcd"});
    if (auto made = make_data_folder(location->file.parent_path()); !made.ok()) return fail(streams, made.error());
    int ended = 0;
    store::RestoreHook change;
    if (ends_sessions)
        change = [&ended](const std::filesystem::path& copy) -> Result<Unit> {
            TRY(ended, end_sessions(copy));
            return Unit{};
        };
    auto restored = store::restore_sqlite(backup, location->file, overwrite, change);
    if (!restored.ok()) {
        auto error = restored.error();
        if (error.code == Code::internal) error.remedy = "use another backup; this one and the store are unchanged";
        return fail(streams, error);
    }
    print_summary(streams.out, location->file.string(), *restored);
    streams.out << fmt::format("restored; its secrets need the sealing key of the backup in {}\n",
                               config->path("secrets.key_file").string());
    if (ends_sessions)
        streams.out << fmt::format("{} tokens and sessions of the backup were ended: all users must log in again\n", ended);
    return cli::exit_code::ok;
}

} // namespace orrery::app
