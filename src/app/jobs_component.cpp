#include "app/jobs_component.h"

#include "gslb/model/migrations.h"

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

namespace orrery::app {

void FollowedCatalog::connect(catalog::Membership& catalog, const catalog::Catalog& services, bool declared_only,
                              drivers::ResolvedNames& names) {
    names_ = &names;
    catalog_ = &catalog;
    services_ = &services;
    declared_only_ = declared_only;
}

void FollowedCatalog::disconnect() {
    followed_.clear();
    catalog_ = nullptr;
    services_ = nullptr;
    names_ = nullptr;
}

Result<catalog::Members> FollowedCatalog::members(std::string_view service, std::string_view tag) const {
    if (catalog_ == nullptr) return Error{Code::unavailable, "the catalog is not available yet"};
    if (service.starts_with(jobs::dns_prefix)) return records(service.substr(jobs::dns_prefix.size()), tag);
    if (!followed_.contains(service)) followed_.emplace(service, catalog_->follow(service));
    TRY(auto found, catalog_->members(service, tag));
    for (auto& member : found.all)
        if (member.state == catalog::State::passing) member.why.clear(); // nothing holds it back
    return found;
}

std::optional<catalog::DeclaredService> FollowedCatalog::declared(std::string_view service) const {
    return services_ == nullptr ? std::nullopt : services_->declared(service);
}

Task<Unit> FollowedCatalog::await_answers(Context ctx, std::vector<std::string> services) {
    constexpr auto max_wait = std::chrono::seconds(3);
    if (catalog_ == nullptr) co_return Unit{};
    const auto unanswered = [this, &services] {
        return std::any_of(services.begin(), services.end(), [this](const std::string& service) {
            const auto answer = members(service, "");
            return !answer.ok() && answer.error().code == Code::unavailable;
        });
    };
    auto changed = std::make_shared<Notifier>(co_await asio::this_coro::executor);
    const auto handle = catalog_->subscribe([changed](const std::string&) { changed->notify_all(); });
    const auto limited = ctx.with_timeout(max_wait);
    while (unanswered()) {
        const auto woken = co_await changed->wait(limited);
        if (!woken.ok() && woken.error().code == Code::timeout) break; // no evidence; the plan shows that
        if (!woken.ok()) co_return woken.error();
    }
    co_return Unit{};
}

Result<catalog::Members> FollowedCatalog::records(std::string_view name, std::string_view type) const {
    TRY(const auto found, names_->find(name, type));
    catalog::Members out;
    for (const auto& record : found) { // the target of an SRV record can contain any bytes
        if (!catalog::member_problem(record.address, record.address).empty()) continue;
        catalog::Member member;
        member.node = member.address = record.address;
        member.port = static_cast<std::uint16_t>(record.port);
        member.state = catalog::State::passing;
        member.checked = true;
        out.all.push_back(std::move(member));
    }
    return out;
}

std::shared_ptr<void> FollowedCatalog::subscribe(std::function<void(const std::string&)> changed) {
    if (catalog_ == nullptr) return {};
    return std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(
        catalog_->subscribe(changed),
        names_->subscribe([changed](const std::string& name) { changed(std::string(jobs::dns_prefix) + name); }));
}

std::shared_ptr<void> FollowedCatalog::follow(std::string_view service) {
    const auto space = service.rfind(' ');
    if (names_ == nullptr || !service.starts_with(jobs::dns_prefix) || space == service.npos) return {};
    return names_->follow(service.substr(jobs::dns_prefix.size(), space - jobs::dns_prefix.size()), service.substr(space + 1));
}

namespace {

/// Adds the migration of tasks that drain members, which the kinds of jobs do not know.
resource::Kind with_gslb_tasks(resource::Kind kind) {
    auto own = kind.migration();
    kind.migrate([own](boost::json::object& spec, boost::json::object& status) {
        if (own) own(spec, status);
        gslb::migrate_tasks(spec);
    });
    return kind;
}

} // namespace

void add_job_kinds(resource::Registry& registry, jobs::Executors& executors, jobs::Membership& membership, Clock& clock) {
    registry.add(with_gslb_tasks(jobs::job_kind(executors, membership)));
    registry.add(jobs::rolling_rule_kind());
    jobs::add_users(registry);
    registry.add(with_gslb_tasks(jobs::job_template_kind(executors, clock)));
}

namespace {

Result<std::vector<drivers::DnsServer>> name_servers_of(const Config& config) {
    std::vector<drivers::DnsServer> out;
    for (const auto& text : config.list("jobs.name_servers")) {
        TRY(const auto server, drivers::parse_dns_server(text));
        out.push_back(server);
    }
    if (!out.empty()) return out;
    std::ifstream file("/etc/resolv.conf");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return drivers::servers_of_resolv_conf(text);
}

} // namespace

JobsComponent::JobsComponent(ServerEnvironment& environment, Dependencies dependencies)
    : environment_(environment), dependencies_(dependencies) {}
JobsComponent::~JobsComponent() = default;

jobs::Engine::Options JobsComponent::engine_options() {
    const auto& config = environment_.config;
    jobs::Engine::Options options;
    options.slots = static_cast<int>(config.integer("jobs.slots"));
    options.output_limit = config.bytes("jobs.output_limit");
    options.folder = config.path("data.folder");
    options.shared = dependencies_.store.is_shared();
    options.server = environment_.server_name;
    options.output_total = config.bytes("jobs.output_total");
    options.artefact_fetcher = &dependencies_.executors.artefact_fetcher();
    options.artefact_limit = config.bytes("jobs.artefact_limit");
    options.artefacts_of_job = config.bytes("jobs.artefacts_of_job");
    return options;
}

Task<Unit> JobsComponent::start(Context ctx) {
    auto& [store, leadership, catalog, executors, registry, membership] = dependencies_;
    const auto executor = environment_.supervisor.executor("jobs");
    CO_TRY(auto servers, name_servers_of(environment_.config));
    names_ = std::make_unique<drivers::ResolvedNames>(executor, environment_.clock,
                                                      drivers::ResolvedNames::Options{.servers = std::move(servers)});
    membership.connect(catalog.membership(), catalog.catalog(), !catalog.follows_consul(), *names_);
    engine_ = std::make_unique<jobs::Engine>(executor, store.resources(), leadership.leadership(), membership, registry,
                                             environment_.pool, environment_.clock, engine_options());
    templates_ = std::make_unique<jobs::TemplateController>(store.resources(), leadership.leadership(), environment_.clock);
    environment_.supervisor.start("jobs", [this, ctx](TaskGroup& group) {
        group.spawn(names_->run(ctx));
        if (!environment_.runs_controllers) return;
        group.spawn(engine_->run(ctx));
        group.spawn(templates_->run(ctx));
    });
    co_return Unit{};
}

asio::awaitable<void> JobsComponent::stop() {
    templates_.reset();
    engine_.reset();
    dependencies_.membership.disconnect();
    names_.reset();
    co_return;
}

std::vector<std::pair<std::string, double>> JobsComponent::gauges() const {
    return engine_ ? engine_->metrics() : std::vector<std::pair<std::string, double>>{};
}

} // namespace orrery::app
