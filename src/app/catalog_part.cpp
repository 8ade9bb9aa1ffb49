#include "app/catalog_part.h"

#include "api/facades/consul/view.h"
#include "app/settings.h"
#include "core/log.h"
#include "dns/server.h"
#include "drivers/consul/consul.h"
#include "net/http_client.h"
#include "net/http_server.h"

#include <fmt/format.h>

namespace orrery::app {

struct CatalogPart::State {
    asio::any_io_executor executor;
    const Config& config;
    resource::Resources& resources;
    identity::Identity& identity;
    store::Leadership& leadership;
    Clock& clock;
    std::string version;
    catalog::Catalog catalog;
    std::unique_ptr<catalog::Checker> checker;
    std::unique_ptr<net::HttpClient> consul_client;
    std::unique_ptr<drivers::ConsulMembership> consul;
    std::unique_ptr<drivers::ConsulMirror> mirror;
    std::unique_ptr<api::consul::View> view;
    std::unique_ptr<net::HttpServer> door;
    std::unique_ptr<dns::Server> dns;

    Result<Unit> join_consul(Context ctx, TaskGroup& group, bool writes) {
        if (config.text("catalog.consul.url").empty()) return Unit{};
        TRY(auto tls, net::tls_client({.ca = config.path("catalog.consul.ca")}));
        consul_client = std::make_unique<net::HttpClient>(executor, net::HttpClient::Options{.tls = std::move(tls)});
        drivers::ConsulOptions options;
        options.url = config.text("catalog.consul.url");
        options.datacenter = config.text("catalog.consul.datacenter");
        TRY(const auto token, config.secret("catalog.consul.token_file"));
        options.token = token.value_or("");
        TRY(consul, drivers::ConsulMembership::make(executor, *consul_client, clock, options));
        group.spawn(consul->run(ctx));
        if (writes) {
            mirror =
                std::make_unique<drivers::ConsulMirror>(resources.store(), *consul_client, catalog, leadership, clock, options);
            group.spawn(mirror->run(ctx));
        }
        return Unit{};
    }

    Result<Unit> open_doors(Context ctx, TaskGroup& group, std::shared_ptr<net::TlsContext> tls) {
        const auto& http = config.text("catalog.http.listen");
        const auto& names = config.text("catalog.dns.listen");
        if (http.empty() && names.empty()) return Unit{};
        api::consul::ViewOptions options;
        options.node = server_name(config);
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
        // So that whoever does not wait still gets in.
        options.max_blocked = static_cast<std::size_t>(config.integer("limits.max_connections")) * 3 / 4;
        options.version = version;
        view = std::make_unique<api::consul::View>(executor, resources, catalog, *checker, identity, leadership, clock,
                                                   std::move(options));
        group.spawn(view->run(ctx));
        if (!http.empty()) {
            TRY(const auto address, parse_listen(http));
            net::HttpServer::Options server;
            server.address = address.host;
            server.port = address.port;
            server.tls = tls;
            server.max_body = api::consul::View::max_body;
            server.max_connections = static_cast<std::size_t>(config.integer("limits.max_connections"));
            server.request_timeout = api::consul::View::request_timeout;
            server.on_error = view->on_error();
            door = std::make_unique<net::HttpServer>(executor, std::move(server), view->handler());
            TRY(std::ignore, door->start());
            log::info(ctx, "Consul's clients are served at {}://{}:{}", tls ? "https" : "http", address.host, door->port());
        }
        if (!names.empty()) {
            TRY(const auto address, parse_listen(names));
            dns = std::make_unique<dns::Server>(dns::Server::Options{.address = address.host, .port = address.port}, view->dns());
            TRY(std::ignore, dns->start());
            log::info(ctx, "names below {} are answered at {}:{}", config.text("catalog.dns.domain"), address.host, dns->port());
        }
        return Unit{};
    }
};

CatalogPart::CatalogPart(asio::any_io_executor executor, const Config& config, resource::Resources& resources,
                         identity::Identity& identity, store::Leadership& leadership, Clock& clock, std::string version)
    : state_(new State{executor,
                       config,
                       resources,
                       identity,
                       leadership,
                       clock,
                       std::move(version),
                       catalog::Catalog(resources.store()),
                       {},
                       {},
                       {},
                       {},
                       {},
                       {},
                       {}}) {}

CatalogPart::~CatalogPart() = default;

Result<Unit> CatalogPart::start(Context ctx, TaskGroup& group, std::shared_ptr<net::TlsContext> tls,
                                health::CommandRunner* commands, Runs runs) {
    auto& state = *state_;
    state.checker = std::make_unique<catalog::Checker>(state.executor, state.resources, state.catalog, state.leadership,
                                                       state.clock, catalog::Checker::Options{.commands = commands});
    if (runs.checks) group.spawn(state.checker->run(ctx));
    TRY(std::ignore, state.join_consul(ctx, group, runs.checks));
    if (runs.doors) {
        TRY(std::ignore, state.open_doors(ctx, group, std::move(tls)));
    }
    return Unit{};
}

asio::awaitable<void> CatalogPart::stop(Duration grace) {
    if (state_->dns) state_->dns->stop();
    if (state_->door) co_await state_->door->stop(grace);
    if (state_->consul_client) co_await state_->consul_client->stop();
}

catalog::Membership& CatalogPart::membership() {
    if (state_->consul) return *state_->consul;
    return state_->catalog;
}

std::vector<std::pair<std::string, double>> CatalogPart::gauges() const {
    std::vector<std::pair<std::string, double>> out;
    if (state_->checker) {
        const auto counts = state_->checker->counts();
        out.emplace_back("orrery_checks_watched", static_cast<double>(counts.watched));
        out.emplace_back("orrery_checks_running", static_cast<double>(counts.looking));
        out.emplace_back("orrery_checks_total", static_cast<double>(counts.looks));
        out.emplace_back("orrery_checks_late_total", static_cast<double>(counts.late));
        out.emplace_back("orrery_checks_local_errors_total", static_cast<double>(counts.local_errors));
    }
    if (state_->dns) {
        const auto counts = state_->dns->counts();
        out.emplace_back("orrery_dns_udp_queries_total", static_cast<double>(counts.udp_queries));
        out.emplace_back("orrery_dns_tcp_queries_total", static_cast<double>(counts.tcp_queries));
        out.emplace_back("orrery_dns_dropped_total", static_cast<double>(counts.dropped));
    }
    return out;
}

} // namespace orrery::app
