#include "app/catalog_component.h"

#include "api/facades/consul/consul_facade.h"
#include "app/settings.h"
#include "catalog/explain.h"
#include "core/log.h"
#include "dns/rate_limited_responder.h"
#include "dns/server.h"
#include "drivers/consul/consul.h"
#include "net/http_client.h"
#include "net/http_server.h"

#include <fmt/format.h>

namespace orrery::app {

namespace {

/// The members of a Consul. For instances that this server writes to Consul the evidence is that of its own checks: after a start,
/// Consul still shows the old results.
class ConsulWithOwnEvidence final : public catalog::Membership {
public:
    ConsulWithOwnEvidence(catalog::Membership& consul, catalog::Catalog& own) : consul_(consul), own_(own) {}
    Result<catalog::Members> members(std::string_view service, std::string_view tag) const override {
        TRY(auto found, consul_.members(service, tag));
        TRY(std::ignore, own_.members(service, tag)); // starts the checks
        for (auto& member : found.all) member.evidence = own_.evidence(member.node, member.id);
        return found;
    }
    std::shared_ptr<void> subscribe(std::function<void(const std::string&)> changed) override {
        return std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(consul_.subscribe(changed),
                                                                                         own_.subscribe(changed));
    }
    std::shared_ptr<void> follow(std::string_view service) override { return consul_.follow(service); }

private:
    catalog::Membership& consul_;
    catalog::Catalog& own_;
};

} // namespace

struct CatalogComponent::State {
    State(ServerEnvironment& environment_, Dependencies& dependencies)
        : environment(environment_),
          config(environment_.config),
          resources(dependencies.store.resources()),
          identity(dependencies.identity.identity()),
          leadership(dependencies.leadership.leadership()),
          catalog(resources.store()) {}

    ServerEnvironment& environment;
    const Config& config;
    resource::Resources& resources;
    identity::Identity& identity;
    store::Leadership& leadership;
    catalog::Catalog catalog;
    std::unique_ptr<catalog::Checker> checker;
    std::unique_ptr<net::HttpClient> consul_client;
    std::unique_ptr<drivers::ConsulMembership> consul;
    std::unique_ptr<ConsulWithOwnEvidence> consul_members; ///< with `consul`
    std::unique_ptr<drivers::ConsulMirror> mirror;
    std::unique_ptr<api::consul::ConsulFacade> facade;
    std::unique_ptr<net::HttpServer> http_server;
    std::shared_ptr<dns::RateLimitedResponder> dns_limit;
    std::unique_ptr<dns::Server> dns_server;

    /// Connects to the Consul that the configuration names.
    Result<Unit> connect_consul(const asio::any_io_executor& component, bool writes) {
        if (config.text("catalog.consul.url").empty()) return Unit{};
        TRY(auto tls, net::tls_client({.ca = config.path("catalog.consul.ca")}));
        consul_client = std::make_unique<net::HttpClient>(environment.executor, net::HttpClient::Options{.tls = std::move(tls)});
        drivers::ConsulOptions options;
        options.url = config.text("catalog.consul.url");
        options.allow_plaintext = config.boolean("catalog.consul.allow_plaintext");
        options.datacenter = config.text("catalog.consul.datacenter");
        TRY(const auto token, config.secret("catalog.consul.token_file"));
        options.token = token.value_or("");
        TRY(consul, drivers::ConsulMembership::make(component, *consul_client, environment.clock, options));
        consul_members = std::make_unique<ConsulWithOwnEvidence>(*consul, catalog);
        if (writes)
            mirror = std::make_unique<drivers::ConsulMirror>(resources.store(), *consul_client, catalog, leadership,
                                                             environment.clock, options);
        return Unit{};
    }

    Result<api::consul::ConsulFacadeOptions> facade_options() const {
        api::consul::ConsulFacadeOptions options;
        options.node = environment.server_name;
        options.address = config.text("catalog.address");
        options.datacenter = config.text("catalog.datacenter");
        options.domain = config.text("catalog.dns.domain");
        TRY(options.anonymous, config.text("catalog.http.anonymous") == "nobody"
                                   ? Result<resource::Role>(resource::Role::nobody)
                                   : resource::parse_role(config.text("catalog.http.anonymous")));
        options.dns_only_passing = config.boolean("catalog.dns.only_passing");
        options.dns_truncate = config.boolean("catalog.dns.truncate");
        options.dns_udp_answers = static_cast<int>(config.integer("catalog.dns.udp_answers"));
        options.dns_node_ttl = static_cast<std::uint32_t>(config.duration("catalog.dns.node_ttl") / std::chrono::seconds(1));
        options.dns_service_ttl = static_cast<std::uint32_t>(config.duration("catalog.dns.service_ttl") / std::chrono::seconds(1));
        // Connections for requests that do not block must remain.
        options.max_blocked = static_cast<std::size_t>(config.integer("limits.max_connections")) * 3 / 4;
        options.version = environment.version;
        return options;
    }

