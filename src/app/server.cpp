#include "app/server.h"

#include "api/api.h"
#include "app/catalog_part.h"
#include "app/executors_part.h"
#include "app/first_login.h"
#include "app/gslb_part.h"
#include "app/housekeeping.h"
#include "app/jobs_part.h"
#include "app/node_commands.h"
#include "app/notify.h"
#include "app/settings.h"
#include "app/store_admin.h"
#include "app/store_choice.h"
#include "catalog/kinds.h"
#include "core/log.h"
#include "drivers/keystone/keystone.h"
#include "drivers/ldap/ldap.h"
#include "identity/identity.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "resource/kinds.h"
#include "resource/resources.h"
#include "store/gate.h"
#include "store/leadership.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace orrery::app {

namespace {

constexpr std::string_view sealer_key = "sys/sealer";

bool runs(const Config& config, std::string_view part) {
    const auto& parts = config.list("server.run");
    return std::find(parts.begin(), parts.end(), part) != parts.end();
}

/// The folder of this server's files, for its eyes only.
Result<Unit> make_folder(const std::filesystem::path& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (!error) std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
    if (error)
        return Error{Code::unavailable, fmt::format("the folder {} cannot be made: {}", folder.string(), error.message()),
                     "set data.folder to one that this user may write to"};
    return Unit{};
}

/// The key must be the one that what is in the store was sealed with.
Task<Unit> check_sealer(Context ctx, store::Store& store, const resource::Sealer& sealer, std::filesystem::path file) {
    for (int attempt = 0; attempt < 3; ++attempt) {
        if (const auto kept = store.find(sealer_key)) {
            if (kept->value == sealer.fingerprint()) co_return Unit{};
            co_return Error{Code::denied,
                            fmt::format("the key in {} is not the one this store's secrets were sealed with", file.string()),
                            "put the right key file there: a copy from the first server, or from a backup"};
        }
        store::Transaction transaction;
        transaction.expect(std::string(sealer_key), 0).put(std::string(sealer_key), sealer.fingerprint());
        auto written = co_await store.apply(ctx, std::move(transaction));
        if (!written.ok() && written.error().code != Code::conflict) co_return std::move(written).error();
    }
    co_return Error{Code::conflict, "several servers start at once on an empty store", "start again"};
}

Result<std::shared_ptr<net::TlsContext>> server_tls(const Config& config) {
    if (config.path("server.tls.certificate").empty()) return std::shared_ptr<net::TlsContext>{};
    return net::tls_server({.certificate = config.path("server.tls.certificate"),
                            .key = config.path("server.tls.key"),
                            .client_ca = config.path("server.tls.client_ca"),
                            .require_client_certificate = !config.path("server.tls.client_ca").empty()});
}

/// All that runs on one store, in the order it is made; `stop` ends it in reverse.
class Assembly {
public:
    Assembly(asio::io_context& loop, const Config& config, std::string version)
        : config_(config), version_(std::move(version)), executor_(loop.get_executor()), pool_(2), group_(executor_) {}

