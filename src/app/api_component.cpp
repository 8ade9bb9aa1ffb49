#include "app/api_component.h"

#include "app/first_login.h"
#include "app/settings.h"
#include "core/log.h"
#include "fleet/planner.h"
#include "gslb/runtime/explain.h"
#include "jobs/explain.h"
#include "resource/kinds.h"

namespace orrery::app {

namespace {

api::Anonymous anonymous_access(const Config& config, std::string_view setting) {
    const auto& text = config.text(setting);
    return text == "always" ? api::Anonymous::always : text == "never" ? api::Anonymous::never : api::Anonymous::loopback;
}

} // namespace

ApiComponent::ApiComponent(ServerEnvironment& environment, Dependencies dependencies)
    : environment_(environment), dependencies_(dependencies) {}
ApiComponent::~ApiComponent() = default;

Task<Unit> ApiComponent::start(Context ctx) {
    if (!environment_.runs_api) co_return Unit{};
    create_api();
    add_gauges();
    add_explainers();
    CO_TRY(auto options, listener_options());
    http_server_ = std::make_unique<net::HttpServer>(environment_.executor, std::move(options), api_->handler());
    CO_TRY(std::ignore, http_server_->start());
    co_return log_listeners(ctx);
}

void ApiComponent::create_api() {
    const auto& config = environment_.config;
    auto& [store, identity, leadership, executors, gslb, catalog, jobs] = dependencies_;
    api_ = std::make_unique<api::Api>(environment_.supervisor.executor("api"), store.resources(), identity.identity(),
                                      store.admin(), environment_.clock,
                                      api::ApiOptions{.version = environment_.version,
                                                      .anonymous_metrics = anonymous_access(config, "server.anonymous_metrics"),
                                                      .anonymous_docs = anonymous_access(config, "server.anonymous_docs"),
                                                      .max_body = config.bytes("limits.max_body"),
                                                      .server = environment_.server_name,
                                                      .shared_store = store.is_shared()});
    api_->add_degradation([this] { return environment_.supervisor.degraded(); });
    api_->add_jobs(jobs.engine(), jobs.templates());
    api_->add_gslb(gslb.controller());
    fleet_planner_ = std::make_unique<fleet::Planner>(store.resources(), environment_.pool);
    api_->add_fleet(*fleet_planner_);
    api_->add_health(gslb.aggregator());
}

void ApiComponent::add_gauges() {
    api_->add_gauges([this] {
        return std::vector<std::pair<std::string, double>>{
            {"orrery_leader", dependencies_.leadership.leadership().leads() ? 1.0 : 0.0},
            {"orrery_http_connections", static_cast<double>(http_server_->connections())}};
    });
    api_->add_gauges([this] { return environment_.supervisor.gauges(); });
    api_->add_gauges([this] { return dependencies_.catalog.gauges(); });
    api_->add_gauges([this] { return dependencies_.jobs.gauges(); });
    api_->add_gauges([this] { return dependencies_.gslb.gauges(); });
}

void ApiComponent::add_explainers() {
    auto& resources = dependencies_.store.resources();
    explainers_.add("Node", resource::Explainers::History::no, resource::node_explainer(resources));
    dependencies_.catalog.add_explainers(explainers_);
    dependencies_.executors.add_explainers(explainers_);
    jobs::add_explainers(explainers_, resources, dependencies_.jobs.engine());
    gslb::add_explainers(explainers_, resources, dependencies_.gslb.controller());
    fleet::add_explainers(explainers_, *fleet_planner_);
    api_->add_explanations(explainers_);
}

Result<net::HttpServer::Options> ApiComponent::listener_options() {
    const auto& config = environment_.config;
    net::HttpServer::Options options;
    const auto& addresses = config.list("server.listen");
    for (std::size_t i = 0; i < addresses.size(); ++i) {
        TRY(const auto address, parse_listen(addresses[i]));
        if (i > 0) {
            options.also.push_back({address.host, address.port, environment_.tls});
            continue;
        }
        options.address = address.host;
        options.port = address.port;
    }
    options.tls = environment_.tls;
    options.max_body = config.bytes("limits.max_body");
    options.max_connections = static_cast<std::size_t>(config.integer("limits.max_connections"));
    options.request_timeout = config.duration("limits.request_timeout");
    options.on_error = api_->on_error();
    options.on_done = api_->on_done();
    return options;
}

Result<Unit> ApiComponent::log_listeners(const Context& ctx) {
    const auto& addresses = environment_.config.list("server.listen");
    const auto ports = http_server_->ports();
    std::string first;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
        TRY(const auto address, parse_listen(addresses[i]));
        const auto url = listen_url(environment_.config, address, ports[i]);
        if (first.empty()) first = url;
        log::info(ctx, "server listens: url={} version={} store={}", url, environment_.version, dependencies_.store.location().url);
    }
    if (const auto& password = dependencies_.identity.first_password()) show_first_login(first, *password);
    return Unit{};
}

asio::awaitable<void> ApiComponent::drain(Duration grace) {
    if (api_) dependencies_.gslb.aggregator().close(); // ends the long polls of remote checkers
    if (http_server_) co_await http_server_->stop(grace);
    if (api_) co_await api_->stop();
}

asio::awaitable<void> ApiComponent::stop() {
    http_server_.reset();
    api_.reset();
    co_return;
}

} // namespace orrery::app
