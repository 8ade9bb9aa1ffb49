#include "app/gslb_part.h"

#include "app/checker.h"
#include "app/publishers.h"
#include "app/settings.h"
#include "app/sources.h"
#include "core/log.h"
#include "dns/authority.h"
#include "dns/notify.h"
#include "dns/query_log.h"
#include "dns/server.h"
#include "drivers/dns/name_servers.h"
#include "gslb/clients.h"
#include "gslb/cluster.h"
#include "gslb/drain_executor.h"
#include "gslb/health_watcher.h"
#include "gslb/kinds.h"
#include "gslb/name_service.h"
#include "gslb/peers.h"
#include "gslb/places.h"
#include "gslb/publishing.h"
#include "gslb/source.h"
#include "gslb/stored_watcher.h"

#include <fmt/format.h>

#include <random>

namespace orrery::app {

namespace {

dns::Authority::Options authority_options(const Config& config) {
    dns::Authority::Options options;
    options.nsid = options.identity = config.text("dns.id");
    options.version = config.text("dns.version");
    options.rate_limit.per_second = static_cast<std::uint32_t>(config.integer("dns.rate_limit"));
    const auto networks = [&](const char* key, std::vector<dns::Prefix>& out) {
        for (const auto& text : config.list(key))
            if (const auto prefix = gslb::parse_prefix(text); prefix.ok()) out.push_back(*prefix);
    };
    networks("dns.transfer_to", options.transfer_to);
    networks("dns.rate_limit_exempt", options.rate_limit.exempt);
    if (!config.path("dns.query_log").empty() && !config.text("dns.listen").empty()) {
        options.query_log = 4096;
        options.query_log_every = static_cast<std::uint32_t>(config.integer("dns.query_log_every"));
    }
    // Cookies of this run: a client whose cookie is from before is given another.
    dns::CookieSecret secret{};
    std::random_device random;
    for (auto& byte : secret) byte = static_cast<std::uint8_t>(random());
    options.cookies.push_back(secret);
    return options;
}

std::vector<std::filesystem::path> geo_databases(const Config& config) {
    const auto& files = config.list("dns.geo_databases");
    return {files.begin(), files.end()};
}

} // namespace

struct GslbPart::State {
    State(asio::any_io_executor executor, const Config& config_, std::string server, resource::Resources& resources,
          store::Leadership& leadership, Clock& clock, Part part_)
        : loop(executor),
          time(clock),
          config(config_),
          part(part_),
          authority(std::make_shared<dns::Authority>(authority_options(config))),
          sources(executor, resources, clock),
          watcher(executor, clock, server, nullptr, &sources),
          reports(resources, leadership, clock, watcher.board()),
          stored(part.looks ? nullptr : std::make_unique<gslb::StoredWatcher>(resources.store())),
          peers(part.looks && part.shared ? std::make_unique<gslb::Peers>(executor, resources.store(), clock, watcher.lookout(),
                                                                          gslb::Peers::Options{.server = server})
                                          : nullptr),
          makers(executor, resources, clock),
          asked(drivers::name_servers()),
          places(executor, clock, {.files = geo_databases(config)}),
          names(executor, resources, leadership, clock, authority),
          publishing(executor, resources, leadership, clock, makers, asked.get()),
          sinks(all_of(config, names, publishing)),
          controller(executor, resources, leadership, clock, stored ? static_cast<gslb::Watcher&>(*stored) : watcher, &sinks,
                     {.server = std::move(server),
                      .records_kept = config.duration("dns.decisions_keep"),
                      .most_records = static_cast<std::size_t>(config.integer("dns.decisions_keep_at_most"))},
                     &places),
          draining(gslb::drain_executor(executor, resources, controller, clock)) {
        if (!part.looks) watcher.lookout().rest("this server looks at nothing: it does not run controllers");
    }

    static gslb::NameSinks all_of(const Config& config, gslb::NameService& names, gslb::Publishing& publishing) {
        gslb::NameSinks out;
        if (!config.text("dns.listen").empty()) out.add(names);
        out.add(publishing);
        return out;
    }