    Task<Unit> start(Context ctx) {
        const auto folder = config_.path("data.folder");
        CO_TRY(std::ignore, make_folder(folder));
        CO_TRY(place_, choose_store(config_));
        CO_TRY(auto engine, co_await open_store(ctx, executor_, config_, place_));
        store_ = std::make_unique<store::Gate>(executor_, std::move(engine));
        const bool fresh = store_->count("") == 0;
        const auto key_file = config_.path("secrets.key_file");
        CO_TRY(sealer_,
               resource::Sealer::open(key_file, fresh ? resource::Sealer::Missing::make : resource::Sealer::Missing::refuse));
        CO_TRY(std::ignore, co_await check_sealer(ctx, *store_, *sealer_, key_file));

        registry_.add(resource::node_kind());
        registry_.add(resource::secret_kind());
        registry_.add(resource::event_kind());
        registry_.add(identity::user_kind(pool_));
        registry_.add(identity::token_kind(clock_));
        registry_.add(catalog::service_kind());
        registry_.add(catalog::instance_kind());
        registry_.add(catalog::catalog_node_kind());
        jobs_.add_kinds(registry_);
        gslb_.add_kinds(registry_);
        CO_TRY(std::ignore, registry_.check());
        resources_ = std::make_unique<resource::Resources>(*store_, registry_, *sealer_, clock_);
        identity_ = std::make_unique<identity::Identity>(
            *resources_, pool_, clock_, identity::IdentityOptions{.session_time = config_.duration("identity.session_time")});
        CO_TRY(std::ignore, join_directories());

        admin_ = make_store_admin(executor_, config_, place_, *store_, [this] {
            moved_already_ = true;
            moved_.notify_all();
        });
        leadership_ = std::make_unique<store::Leadership>(
            executor_, *store_,
            store::Leadership::Options{.server = server_name(config_), .alone = place_.engine == StorePlace::Engine::sqlite});
        if (runs(config_, "controllers")) {
            group_.spawn(leadership_->run(ctx));
            group_.spawn(
                keep_house(ctx, *resources_, *identity_, *leadership_, clock_,
                           {config_.duration("events.keep"), static_cast<std::size_t>(config_.integer("events.keep_at_most"))}));
        }
        CO_TRY(const auto given_password, config_.secret("identity.admin_password_file"));
        CO_TRY(first_password_, co_await identity_->ensure_admin(ctx, given_password));
        // Whoever changes the password has it no longer from the file.
        admin_changes_ = store_->observe("users/admin", [folder](const store::Event& event) {
            if (event.previous) forget_first_login(folder);
        });
        executors_ = std::make_unique<ExecutorsPart>(executor_, config_, *resources_, pool_);
        executors_->add_to(jobs_.executors());
        node_commands_ = std::make_unique<NodeCommands>(executors_->ssh(), executors_->logins(), *resources_);
        catalog_ = std::make_unique<CatalogPart>(executor_, config_, *resources_, *identity_, *leadership_, clock_, version_);
        CO_TRY(auto catalog_tls, server_tls(config_));
        CO_TRY(std::ignore, catalog_->start(ctx, group_, std::move(catalog_tls), node_commands_.get(),
                                            {.checks = runs(config_, "controllers"), .doors = runs(config_, "api")}));
        gslb_.make(executor_, config_, server_name(config_), *resources_, *leadership_, clock_,
                   {.looks = runs(config_, "controllers"), .shared = place_.engine != StorePlace::Engine::sqlite});
        jobs_.executors().add(gslb_.executor());
        jobs_.start(ctx, executor_, config_, *resources_, *leadership_, catalog_->membership(), pool_, clock_, group_,
                    server_name(config_), place_.engine != StorePlace::Engine::sqlite, executors_->collector(),
                    runs(config_, "controllers"));
        CO_TRY(std::ignore, gslb_.look_from(config_, *node_commands_));
        CO_TRY(std::ignore, gslb_.start(ctx, group_));
        if (runs(config_, "api")) {
            CO_TRY(std::ignore, open_doors(ctx));
        }
        co_return Unit{};
    }

    /// Waits for a signal or for the store to move; true if it moved.
    asio::awaitable<bool> wait(Context ctx) {
        asio::signal_set signals(executor_, SIGTERM, SIGINT);
        int signal = 0;
        signals.async_wait([&](boost::system::error_code error, int number) {
            if (error) return;
            signal = number;
            moved_.notify_all();
        });
        while (signal == 0 && !moved_already_) std::ignore = co_await moved_.wait(ctx);
        signals.cancel();
        if (signal != 0) log::info(ctx, "stopping on {}", signal == SIGTERM ? "SIGTERM" : "SIGINT");
        co_return signal == 0;
    }

