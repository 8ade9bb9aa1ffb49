#include "app/gslb_component.h"

#include "app/checker.h"
#include "app/dns_providers.h"
#include "app/health_sources.h"
#include "app/settings.h"
#include "core/log.h"
#include "dns/authority.h"
#include "dns/notify.h"
#include "dns/query_log.h"
#include "dns/server.h"
#include "drivers/dns/name_servers.h"
#include "gslb/clients/client_classes.h"
#include "gslb/clients/geo_databases.h"
#include "gslb/model/kinds.h"
#include "gslb/observe/externaldns_source.h"
#include "gslb/observe/health_source.h"
#include "gslb/observe/health_watcher.h"
#include "gslb/observe/peer_vantages.h"
#include "gslb/observe/stored_watcher.h"
#include "gslb/publish/publication_controller.h"
#include "gslb/runtime/drain_executor.h"
#include "gslb/serve/name_service.h"
#include "gslb/serve/zone_serials.h"
#include "store/copy_age.h"

#include <fmt/format.h>

#include <random>

namespace orrery::app {

namespace {

dns::Authority::Options authority_options(const Config& config) {
    dns::Authority::Options options;
    options.nsid = options.identity = config.text("dns.id");
    options.version = config.text("dns.version");
    options.rate_limit = dns_rate_limit(config, "dns.listen");
    const auto networks = [&](const char* key, std::vector<dns::Prefix>& out) {
        for (const auto& text : config.list(key))
            if (const auto prefix = gslb::parse_prefix(text); prefix.ok()) out.push_back(*prefix);
    };
    networks("dns.transfer_to", options.transfer_to);
    if (!config.path("dns.query_log").empty() && !config.text("dns.listen").empty()) {
        options.query_log_capacity = 4096;
        options.query_log_sample_every = static_cast<std::uint32_t>(config.integer("dns.query_log_every"));
    }
    // The secret has the lifetime of the process; clients with an older cookie get a new one.
    dns::CookieSecret secret{};
    std::random_device random;
    for (auto& byte : secret) byte = static_cast<std::uint8_t>(random());
    options.cookie_secrets.push_back(secret);
    return options;
}

Result<std::optional<net::ProcessUser>> account_of_programs(const Config& config) {
    if (config.map("health.programs").empty()) return std::optional<net::ProcessUser>{};
    const auto& name = config.text("health.programs_user");
    auto account = net::account_named(name);
    if (!account.ok()) {
        auto error = std::move(account).error();
        error.code = Code::denied;
        error.remedy =
            error.message.starts_with("this process")
                ? "give the unit the capabilities, or use the account of the server: health.programs_user in docs/operations.md"
                : "name another account in health.programs_user";
        log::warn(Context::background(), "health.programs disabled: error={} remedy={}", error.message, error.remedy);
        return error;
    }
    if (!account->has_value())
        log::warn(Context::background(),
                  "health.programs run with the account of this server and can read the store and the sealing key: user={}", name);
    return account;
}

std::vector<std::filesystem::path> geo_databases(const Config& config) {
    const auto& files = config.list("dns.geo_databases");
    return {files.begin(), files.end()};
}

} // namespace

struct GslbComponent::State {
    struct Role {
        bool probes = true;  ///< this server probes members; otherwise it uses the results of other servers
        bool shared = false; ///< other servers may use the store
    };
    State(const Supervisor& components, const Config& config_, std::string server, resource::Resources& resources,
          store::Leadership& leadership, Clock& clock, net::OutboundRulesPtr outbound, Role role_)
        : loop(components.executor("dns")),
          time(clock),
          store(resources.store()),
          config(config_),
          role(role_),
          authority(std::make_shared<dns::Authority>(authority_options(config))),
          sources(components.executor("health"), resources, clock, outbound),
          watcher(components.executor("health"), clock, server, nullptr, &sources,
                  {.programs = config.map("health.programs"),
                   .account = account_of_programs(config),
                   .outbound = outbound,
                   .secrets = [&resources](std::string_view named) { return resources.reveal_named(named); }}),
          reports(resources, leadership, clock, watcher.board()),
          stored(role.probes ? nullptr : std::make_unique<gslb::StoredWatcher>(resources.store())),
          peers(role.probes && role.shared
                    ? std::make_unique<gslb::PeerVantages>(components.executor("health"), resources.store(), clock,
                                                           watcher.aggregator(), gslb::PeerVantages::Options{.server = server})
                    : nullptr),
          makers(components.executor("publication"), resources, clock, outbound),
          name_servers(drivers::name_servers()),
          geo(components.executor("gslb"), clock, {.files = geo_databases(config)}),
          names(components.executor("dns"), resources, leadership, clock, authority),
          publishing(components.executor("publication"), resources, leadership, clock, makers, name_servers.get()),
          sinks(all_of(config, names, publishing)),
          controller(components.executor("gslb"), resources, leadership, clock,
                     stored ? static_cast<gslb::Watcher&>(*stored) : watcher, &sinks,
                     {.server = std::move(server),
                      .records_kept = config.duration("dns.decisions_keep"),
                      .max_records = static_cast<std::size_t>(config.integer("dns.decisions_keep_at_most")),
                      .handover = role.shared && role.probes ? Duration(std::chrono::seconds(1)) : Duration::zero()},
                     &geo),
          draining(gslb::drain_executor(components.executor("gslb"), resources, controller, clock)) {
        if (role.probes)
            secrets =
                resources.store().observe("secrets/", [this](const store::Event&) { watcher.aggregator().refresh_secrets(); });
        if (!role.probes) watcher.aggregator().disable("this server does not probe: server.run has no controllers");
    }

