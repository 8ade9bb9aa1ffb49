#include "jobs/planned_membership.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::jobs {

std::vector<std::uint32_t> providers_of(const Plan& plan, std::string_view service, std::string_view tag) {
    std::vector<std::uint32_t> out;
    for (std::uint32_t g = 0; g < plan.groups.size(); ++g) {
        const auto& offers = plan.spec.tasks[g].provides;
        if (std::any_of(offers.begin(), offers.end(),
                        [&](const ServiceRef& ref) { return ref.service == service && (tag.empty() || ref.tag == tag); }))
            out.push_back(g);
    }
    return out;
}

Result<Members> PlannedMembership::members(std::string_view service, std::string_view tag) const {
    TRY(auto members, catalog_.members(service, tag));
    if (std::all_of(members.all.begin(), members.all.end(), [](const Member& member) { return member.checked; })) return members;
    const auto providers = providers_of(plan_, service, tag);
    if (providers.empty()) return members;
    for (auto& member : members.all) {
        if (member.checked || member.state == MemberState::registered) continue;
        const auto at = std::lower_bound(plan_.hosts.begin(), plan_.hosts.end(), member.node);
        if (at == plan_.hosts.end() || *at != member.node) continue;
        const auto host = static_cast<std::uint32_t>(at - plan_.hosts.begin());
        auto provider = Plan::none;
        bool started = false;
        for (const auto g : providers) {
            const auto& hosts = plan_.groups[g].hosts;
            if (!std::binary_search(hosts.begin(), hosts.end(), host)) continue;
            provider = plan_.spec.tasks[g].together ? plan_.groups[g].first : plan_.task_on(g, host);
            started = started || records_[provider].done_once;
        }
        if (provider == Plan::none || started) continue;
        member.state = MemberState::registered;
        member.why = fmt::format("no check observes it, and {} has not succeeded", plan_.task_name(provider));
    }
    return members;
}

} // namespace orrery::jobs
