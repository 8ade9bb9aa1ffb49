#include "app/server.h"

#include "app/api_component.h"
#include "app/catalog_component.h"
#include "app/executors_component.h"
#include "app/gslb_component.h"
#include "app/identity_component.h"
#include "app/jobs_component.h"
#include "app/leadership_component.h"
#include "app/outbound_component.h"
#include "app/server_component.h"
#include "app/service_manager.h"
#include "app/settings.h"
#include "app/store_component.h"
#include "core/log.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <sys/stat.h>
#include <unistd.h>

namespace orrery::app {

namespace {

bool runs(const Config& config, std::string_view part) {
    const auto& parts = config.list("server.run");
    return std::find(parts.begin(), parts.end(), part) != parts.end();
}

net::TlsServerOptions tls_files(const Config& config) {
    return {.certificate = config.path("server.tls.certificate"),
            .key = config.path("server.tls.key"),
            .client_ca = config.path("server.tls.client_ca"),
            .require_client_certificate = !config.path("server.tls.client_ca").empty()};
}

/// Null: no certificate, plain HTTP.
Result<std::shared_ptr<net::TlsContext>> server_tls(const Config& config) {
    if (config.path("server.tls.certificate").empty()) return std::shared_ptr<net::TlsContext>{};
    return net::tls_server(tls_files(config));
}

enum class Outcome { failed, stopped, migrated };

/// The server on one store: its components, and their life cycle.
class Server {
public:
    Server(asio::io_context& loop, const Config& config, std::string version)
        : config_(config),
          executor_(loop.get_executor()),
          supervisor_(loop, {}, [this](const Supervisor::Status& status) { raise_alarm(status); }),
          pool_(2),
          tasks_(executor_),
          environment_{.config = config,
                       .version = std::move(version),
                       .server_name = server_name(config),
                       .executor = executor_,
                       .clock = real_clock(),
                       .supervisor = supervisor_,
                       .pool = pool_,
                       .tasks = tasks_,
                       .tls = {},
                       .runs_api = runs(config, "api"),
                       .runs_controllers = runs(config, "controllers")} {
        // The failure domains. The store, the election and the listeners belong to "server": the process cannot work without them.
        supervisor_.add("server", Supervisor::Policy::terminal).own_unmarked();
        for (const auto* name : {"api", "executors"}) supervisor_.add(name, Supervisor::Policy::carry_on);
        for (const auto* name : {"catalog", "dns", "garbage_collection", "gslb", "health", "jobs", "publication"})
            supervisor_.add(name, Supervisor::Policy::restart);
    }

    /// Starts all components in the order of the table.
    Task<Unit> start(Context ctx) {
        CO_TRY(environment_.tls, server_tls(config_));
        co_return co_await components_.start(ctx);
    }

    /// Waits for a signal, for a migration of the store, or for a failure that the server cannot survive.
    asio::awaitable<Outcome> wait(Context ctx) {
        asio::signal_set signals(executor_, SIGTERM, SIGINT);
        int signal = 0;
        signals.async_wait([&](boost::system::error_code error, int number) {
            if (error) return;
            signal = number;
            woken_.notify_all();
        });
        while (signal == 0 && !migrated_ && !failed_) std::ignore = co_await woken_.wait(ctx);
        signals.cancel();
        if (signal != 0) log::info(ctx, "server stops on signal: signal={}", signal == SIGTERM ? "SIGTERM" : "SIGINT");
        if (signal != 0) co_return Outcome::stopped;
        if (migrated_) co_return Outcome::migrated;
        // The orderly stop can hang on the component that failed; the alarm ends the process then. The service manager restarts it.
        log::error(ctx, "server stops after a failure of its component \"server\"");
        ::alarm(static_cast<unsigned>(config_.duration("server.shutdown_grace") / std::chrono::seconds(1)) + 20);
        co_return Outcome::failed;
    }

    /// Applies the settings that can change at run time: certificates. The caller has applied the log settings.
    void reload(const Context& ctx, const Config& fresh) {
        if (!environment_.tls || fresh.path("server.tls.certificate").empty()) return;
        if (auto done = net::reload_tls(*environment_.tls, tls_files(fresh)); !done.ok())
            log::error(ctx, "reload of certificates failed; the old ones stay: error={}", done.error().text());
        else
            log::info(ctx, "certificates reloaded: file={}", fresh.path("server.tls.certificate").string());
    }

    /// Stops all started components in reverse order; see ServerComponent.
    asio::awaitable<void> stop() {
        co_await components_.drain(config_.duration("server.shutdown_grace"));
        co_await supervisor_.stop();
        co_await tasks_.stop(); // after all controllers: the end of these tasks releases the lease of the leader
        co_await components_.stop();
        pool_.join();
    }

private:
    void raise_alarm(const Supervisor::Status& status) {
        const auto ctx = Context::make("supervisor");
        if (store_.is_started()) tasks_.spawn(record_alarm(ctx, status));
        if (status.policy == Supervisor::Policy::terminal) {
            failed_ = true;
            woken_.notify_all();
        }
        // Another server may not have the cause of the failure. A single server continues with the components that work.
        if (status.state == Supervisor::State::failed && status.policy == Supervisor::Policy::restart && leadership_.is_started() &&
            store_.is_shared())
            leadership_.leadership().yield(
                fmt::format("its component {} failed {} times in a row", status.component, status.failures));
    }