    asio::any_io_executor loop;
    Clock& time;
    const Config& config;
    const Part part;
    std::shared_ptr<dns::Authority> authority;
    DriverSources sources;
    gslb::HealthWatcher watcher;
    gslb::Reports reports;
    std::unique_ptr<gslb::StoredWatcher> stored;
    std::unique_ptr<gslb::Peers> peers;
    DriverPublishers makers;
    std::unique_ptr<gslb::NameServers> asked;
    gslb::Places places;
    gslb::NameService names;
    gslb::Publishing publishing;
    gslb::NameSinks sinks;
    gslb::Controller controller;
    std::unique_ptr<jobs::Executor> draining;
    std::unique_ptr<dns::Server> door;
    std::unique_ptr<dns::Notify> notify;
    std::unique_ptr<dns::QueryLog> log;
};

GslbPart::GslbPart() = default;
GslbPart::~GslbPart() = default;

void GslbPart::make(asio::any_io_executor executor, const Config& config, std::string server, resource::Resources& resources,
                    store::Leadership& leadership, Clock& clock, Part part) {
    state_ = std::make_unique<State>(std::move(executor), config, std::move(server), resources, leadership, clock, part);
}

Result<Unit> GslbPart::start(Context ctx, TaskGroup& group) {
    if (state_->part.looks) group.spawn(state_->watcher.run(ctx));
    if (state_->peers) group.spawn(state_->peers->run(ctx));
    group.spawn(state_->places.run(ctx));
    group.spawn(state_->controller.run(ctx));
    group.spawn(state_->reports.run(ctx));
    group.spawn(state_->publishing.run(ctx));
    const auto& listen = state_->config.text("dns.listen");
    if (listen.empty()) return Unit{};
    group.spawn(state_->names.run(ctx));
    TRY(const auto address, parse_listen(listen));
    state_->door = std::make_unique<dns::Server>(
        dns::Server::Options{
            .address = address.host, .port = address.port, .threads = static_cast<int>(state_->config.integer("dns.threads"))},
        state_->authority);
    // A name that is not yet decided would be one that does not exist, and resolvers would keep that.
    state_->controller.decide_now();
    TRY(std::ignore, state_->door->start());
    log::info(ctx, "zones are answered at {}:{}", address.host, state_->door->port());
    if (const auto file = state_->config.path("dns.query_log"); !file.empty()) {
        state_->log = std::make_unique<dns::QueryLog>(
            state_->authority,
            dns::QueryLog::Options{.file = file.string(), .most_bytes = state_->config.bytes("dns.query_log_size")});
        TRY(std::ignore, state_->log->start());
    }
    dns::Notify::Options told;
    for (const auto& text : state_->config.list("dns.notify"))
        if (const auto secondary = dns::Notify::parse(text); secondary.ok()) told.secondaries.push_back(*secondary);
    if (told.secondaries.empty()) return Unit{};
    // From where we answer, because that is what secondaries know us by.
    boost::system::error_code error;
    if (const auto from = asio::ip::make_address(address.host, error); !error && !from.is_unspecified()) told.from = from;
    state_->notify = std::make_unique<dns::Notify>(state_->loop, state_->time, state_->authority, std::move(told));
    group.spawn(state_->notify->run(ctx));
    return Unit{};
}

void GslbPart::let_checkers_go() {
    if (state_) lookout().close();
}

void GslbPart::close() {
    if (state_ && state_->door) state_->door->stop();
    if (state_ && state_->log) state_->log->stop();
}

asio::awaitable<void> GslbPart::stop() {
    if (!state_) co_return;
    co_await state_->makers.stop();
    co_await state_->sources.stop();
    state_.reset();
}

Result<Unit> GslbPart::look_from(const Config& config, health::CommandRunner& commands) {
    if (!state_->part.looks) return Unit{};
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
    for (auto& gauge : state_->places.gauges()) out.push_back(std::move(gauge));
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
    if (state_->log) {
        const auto logged = state_->log->counts();
        out.emplace_back("orrery_zone_queries_logged_total", static_cast<double>(logged.written));
        out.emplace_back("orrery_zone_queries_unlogged_total", static_cast<double>(logged.lost + asked.unlogged));
    }
    if (state_->notify) {
        const auto told = state_->notify->counts();
        out.emplace_back("orrery_zone_notifies_sent_total", static_cast<double>(told.sent));
        out.emplace_back("orrery_zone_notifies_confirmed_total", static_cast<double>(told.confirmed));
        out.emplace_back("orrery_zone_notifies_refused_total", static_cast<double>(told.refused));
        out.emplace_back("orrery_zone_notifies_given_up_total", static_cast<double>(told.given_up));
        out.emplace_back("orrery_zone_notifies_waiting", static_cast<double>(told.waiting));
    }
    return out;
}

} // namespace orrery::app