    /// Starts the listeners for clients of Consul that the configuration asks for.
    Result<Unit> start_listeners(const Context& ctx, const asio::any_io_executor& component) {
        const auto& http = config.text("catalog.http.listen");
        const auto& dns = config.text("catalog.dns.listen");
        if (http.empty() && dns.empty()) return Unit{};
        TRY(auto options, facade_options());
        facade = std::make_unique<api::consul::ConsulFacade>(component, resources, catalog, *checker, identity, leadership,
                                                             environment.clock, std::move(options));
        if (!http.empty()) {
            TRY(std::ignore, start_http(ctx, http));
        }
        if (dns.empty()) return Unit{};
        TRY(const auto address, parse_listen(dns));
        dns_limit = std::make_shared<dns::RateLimitedResponder>(facade->dns(), dns_rate_limit(config, "catalog.dns.listen"),
                                                                environment.clock);
        dns_server = std::make_unique<dns::Server>(dns::Server::Options{.address = address.host, .port = address.port}, dns_limit);
        TRY(std::ignore, dns_server->start());
        log::info(ctx, "catalog DNS server listens: address={} port={} domain={}", address.host, dns_server->port(),
                  config.text("catalog.dns.domain"));
        return Unit{};
    }

    Result<Unit> start_http(const Context& ctx, const std::string& listen) {
        TRY(const auto address, parse_listen(listen));
        net::HttpServer::Options options;
        options.address = address.host;
        options.port = address.port;
        options.tls = environment.tls;
        options.max_body = api::consul::ConsulFacade::max_body;
        options.max_connections = static_cast<std::size_t>(config.integer("limits.max_connections"));
        options.request_timeout = api::consul::ConsulFacade::request_timeout;
        options.on_error = facade->on_error();
        http_server = std::make_unique<net::HttpServer>(environment.executor, std::move(options), facade->handler());
        TRY(std::ignore, http_server->start());
        log::info(ctx, "Consul API listens: url={}://{}:{}", environment.tls ? "https" : "http", address.host, http_server->port());
        return Unit{};
    }
};

CatalogComponent::CatalogComponent(ServerEnvironment& environment, Dependencies dependencies)
    : environment_(environment), dependencies_(dependencies) {}
CatalogComponent::~CatalogComponent() = default;

Task<Unit> CatalogComponent::start(Context ctx) {
    state_ = std::make_unique<State>(environment_, dependencies_);
    auto& state = *state_;
    const auto component = environment_.supervisor.executor("catalog");
    state.checker = std::make_unique<catalog::Checker>(
        component, state.resources, state.catalog, state.leadership, environment_.clock,
        catalog::Checker::Options{
            .commands = &dependencies_.executors.node_commands(),
            .secrets = [&resources = state.resources](std::string_view named) { return resources.reveal_named(named); },
            .outbound = dependencies_.outbound.rules()});
    CO_TRY(std::ignore, state.connect_consul(component, environment_.runs_controllers));
    if (environment_.runs_api) {
        CO_TRY(std::ignore, state.start_listeners(ctx, component));
    }
    environment_.supervisor.start("catalog", [&state, ctx](TaskGroup& group) {
        if (state.environment.runs_controllers) group.spawn(state.checker->run(ctx));
        if (state.consul) group.spawn(state.consul->run(ctx));
        if (state.mirror) group.spawn(state.mirror->run(ctx));
        if (state.facade) group.spawn(state.facade->run(ctx));
    });
    co_return Unit{};
}

asio::awaitable<void> CatalogComponent::drain(Duration grace) {
    if (!state_) co_return;
    if (state_->dns_server) state_->dns_server->stop();
    if (state_->http_server) co_await state_->http_server->stop(grace);
    if (state_->consul_client) co_await state_->consul_client->stop();
}

asio::awaitable<void> CatalogComponent::stop() {
    state_.reset();
    co_return;
}

catalog::Membership& CatalogComponent::membership() {
    if (state_->consul_members) return *state_->consul_members;
    return state_->catalog;
}

void CatalogComponent::add_explainers(resource::Explainers& explainers) {
    catalog::add_explainers(explainers, state_->resources, state_->catalog, membership(), state_->leadership);
}

const catalog::Catalog& CatalogComponent::catalog() const { return state_->catalog; }
bool CatalogComponent::follows_consul() const { return state_->consul != nullptr; }

std::vector<std::pair<std::string, double>> CatalogComponent::gauges() const {
    std::vector<std::pair<std::string, double>> out;
    if (state_->checker) {
        const auto counts = state_->checker->counts();
        out.emplace_back("orrery_checks_watched", static_cast<double>(counts.checks));
        out.emplace_back("orrery_checks_running", static_cast<double>(counts.running));
        out.emplace_back("orrery_checks_total", static_cast<double>(counts.probes));
        out.emplace_back("orrery_checks_late_total", static_cast<double>(counts.skipped));
        out.emplace_back("orrery_checks_local_errors_total", static_cast<double>(counts.local_errors));
    }
    if (state_->dns_server) {
        const auto counts = state_->dns_server->counts();
        out.emplace_back("orrery_dns_udp_queries_total", static_cast<double>(counts.udp_queries));
        out.emplace_back("orrery_dns_tcp_queries_total", static_cast<double>(counts.tcp_queries));
        out.emplace_back("orrery_dns_dropped_total", static_cast<double>(counts.dropped));
        const auto limited = state_->dns_limit->counts();
        out.emplace_back("orrery_dns_rate_limited_total", static_cast<double>(limited.dropped));
        out.emplace_back("orrery_dns_slipped_total", static_cast<double>(limited.truncated));
    }
    return out;
}

} // namespace orrery::app