    asio::awaitable<void> record_alarm(Context ctx, Supervisor::Status status) {
        boost::json::object evidence{
            {"component", status.component}, {"state", std::string(name_of(status.state))}, {"failures", status.failures}};
        if (status.retry_in > Duration{}) evidence["retry_in"] = to_text(status.retry_in);
        std::ignore = co_await store_.resources().record(ctx, {.subject = "Server/" + environment_.server_name,
                                                               .action = "component-failed",
                                                               .reason = status.message,
                                                               .evidence = std::move(evidence)});
    }

    const Config& config_;
    asio::any_io_executor executor_;
    Supervisor supervisor_;
    Pool pool_;
    TaskGroup tasks_;
    ServerEnvironment environment_;
    Notifier woken_{executor_};
    bool migrated_ = false, failed_ = false;

    // Ports that connect components: executors and the catalog, for the job engine.
    jobs::Executors job_executors_;
    FollowedCatalog job_membership_;

    StoreComponent store_{
        environment_,
        [this](resource::Registry& registry) { add_job_kinds(registry, job_executors_, job_membership_, environment_.clock); },
        [this] {
            migrated_ = true;
            woken_.notify_all();
        }};
    IdentityComponent identity_{environment_, store_};
    LeadershipComponent leadership_{environment_, store_, identity_};
    OutboundComponent outbound_{environment_, store_};
    ExecutorsComponent executors_{environment_, store_, outbound_, job_executors_};
    GslbComponent gslb_{environment_, {store_, leadership_, outbound_, executors_, job_executors_}};
    CatalogComponent catalog_{environment_, {store_, identity_, leadership_, outbound_, executors_}};
    JobsComponent jobs_{environment_, {store_, leadership_, catalog_, executors_, job_executors_, job_membership_}};
    ApiComponent api_{environment_, {store_, identity_, leadership_, executors_, gslb_, catalog_, jobs_}};

    /// In the order of start.
    ComponentSequence components_{{&store_, &identity_, &leadership_, &outbound_, &executors_, &gslb_, &catalog_, &jobs_, &api_}};
};

/// Reads the configuration again on SIGHUP. It exists for as long as the loop runs: without a handler the signal would end the
/// process.
class Reloader {
public:
    Reloader(asio::io_context& loop, std::function<Result<Config>()> read) : signals_(loop, SIGHUP), read_(std::move(read)) {
        wait();
    }

    /// Null before the server has started and while it stops: then only the log settings are reloaded.
    void set_server(Server* server) { server_ = server; }

private:
    void wait() {
        signals_.async_wait([this](boost::system::error_code error, int) {
            if (error) return;
            reload();
            wait();
        });
    }
    void reload() {
        const auto ctx = Context::background();
        const auto fresh = read_();
        if (!fresh.ok()) return log::error(ctx, "reload failed; all settings stay: error={}", fresh.error().text());
        log::info(ctx,
                  "configuration reloaded on SIGHUP; settings other than the log and certificates need a restart: log_level={}",
                  fresh->text("log.level"));
        if (server_ != nullptr) server_->reload(ctx, *fresh);
    }

    asio::signal_set signals_;
    std::function<Result<Config>()> read_;
    Server* server_ = nullptr;
};

asio::awaitable<void> run_server_once(asio::io_context& loop, const Config& config, std::string version, Reloader& reloader,
                                      Outcome& outcome) {
    const auto ctx = Context::background();
    Server server(loop, config, std::move(version));
    auto started = co_await server.start(ctx);
    if (!started.ok()) {
        log::error(ctx, "{}", started.error().text());
    } else {
        reloader.set_server(&server);
        notify_service_manager("READY=1");
        outcome = co_await server.wait(ctx);
        if (outcome != Outcome::migrated) notify_service_manager("STOPPING=1");
    }
    reloader.set_server(nullptr);
    co_await server.stop();
    log::info(ctx, "stopped");
}

/// Runs the loop until no work is left. An exception of a handler is a failure of its component, and the server stops in order.
void run_loop(asio::io_context& loop) {
    for (;;) try {
            loop.run();
            return;
        } catch (...) {
            const auto component = Component::of(loop.get_executor());
            if (!component) throw;
            component->fail(describe_failure(std::current_exception()));
        }
}

} // namespace

int serve(const Config& config, const std::string& version, std::function<Result<Config>()> reload) {
    std::signal(SIGPIPE, SIG_IGN);
    ::umask(0077);
    for (const auto& warning : config.warnings()) log::warn(Context::background(), "{}", warning);
    for (const auto& warning : config_warnings(config)) log::warn(Context::background(), "{}", warning);
    for (;;) {
        asio::io_context loop(1);
        Outcome outcome = Outcome::failed;
        std::optional<Reloader> reloader(std::in_place, loop, reload);
        asio::co_spawn(loop, run_server_once(loop, config, version, *reloader, outcome), [&reloader](std::exception_ptr failure) {
            reloader.reset(); // otherwise the loop would wait for the next signal
            std::signal(SIGHUP, SIG_IGN);
            if (failure) std::rethrow_exception(failure);
        });
        run_loop(loop);
        if (outcome != Outcome::migrated) return outcome == Outcome::stopped ? 0 : 1;
        log::info(Context::background(), "store migrated; restarting on the new store");
    }
}

} // namespace orrery::app
