#include "app/jobs_part.h"

#include <utility>

namespace orrery::app {

namespace {

jobs::MemberState state_of(catalog::State state) {
    switch (state) {
    case catalog::State::registered: return jobs::MemberState::registered;
    case catalog::State::usable: return jobs::MemberState::usable;
    case catalog::State::passing: return jobs::MemberState::passing;
    }
    return jobs::MemberState::registered;
}

} // namespace

void FollowedCatalog::join(catalog::Membership& catalog) { catalog_ = &catalog; }

void FollowedCatalog::leave() {
    followed_.clear();
    catalog_ = nullptr;
}

Result<std::vector<jobs::Member>> FollowedCatalog::members(std::string_view service, std::string_view tag) const {
    if (catalog_ == nullptr) return Error{Code::unavailable, "the catalog is not open yet"};
    if (!followed_.contains(service)) followed_.emplace(service, catalog_->follow(service));
    TRY(auto found, catalog_->members(service, tag));
    std::vector<jobs::Member> out;
    out.reserve(found.all.size());
    for (auto& member : found.all)
        out.push_back({std::move(member.node), std::move(member.address), member.port, state_of(member.state),
                       member.state == catalog::State::passing ? std::string() : std::move(member.why)});
    return out;
}

std::shared_ptr<void> FollowedCatalog::watch(std::function<void(std::string_view)> changed) {
    if (catalog_ == nullptr) return {};
    return catalog_->subscribe([changed = std::move(changed)](const std::string& service) { changed(service); });
}

JobsPart::JobsPart() = default;
JobsPart::~JobsPart() = default;

void JobsPart::add_kinds(resource::Registry& registry) {
    registry.add(jobs::job_kind(executors_, membership_));
    registry.add(jobs::rolling_rule_kind());
}

void JobsPart::start(Context ctx, asio::any_io_executor executor, const Config& config, resource::Resources& resources,
                     store::Leadership& leadership, catalog::Membership& catalog, Pool& pool, Clock& clock, TaskGroup& group,
                     std::string server, bool shared, jobs::Collector& collector, bool runs) {
    membership_.join(catalog);
    jobs::Engine::Options options;
    options.slots = static_cast<int>(config.integer("jobs.slots"));
    options.output_limit = config.bytes("jobs.output_limit");
    options.folder = config.path("data.folder");
    options.shared = shared;
    options.server = std::move(server);
    options.output_total = config.bytes("jobs.output_total");
    options.collector = &collector;
    options.artefact_limit = config.bytes("jobs.artefact_limit");
    options.artefacts_of_job = config.bytes("jobs.artefacts_of_job");
    engine_ =
        std::make_unique<jobs::Engine>(executor, resources, leadership, membership_, executors_, pool, clock, std::move(options));
    if (runs) group.spawn(engine_->run(ctx));
}

void JobsPart::stop() {
    engine_.reset();
    membership_.leave();
}

std::vector<std::pair<std::string, double>> JobsPart::gauges() const {
    return engine_ ? engine_->metrics() : std::vector<std::pair<std::string, double>>{};
}

} // namespace orrery::app
