#include "app/first_login.h"
#include "app/offline.h"
#include "app/sealing_key.h"
#include "app/settings.h"
#include "app/store_choice.h"
#include "cli/session.h"
#include "identity/identity.h"
#include "resource/kinds.h"
#include "resource/resources.h"

#include <fmt/format.h>

#include <ostream>

/// `orrery store reset-admin`. No password is required: a user that can read the store and its key is its owner.
namespace orrery::app {

namespace {

Task<std::optional<std::string>> reset_stored(Context ctx, store::Store& store, const Config& config,
                                              std::optional<std::string> password) {
    CO_TRY(auto sealer, co_await open_sealer(ctx, store, config.path("secrets.key_file")));
    const auto registry = offline_identity_kinds();
    resource::Resources resources(store, registry, *sealer, real_clock());
    identity::Identity identity(resources, real_clock(), {});
    auto made = co_await identity.reset_admin(ctx, std::move(password));
    co_return made;
}

Task<std::optional<std::string>> reset_in(Context ctx, asio::any_io_executor executor, const Config& config, StoreLocation location,
                                          std::optional<std::string> password) {
    CO_TRY(auto store, co_await open_store(ctx, executor, config, location));
    Result<std::optional<std::string>> made =
        Error{Code::not_found, fmt::format("the store {} is empty", location.url), "start the server: it creates the user admin"};
    if (store->count("") > 0) made = co_await reset_stored(ctx, *store, config, std::move(password));
    co_await store->stop();
    co_return made;
}

Result<std::optional<std::string>> reset(const std::vector<std::string>& flags, const std::string& password_file,
                                         cli::Streams& streams) {
    std::optional<std::string> password;
    if (!password_file.empty()) {
        TRY(password, cli::read_secret_file(streams, password_file));
    }
    TRY(const auto config, load_config(flags, streams.environment));
    TRY(const auto location, choose_store(config));
    if (location.engine == StoreLocation::Engine::sqlite && !std::filesystem::exists(location.file))
        return Error{Code::not_found, fmt::format("no store at {}", location.file.string()),
                     "name the data folder with --data-folder, or the configuration with -f FILE"};
    asio::io_context loop(1);
    auto made =
        run_to_end(loop, reset_in(Context::make("store reset-admin"), loop.get_executor(), config, location, std::move(password)));
    if (made.ok()) remove_first_login(config.path("data.folder"));
    return made;
}

} // namespace

int reset_admin(std::vector<std::string> arguments, cli::Streams& streams) {
    std::vector<std::string> flags;
    std::string password_file;
    for (std::size_t i = 0; i < arguments.size(); ++i)
        if (arguments[i] == "--password-file" && i + 1 < arguments.size())
            password_file = arguments[++i];
        else
            flags.push_back(arguments[i]);
    const auto made = reset(flags, password_file, streams);
    if (!made.ok()) {
        cli::print_error(streams.err, made.error(), streams.err_is_terminal);
        return cli::exit_code_of(made.error());
    }
    if (*made)
        streams.out << fmt::format("user admin, one-time password {}\n", **made);
    else
        streams.out << "the password of admin was changed\n";
    streams.err << "all sessions of admin were ended; start the server and log in: orrery login admin\n";
    return cli::exit_code::ok;
}

} // namespace orrery::app
