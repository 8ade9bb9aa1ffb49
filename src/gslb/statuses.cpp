#include "gslb/statuses.h"

#include "core/text.h"
#include "gslb/read.h"
#include "resource/object.h"

#include <algorithm>
#include <utility>

namespace orrery::gslb {

namespace {

/// In one transaction: so many as the loop may be kept busy with at a time.
constexpr std::size_t statuses_at_once = 32;

std::string_view word_for(const MemberView& view, const Signal& signal) {
    if (view.drained) return "drained";
    if (!view.healthy) return "down";
    if (signal.monitored && signal.standing == Health::unknown) return "unknown";
    return signal.standing == Health::degraded ? "degraded" : "up";
}

bool same_in(const json::object& one, const json::object& other, std::initializer_list<std::string_view> keys) {
    return std::all_of(keys.begin(), keys.end(), [&](std::string_view key) {
        const auto *a = one.if_contains(key), *b = other.if_contains(key);
        return a == nullptr || b == nullptr ? a == b : *a == *b;
    });
}

} // namespace

json::array held_json(const std::vector<Withheld>& all) {
    json::array out;
    for (const auto& one : all) out.emplace_back(one.to_json());
    return out;
}

Statuses::Statuses(resource::Resources& resources, const Engine& engine, Clock& clock, const NameSink* sink)
    : resources_(resources), engine_(engine), clock_(clock), sink_(sink) {}

void Statuses::clear() {
    names_.clear();
    pools_.clear();
    members_.clear();
}

Task<Unit> Statuses::write_pools(Context ctx, store::Fence fence) {
    CO_TRY(const auto written, co_await write(ctx, "Pool", pools_, [this](const auto& now) { return status_of_pool(now); }, fence));
    for (const auto& name : written)
        if (const auto pool = engine_.pool(name))
            for (const auto& member : pool->view->members) members_.insert(member.name);
    co_return Unit{};
}

Task<Unit> Statuses::write_names(Context ctx, store::Fence fence) {
    CO_TRY(std::ignore, co_await write(ctx, "Member", members_, [this](const auto& now) { return status_of_member(now); }, fence));
    CO_TRY(std::ignore,
           co_await write(ctx, "LoadBalancer", names_, [this](const auto& now) { return status_of_name(now); }, fence));
    co_return Unit{};
}

Task<std::vector<std::string>> Statuses::write(Context ctx, const char* kind, std::set<std::string>& from,
                                               resource::Resources::MakeStatus make, store::Fence fence) {
    std::vector<std::string> names;
    while (!from.empty() && names.size() < statuses_at_once) names.push_back(std::move(from.extract(from.begin()).value()));
    if (names.empty()) co_return names;
    const auto written = co_await resources_.set_statuses(ctx, *resources_.registry().find(kind), names, std::move(make), &fence);
    if (written.ok()) co_return names;
    for (auto& name : names) from.insert(std::move(name));
    co_return written.error();
}

std::optional<json::object> Statuses::status_of_name(const resource::Object& now) const {
    const auto& name = now.name;
    const auto decision = engine_.decision(name);
    if (!decision) return std::nullopt;
    json::object status;
    const auto summary = decision->summary();
    status["state"] = name_of(decision->condition);
    for (const auto* key : {"pool", "answers", "ttl", "panic"})
        if (const auto* value = summary.if_contains(key)) status[key] = *value;
    if (decision->answers.size() > 1) status["classes"] = decision->to_json().at("classes");
    status["because"] = to_array(decision->because);
    if (!decision->withheld.empty()) status["withheld"] = held_json(decision->withheld);
    const auto& fqdn = engine_.rule(name)->fqdn;
    status["failover_time"] = engine_.failover_time(name, publication(fqdn)).to_json();
    status["decisions"] = engine_.decisions(name);
    if (sink_ != nullptr)
        if (auto published = sink_->standing(fqdn); !published.empty()) status["published"] = std::move(published);
    if (auto memory = decision->memory.to_json(); !memory.empty()) status["memory"] = std::move(memory);
    const bool same = same_in(now.status, status, {"state", "pool", "answers", "ttl", "panic", "classes"});
    status["since"] = same && now.status.contains("since") ? now.status.at("since") : json::value(to_rfc3339(clock_.wall()));
    return status;
}

std::optional<json::object> Statuses::status_of_pool(const resource::Object& now) const {
    const auto pool = engine_.pool(now.name);
    if (!pool) return std::nullopt;
    const auto& view = *pool->view;
    const auto usable = is_usable(view);
    const auto healthy = std::count_if(view.members.begin(), view.members.end(), [](const auto& one) { return one.healthy; });
    json::object status{{"state", usable.usable ? "usable" : "unusable"},
                        {"why", usable.words},
                        {"members", static_cast<std::int64_t>(view.members.size())},
                        {"healthy", static_cast<std::int64_t>(healthy)}};
    if (!pool->withheld->empty()) status["withheld"] = held_json(*pool->withheld);
    if (auto memory = pool->memory->to_json(); !memory.empty()) status["memory"] = std::move(memory);
    return status;
}

std::optional<json::object> Statuses::status_of_member(const resource::Object& now) const {
    const auto* input = engine_.member(now.name);
    if (input == nullptr) return std::nullopt;
    const auto pool = engine_.pool(input->spec.pool);
    if (!pool) return std::nullopt;
    const auto& members = pool->view->members;
    const auto view = std::find_if(members.begin(), members.end(), [&](const auto& one) { return one.name == now.name; });
    if (view == members.end()) return std::nullopt;
    json::object status{{"state", word_for(*view, input->signal)}, {"addresses", to_array(view->addresses.texts())}};
    if (!view->why.empty()) status["why"] = view->why;
    if (input->signal.monitored && input->signal.standing != Health::unknown) status["verdict"] = name_of(input->signal.standing);
    if (input->signal.share) status["share"] = *input->signal.share;
    const bool same = text_at(now.status, "state") == text_at(status, "state") && now.status.contains("since");
    status["since"] = same ? now.status.at("since") : json::value(to_rfc3339(clock_.wall()));
    if (view->drained) {
        const auto kept = engine_.kept_by_resolvers(input->spec.pool, [this](const auto& fqdn) { return publication(fqdn); });
        const auto since = time_at(status, "since").value_or(clock_.wall());
        status["forgotten_at"] = to_rfc3339(since + std::chrono::duration_cast<std::chrono::milliseconds>(kept));
    }
    return status;
}

} // namespace orrery::gslb