    asio::awaitable<void> stop() {
        gslb_.let_checkers_go();
        if (doors_) co_await doors_->stop(config_.duration("server.shutdown_grace"));
        if (api_) co_await api_->stop();
        if (catalog_) co_await catalog_->stop(config_.duration("server.shutdown_grace"));
        gslb_.close();
        co_await group_.stop();
        jobs_.stop();
        doors_.reset();
        api_.reset();
        co_await gslb_.stop();
        catalog_.reset();
        if (executors_) co_await executors_->stop();
        if (keystone_client_) co_await keystone_client_->stop();
        admin_.reset();
        admin_changes_.reset();
        leadership_.reset();
        identity_.reset();
        resources_.reset();
        if (store_) co_await store_->stop();
        store_.reset();
        pool_.join();
    }

private:
    Result<Unit> join_directories() {
        if (!config_.text("identity.ldap.url").empty()) {
            drivers::LdapOptions options;
            options.url = config_.text("identity.ldap.url");
            options.plain_on_loopback = config_.boolean("identity.ldap.plain_on_loopback");
            options.ca = config_.path("identity.ldap.ca");
            options.bind_dn = config_.text("identity.ldap.bind_dn");
            TRY(const auto password, config_.secret("identity.ldap.bind_password_file"));
            options.bind_password = password.value_or("");
            options.user_base = config_.text("identity.ldap.user_base");
            options.user_filter = config_.text("identity.ldap.user_filter");
            options.group_base = config_.text("identity.ldap.group_base");
            options.group_filter = config_.text("identity.ldap.group_filter");
            for (const auto& [group, role] : config_.map("identity.ldap.roles")) {
                TRY(options.roles[group], resource::parse_role(role));
            }
            TRY(auto source, drivers::ldap_source(std::move(options)));
            identity_->add(std::move(source));
        }
        if (!config_.text("identity.keystone.url").empty()) {
            TRY(auto tls, net::tls_client({.ca = config_.path("identity.keystone.ca")}));
            keystone_client_ = std::make_unique<net::HttpClient>(executor_, net::HttpClient::Options{.tls = std::move(tls)});
            drivers::KeystoneOptions options;
            options.url = config_.text("identity.keystone.url");
            options.allow_plaintext = config_.boolean("identity.keystone.allow_plaintext");
            options.projects = config_.list("identity.keystone.projects");
            options.user = config_.text("identity.keystone.user");
            options.user_domain = config_.text("identity.keystone.user_domain");
            options.project = config_.text("identity.keystone.project");
            options.project_domain = config_.text("identity.keystone.project_domain");
            TRY(const auto password, config_.secret("identity.keystone.password_file"));
            options.password = password.value_or("");
            for (const auto& [name, role] : config_.map("identity.keystone.roles")) {
                TRY(options.roles[name], resource::parse_role(role));
            }
            TRY(auto source, drivers::keystone_source(*keystone_client_, clock_, std::move(options)));
            identity_->add(std::move(source));
        }
        return Unit{};
    }

