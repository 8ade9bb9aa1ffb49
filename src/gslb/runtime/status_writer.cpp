#include "gslb/runtime/status_writer.h"

#include "core/json_fields.h"
#include "core/text.h"
#include "resource/object.h"

#include <algorithm>
#include <utility>

namespace orrery::gslb {

namespace {

/// The size of one transaction: a batch must not block the loop for long.
constexpr std::size_t statuses_at_once = 32;

std::string_view state_text(const MemberView& view, const MemberHealth& health) {
    if (view.drained) return "drained";
    if (!view.healthy) return "down";
    if (!view.forced && health.monitored && (health.state == HealthState::unknown || !health.unchecked.empty())) return "unknown";
    return health.state == HealthState::degraded ? "degraded" : "up";
}

bool same_in(const json::object& one, const json::object& other, std::initializer_list<std::string_view> keys) {
    return std::all_of(keys.begin(), keys.end(), [&](std::string_view key) {
        const auto *a = one.if_contains(key), *b = other.if_contains(key);
        return a == nullptr || b == nullptr ? a == b : *a == *b;
    });
}

} // namespace

json::array withheld_json(const std::vector<Withheld>& all) {
    json::array out;
    for (const auto& one : all) out.emplace_back(one.to_json());
    return out;
}

StatusWriter::StatusWriter(resource::Resources& resources, const Engine& engine, Clock& clock, const AnswerPublisher* publisher)
    : resources_(resources), engine_(engine), clock_(clock), publisher_(publisher) {}

void StatusWriter::clear() {
    lbs_.clear();
    pools_.clear();
    members_.clear();
}

Task<Unit> StatusWriter::write_pools(Context ctx, store::Fence fence) {
    CO_TRY(const auto written, co_await write(ctx, "Pool", pools_, [this](const auto& now) { return status_of_pool(now); }, fence));
    for (const auto& name : written)
        if (const auto pool = engine_.pool(name))
            for (const auto& member : pool->view->members) members_.insert(member.name);
    co_return Unit{};
}

Task<Unit> StatusWriter::write_load_balancers(Context ctx, store::Fence fence) {
    CO_TRY(std::ignore, co_await write(ctx, "Member", members_, [this](const auto& now) { return status_of_member(now); }, fence));
    CO_TRY(std::ignore, co_await write(ctx, "LoadBalancer", lbs_, [this](const auto& now) { return status_of_lb(now); }, fence));
    co_return Unit{};
}

Task<std::vector<std::string>> StatusWriter::write(Context ctx, const char* kind, std::set<std::string>& from,
                                                   resource::Resources::MakeStatus make, store::Fence fence) {
    std::vector<std::string> names;
    while (!from.empty() && names.size() < statuses_at_once) names.push_back(std::move(from.extract(from.begin()).value()));
    if (names.empty()) co_return names;
    const auto written = co_await resources_.set_statuses(ctx, *resources_.registry().find(kind), names, std::move(make), &fence);
    if (written.ok()) co_return names;
    for (auto& name : names) from.insert(std::move(name));
    co_return written.error();
}

std::optional<json::object> StatusWriter::status_of_lb(const resource::Object& now) const {
    const auto& name = now.name;
    const auto decision = engine_.decision(name);
    if (!decision) return std::nullopt;
    json::object status;
    const auto summary = decision->summary();
    status["state"] = name_of(decision->condition);
    for (const auto* key : {"pool", "answers", "ttl", "panic"})
        if (const auto* value = summary.if_contains(key)) status[key] = *value;
    if (decision->answers.size() > 1) status["classes"] = decision->to_json().at("classes");
    status["messages"] = to_array(decision->messages);
    if (!decision->withheld.empty()) status["withheld"] = withheld_json(decision->withheld);
    const auto& fqdn = engine_.spec(name)->fqdn;
    status["failover_time"] = engine_.failover_time(name, publication(fqdn)).to_json();
    status["decisions"] = engine_.decisions(name);
    if (publisher_ != nullptr)
        if (auto published = publisher_->publication_status(fqdn); !published.empty()) status["published"] = std::move(published);
    if (auto state = decision->state.to_json(); !state.empty()) status["internal_state"] = std::move(state);
    const bool same = same_in(now.status, status, {"state", "pool", "answers", "ttl", "panic", "classes"});
    status["since"] = same && now.status.contains("since") ? now.status.at("since") : json::value(to_rfc3339(clock_.wall()));
    return status;
}

std::optional<json::object> StatusWriter::status_of_pool(const resource::Object& now) const {
    const auto pool = engine_.pool(now.name);
    if (!pool) return std::nullopt;
    const auto& view = *pool->view;
    const auto usable = is_usable(view);
    const auto healthy =
        std::count_if(view.members.begin(), view.members.end(), [](const auto& one) { return one.healthy && !one.held_in; });
    json::object status{{"state", usable.usable ? "usable" : "unusable"},
                        {"message", usable.message},
                        {"members", static_cast<std::int64_t>(view.members.size())},
                        {"healthy", static_cast<std::int64_t>(healthy)}};
    if (!pool->withheld->empty()) status["withheld"] = withheld_json(*pool->withheld);
    if (auto state = pool->state->to_json(); !state.empty()) status["internal_state"] = std::move(state);
    return status;
}

std::optional<json::object> StatusWriter::status_of_member(const resource::Object& now) const {
    const auto* input = engine_.member(now.name);
    if (input == nullptr) return std::nullopt;
    const auto pool = engine_.pool(input->spec.pool);
    if (!pool) return std::nullopt;
    const auto& members = pool->view->members;
    const auto view = std::find_if(members.begin(), members.end(), [&](const auto& one) { return one.name == now.name; });
    if (view == members.end()) return std::nullopt;
    json::object status{{"state", state_text(*view, input->health)}, {"addresses", to_array(view->addresses.texts())}};
    if (!view->message.empty()) status["message"] = view->message;
    if (input->health.monitored && input->health.state != HealthState::unknown) status["verdict"] = name_of(input->health.state);
    if (!input->health.unchecked.empty()) status["unchecked"] = input->health.unchecked;
    if (input->health.load) status["load"] = *input->health.load;
    if (view->load != 100) status["weight_percent"] = view->load;
    if (input->health.share) status["share"] = *input->health.share;
    const bool same = text_at(now.status, "state") == text_at(status, "state") && now.status.contains("since");
    status["since"] = same ? now.status.at("since") : json::value(to_rfc3339(clock_.wall()));
    if (view->drained) {
        const auto kept = engine_.cached_by_resolvers(input->spec.pool, [this](const auto& fqdn) { return publication(fqdn); });
        const auto since = time_at(status, "since").value_or(clock_.wall());
        status["drained_at"] = to_rfc3339(since + std::chrono::duration_cast<std::chrono::milliseconds>(kept));
    }
    return status;
}

} // namespace orrery::gslb
