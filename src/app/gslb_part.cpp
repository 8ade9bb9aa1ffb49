#include "app/gslb_part.h"

#include "app/checker.h"
#include "app/publishers.h"
#include "app/settings.h"
#include "core/log.h"
#include "dns/authority.h"
#include "dns/server.h"
#include "drivers/dns/name_servers.h"
#include "gslb/clients.h"
#include "gslb/cluster.h"
#include "gslb/drain_executor.h"
#include "gslb/health_watcher.h"
#include "gslb/kinds.h"
#include "gslb/name_service.h"
#include "gslb/publishing.h"

#include <fmt/format.h>

#include <random>

namespace orrery::app {

namespace {

dns::Authority::Options authority_options(const Config& config) {
    dns::Authority::Options options;
    options.nsid = options.identity = config.text("dns.id");
    options.rate_limit.per_second = static_cast<std::uint32_t>(config.integer("dns.rate_limit"));
    for (const auto& text : config.list("dns.transfer_to"))
        if (const auto prefix = gslb::parse_prefix(text); prefix.ok()) options.transfer_to.push_back(*prefix);
    // Cookies of this run: a client whose cookie is from before is given another.
    dns::CookieSecret secret{};
    std::random_device random;
    for (auto& byte : secret) byte = static_cast<std::uint8_t>(random());
    options.cookies.push_back(secret);
    return options;
}

} // namespace

struct GslbPart::State {
    State(asio::any_io_executor executor, const Config& config_, std::string server, resource::Resources& resources,
          store::Leadership& leadership, Clock& clock)
        : config(config_),
          authority(std::make_shared<dns::Authority>(authority_options(config))),
          watcher(executor, clock, server, nullptr),
          makers(executor, resources, clock),
          asked(drivers::name_servers()),
          names(executor, resources, leadership, clock, authority),
          publishing(executor, resources, leadership, clock, makers, asked.get()),
          sinks(all_of(config, names, publishing)),
          controller(executor, resources, leadership, clock, watcher, &sinks,
                     {.server = std::move(server),
                      .records_kept = config.duration("dns.decisions_keep"),
                      .most_records = static_cast<std::size_t>(config.integer("dns.decisions_keep_at_most"))}),
          draining(gslb::drain_executor(executor, resources, controller, clock)) {}

    static gslb::NameSinks all_of(const Config& config, gslb::NameService& names, gslb::Publishing& publishing) {
        gslb::NameSinks out;
        if (!config.text("dns.listen").empty()) out.add(names);
        out.add(publishing);
        return out;
    }

    const Config& config;
    std::shared_ptr<dns::Authority> authority;
    gslb::HealthWatcher watcher;
    DriverPublishers makers;
    std::unique_ptr<gslb::NameServers> asked;
    gslb::NameService names;
    gslb::Publishing publishing;
    gslb::NameSinks sinks;
    gslb::Controller controller;
    std::unique_ptr<jobs::Executor> draining;
    std::unique_ptr<dns::Server> door;
};

GslbPart::GslbPart() = default;
GslbPart::~GslbPart() = default;

void GslbPart::add_kinds(resource::Registry& registry) {
    registry.add(gslb::load_balancer_kind());
    registry.add(gslb::pool_kind());
    registry.add(gslb::member_kind());
    registry.add(gslb::monitor_kind());
    registry.add(gslb::zone_kind());
    registry.add(gslb::publisher_kind());
    registry.add(gslb::cluster_kind());
    registry.add(gslb::cluster_record_kind());
    registry.add(gslb::decision_kind());
}

void GslbPart::make(asio::any_io_executor executor, const Config& config, std::string server, resource::Resources& resources,
                    store::Leadership& leadership, Clock& clock) {
    state_ = std::make_unique<State>(std::move(executor), config, std::move(server), resources, leadership, clock);
}

Result<Unit> GslbPart::start(Context ctx, TaskGroup& group) {
    group.spawn(state_->watcher.run(ctx));
    group.spawn(state_->controller.run(ctx));
    group.spawn(state_->publishing.run(ctx));
    const auto& listen = state_->config.text("dns.listen");
    if (listen.empty()) return Unit{};
    group.spawn(state_->names.run(ctx));
    TRY(const auto address, parse_listen(listen));
    state_->door = std::make_unique<dns::Server>(
        dns::Server::Options{
            .address = address.host, .port = address.port, .threads = static_cast<int>(state_->config.integer("dns.threads"))},
        state_->authority);
    TRY(std::ignore, state_->door->start());
    log::info(ctx, "zones are answered at {}:{}", address.host, state_->door->port());
    return Unit{};
}

void GslbPart::close() {
    if (state_ && state_->door) state_->door->stop();
}

asio::awaitable<void> GslbPart::stop() {
    if (!state_) co_return;
    co_await state_->makers.stop();
    state_.reset();
}

Result<Unit> GslbPart::look_from(const Config& config, health::CommandRunner& commands) {
    std::vector<health::Wanted> canaries;
    for (const auto& text : config.list("health.canaries")) {
        TRY(auto canary, read_canary(text));
        canaries.push_back(std::move(canary));
    }
    TRY(std::ignore, lookout().set_canaries(std::move(canaries)));
    lookout().set_nodes(config.list("health.nodes"), commands);
    return Unit{};
}

gslb::Controller& GslbPart::controller() { return state_->controller; }
health::Lookout& GslbPart::lookout() { return state_->watcher.lookout(); }
jobs::Executor& GslbPart::executor() { return *state_->draining; }

std::vector<std::pair<std::string, double>> GslbPart::gauges() const {
    if (!state_) return {};
    auto out = state_->controller.gauges();
    const auto counts = state_->watcher.counts();
    out.emplace_back("orrery_gslb_looks_watched", static_cast<double>(counts.watched));
    out.emplace_back("orrery_gslb_looks_total", static_cast<double>(counts.looks));
    out.emplace_back("orrery_gslb_looks_late_total", static_cast<double>(counts.late));
    if (!state_->door) return out;
    out.emplace_back("orrery_gslb_zones", static_cast<double>(state_->names.zones()));
    out.emplace_back("orrery_gslb_names", static_cast<double>(state_->names.names()));
    const auto asked = state_->authority->statistics();
    out.emplace_back("orrery_zone_queries_total", static_cast<double>(asked.queries));
    out.emplace_back("orrery_zone_truncated_total", static_cast<double>(asked.truncated));
    out.emplace_back("orrery_zone_limited_total", static_cast<double>(asked.limited));
    out.emplace_back("orrery_zone_malformed_total", static_cast<double>(asked.malformed));
    return out;
}

} // namespace orrery::app