    Result<Unit> open_doors(Context ctx) {
        api_ = std::make_unique<api::Api>(executor_, *resources_, *identity_, *admin_, clock_,
                                          api::ApiOptions{.version = version_, .max_body = config_.bytes("limits.max_body")});
        api_->add_gauges([this] {
            return std::vector<std::pair<std::string, double>>{
                {"orrery_leader", leadership_->leads() ? 1.0 : 0.0},
                {"orrery_http_connections", static_cast<double>(doors_->connections())}};
        });
        api_->add_gauges([this] { return catalog_->gauges(); });
        api_->add_gauges([this] { return jobs_.gauges(); });
        api_->add_gauges([this] { return gslb_.gauges(); });
        api_->add_jobs(jobs_.engine());
        api_->add_gslb(gslb_.controller());
        api_->add_health(gslb_.lookout());
        TRY(auto tls, server_tls(config_));
        net::HttpServer::Options options;
        const auto& addresses = config_.list("server.listen");
        for (std::size_t i = 0; i < addresses.size(); ++i) {
            TRY(const auto address, parse_listen(addresses[i]));
            if (i > 0) {
                options.also.push_back({address.host, address.port, tls});
                continue;
            }
            options.address = address.host;
            options.port = address.port;
        }
        options.tls = tls;
        options.max_body = config_.bytes("limits.max_body");
        options.max_connections = static_cast<std::size_t>(config_.integer("limits.max_connections"));
        options.request_timeout = config_.duration("limits.request_timeout");
        options.on_error = api_->on_error();
        options.on_done = api_->on_done();
        doors_ = std::make_unique<net::HttpServer>(executor_, std::move(options), api_->handler());
        TRY(std::ignore, doors_->start());
        const auto ports = doors_->ports();
        std::string first;
        for (std::size_t i = 0; i < addresses.size(); ++i) {
            TRY(const auto address, parse_listen(addresses[i]));
            const bool v6 = address.host.find(':') != std::string::npos;
            const auto url =
                fmt::format("{}://{}{}{}:{}", tls ? "https" : "http", v6 ? "[" : "", address.host, v6 ? "]" : "", ports[i]);
            if (first.empty()) first = url;
            log::info(ctx, "orrery {} serves {} on {}", version_, url, place_.url);
        }
        if (first_password_) show_first_login(ctx, config_.path("data.folder"), first, *first_password_);
        return Unit{};
    }

    const Config& config_;
    std::string version_;
    asio::any_io_executor executor_;
    Clock& clock_ = real_clock();
    Pool pool_;
    TaskGroup group_;
    StorePlace place_;
    std::unique_ptr<store::Gate> store_;
    std::unique_ptr<resource::Sealer> sealer_;
    resource::Registry registry_;
    std::unique_ptr<resource::Resources> resources_;
    std::unique_ptr<net::HttpClient> keystone_client_;
    std::unique_ptr<identity::Identity> identity_;
    std::optional<std::string> first_password_;
    std::shared_ptr<void> admin_changes_;
    Notifier moved_{executor_};
    bool moved_already_ = false;
    std::unique_ptr<store::Leadership> leadership_;
    std::unique_ptr<CatalogPart> catalog_;
    JobsPart jobs_;
    GslbPart gslb_;
    std::unique_ptr<ExecutorsPart> executors_; // needs the resources, and is needed by jobs and checks
    std::unique_ptr<NodeCommands> node_commands_;
    std::unique_ptr<api::StoreAdmin> admin_;
    std::unique_ptr<api::Api> api_;
    std::unique_ptr<net::HttpServer> doors_;
};

enum class Ending { failed, stopped, moved };

asio::awaitable<void> live(asio::io_context& loop, const Config& config, std::string version, Ending& ending) {
    const auto ctx = Context::background();
    Assembly assembly(loop, config, std::move(version));
    auto started = co_await assembly.start(ctx);
    if (!started.ok()) {
        log::error(ctx, "{}", started.error().text());
    } else {
        notify_service_manager("READY=1");
        ending = co_await assembly.wait(ctx) ? Ending::moved : Ending::stopped;
        if (ending == Ending::stopped) notify_service_manager("STOPPING=1");
    }
    co_await assembly.stop();
    log::info(ctx, "stopped");
}

} // namespace

int serve(const Config& config, const std::string& version) {
    std::signal(SIGPIPE, SIG_IGN);
    ::umask(0077);
    for (const auto& warning : config.warnings()) log::warn(Context::background(), "{}", warning);
    for (;;) {
        asio::io_context loop(1);
        Ending ending = Ending::failed;
        asio::co_spawn(loop, live(loop, config, version, ending), [](std::exception_ptr failure) {
            if (failure) std::rethrow_exception(failure);
        });
        loop.run();
        if (ending != Ending::moved) return ending == Ending::stopped ? 0 : 1;
        log::info(Context::background(), "the store has moved: starting again on the new one");
    }
}

} // namespace orrery::app