    static gslb::AnswerPublishers all_of(const Config& config, gslb::NameService& names, gslb::PublicationController& publishing) {
        gslb::AnswerPublishers out;
        if (!config.text("dns.listen").empty()) out.add(names);
        out.add(publishing);
        return out;
    }

    asio::any_io_executor loop;
    Clock& time;
    const store::Store& store;
    const Config& config;
    const Role role;
    std::shared_ptr<dns::Authority> authority;
    DriverHealthSources sources;
    gslb::HealthWatcher watcher;
    gslb::Reports reports;
    std::unique_ptr<gslb::StoredWatcher> stored;
    std::unique_ptr<gslb::PeerVantages> peers;
    DriverDnsProviders makers;
    std::unique_ptr<gslb::NameServers> name_servers;
    gslb::GeoDatabases geo;
    gslb::NameService names;
    gslb::PublicationController publishing;
    gslb::AnswerPublishers sinks;
    gslb::Controller controller;
    std::unique_ptr<jobs::Executor> draining;
    std::unique_ptr<dns::Server> dns_server;
    std::unique_ptr<dns::Notifier> notify;
    std::unique_ptr<dns::QueryLog> log;
    std::shared_ptr<void> secrets; ///< observer of Secrets
};

namespace {

constexpr auto check_staleness_every = std::chrono::milliseconds(250);

/// Answers SERVFAIL while the copy of the store is older than `limit`. Runs until cancelled.
asio::awaitable<void> suspend_while_stale(Context ctx, Clock& clock, const store::Store& store, Duration limit,
                                          std::shared_ptr<dns::Authority> authority) {
    while ((co_await clock.sleep(check_staleness_every)).ok()) {
        const auto age = store::copy_age(store);
        const bool stale = age > limit;
        if (stale == authority->is_suspended()) continue;
        authority->suspend(stale);
        if (stale)
            log::warn(ctx, "DNS suspended with SERVFAIL: the copy of the store is older than dns.stale_after; age_s={}",
                      std::chrono::duration_cast<std::chrono::seconds>(age).count());
        else
            log::info(ctx, "DNS resumed: the copy of the store is up to date");
    }
}

} // namespace

GslbComponent::GslbComponent(ServerEnvironment& environment, Dependencies dependencies)
    : environment_(environment), dependencies_(dependencies) {}
GslbComponent::~GslbComponent() = default;

Task<Unit> GslbComponent::start(Context ctx) {
    const auto& config = environment_.config;
    auto& store = dependencies_.store;
    if (!config.text("dns.listen").empty()) {
        CO_TRY(std::ignore, co_await gslb::ZoneSerials::prepare(ctx, store.store(), environment_.clock));
    }
    state_ = std::make_unique<State>(environment_.supervisor, config, environment_.server_name, store.resources(),
                                     dependencies_.leadership.leadership(), environment_.clock, dependencies_.outbound.rules(),
                                     State::Role{.probes = environment_.runs_controllers, .shared = store.is_shared()});
    dependencies_.job_executors.add(*state_->draining);
    CO_TRY(std::ignore, configure_vantages());
    start_tasks(ctx);
    co_return start_dns(ctx);
}

/// The nodes that probe as further vantages, and the canaries of this server.
Result<Unit> GslbComponent::configure_vantages() {
    if (!state_->role.probes) return Unit{};
    const auto& config = environment_.config;
    std::vector<health::CheckSpec> canaries;
    for (const auto& text : config.list("health.canaries")) {
        TRY(auto canary, read_canary(text));
        canaries.push_back(std::move(canary));
    }
    TRY(std::ignore, aggregator().set_canaries(std::move(canaries)));
    aggregator().set_nodes(config.list("health.nodes"), dependencies_.executors.node_commands());
    return Unit{};
}

void GslbComponent::start_tasks(const Context& ctx) {
    auto* state = state_.get();
    auto& supervisor = environment_.supervisor;
    supervisor.start("health", [state, ctx](TaskGroup& group) {
        if (state->role.probes) group.spawn(state->watcher.run(ctx));
        if (state->peers) group.spawn(state->peers->run(ctx));
    });
    supervisor.start("gslb", [state, ctx](TaskGroup& group) {
        group.spawn(state->geo.run(ctx));
        group.spawn(state->controller.run(ctx));
        group.spawn(state->reports.run(ctx));
    });
    supervisor.start("publication", [state, ctx](TaskGroup& group) { group.spawn(state->publishing.run(ctx)); });
}

namespace {

std::unique_ptr<dns::Notifier> make_notifier(const Config& config, const std::string& listen_host,
                                             const asio::any_io_executor& loop, Clock& clock, gslb::NameService& names,
                                             std::shared_ptr<dns::Authority> authority) {
    dns::Notifier::Options options;
    for (const auto& text : config.list("dns.notify"))
        if (const auto secondary = dns::Notifier::parse(text); secondary.ok()) options.secondaries.push_back(*secondary);
    if (options.secondaries.empty()) return nullptr;
    // Secondaries recognize this server by the address it answers from.
    boost::system::error_code error;
    if (const auto from = asio::ip::make_address(listen_host, error); !error && !from.is_unspecified()) options.from = from;
    options.upcoming_serial = [service = &names] { return service->upcoming_serial(); };
    options.on_ahead = [service = &names](auto ahead) { service->set_secondaries_ahead(std::move(ahead)); };
    return std::make_unique<dns::Notifier>(loop, clock, std::move(authority), std::move(options));
}

} // namespace

Result<Unit> GslbComponent::start_dns(const Context& ctx) {
    auto* state = state_.get();
    const auto& config = environment_.config;
    const auto& listen = config.text("dns.listen");
    if (listen.empty()) return Unit{};
    TRY(const auto address, parse_listen(listen));
    state->dns_server = std::make_unique<dns::Server>(
        dns::Server::Options{
            .address = address.host, .port = address.port, .threads = static_cast<int>(config.integer("dns.threads"))},
        state->authority);
    // Decide all names first: resolvers would cache NXDOMAIN for a name without a decision.
    state->controller.decide_now();
    TRY(std::ignore, state->dns_server->start());
    log::info(ctx, "authoritative DNS server listens: address={} port={}", address.host, state->dns_server->port());
    if (const auto file = config.path("dns.query_log"); !file.empty()) {
        state->log = std::make_unique<dns::QueryLog>(
            state->authority, dns::QueryLog::Options{.file = file.string(), .max_file_bytes = config.bytes("dns.query_log_size")});
        TRY(std::ignore, state->log->start());
    }
    state->notify = make_notifier(config, address.host, state->loop, state->time, state->names, state->authority);
    environment_.supervisor.start("dns", [state, ctx](TaskGroup& group) {
        group.spawn(state->names.run(ctx));
        if (state->config.text("dns.stale") == "servfail")
            group.spawn(
                suspend_while_stale(ctx, state->time, state->store, state->config.duration("dns.stale_after"), state->authority));
        if (state->notify) group.spawn(state->notify->run(ctx));
    });
    return Unit{};
}

asio::awaitable<void> GslbComponent::drain(Duration grace) {
    if (state_ && state_->dns_server) state_->dns_server->stop();
    if (state_ && state_->log) state_->log->stop();
    co_return;
}

asio::awaitable<void> GslbComponent::stop() {
    if (!state_) co_return;
    co_await state_->makers.stop();
    co_await state_->sources.stop();
    state_.reset();
}

gslb::Controller& GslbComponent::controller() { return state_->controller; }
health::HealthAggregator& GslbComponent::aggregator() { return state_->watcher.aggregator(); }

std::vector<std::pair<std::string, double>> GslbComponent::gauges() const {
    if (!state_) return {};
    auto out = state_->controller.gauges();
    for (auto& gauge : state_->geo.gauges()) out.push_back(std::move(gauge));
    const auto counts = state_->watcher.counts();
    out.emplace_back("orrery_gslb_probe_targets", static_cast<double>(counts.checks));
    out.emplace_back("orrery_gslb_probes_total", static_cast<double>(counts.probes));
    out.emplace_back("orrery_gslb_probes_skipped_total", static_cast<double>(counts.skipped));
    out.emplace_back("orrery_gslb_members_unchecked", static_cast<double>(state_->watcher.unchecked()));
    if (!state_->dns_server) return out;
    out.emplace_back("orrery_gslb_zones", static_cast<double>(state_->names.zones()));
    out.emplace_back("orrery_gslb_names", static_cast<double>(state_->names.names()));
    const auto queries = state_->authority->statistics();
    out.emplace_back("orrery_zone_queries_total", static_cast<double>(queries.queries));
    out.emplace_back("orrery_zone_truncated_total", static_cast<double>(queries.truncated));
    out.emplace_back("orrery_zone_rate_limited_total", static_cast<double>(queries.rate_limited));
    out.emplace_back("orrery_zone_slipped_total", static_cast<double>(queries.slipped));
    out.emplace_back("orrery_zone_rate_limit", static_cast<double>(dns_rate_limit(state_->config, "dns.listen").per_second));
    out.emplace_back("orrery_zone_malformed_total", static_cast<double>(queries.malformed));
    out.emplace_back("orrery_zone_suspended", state_->authority->is_suspended() ? 1.0 : 0.0);
    if (state_->log) {
        const auto logged = state_->log->counts();
        out.emplace_back("orrery_zone_queries_logged_total", static_cast<double>(logged.written));
        out.emplace_back("orrery_zone_query_log_dropped_total", static_cast<double>(logged.lost + queries.query_log_dropped));
    }
    if (state_->notify) {
        const auto notifies = state_->notify->counts();
        out.emplace_back("orrery_zone_notifies_sent_total", static_cast<double>(notifies.sent));
        out.emplace_back("orrery_zone_notifies_confirmed_total", static_cast<double>(notifies.confirmed));
        out.emplace_back("orrery_zone_notifies_refused_total", static_cast<double>(notifies.refused));
        out.emplace_back("orrery_zone_notifies_given_up_total", static_cast<double>(notifies.given_up));
        out.emplace_back("orrery_zone_notifies_pending", static_cast<double>(notifies.pending));
        out.emplace_back("orrery_zone_secondaries_ahead", static_cast<double>(notifies.ahead));
    }
    return out;
}

} // namespace orrery::app
