#include "drivers/octavia/octavia_messages.h"

#include "drivers/rest/rest.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <map>
#include <set>

namespace orrery::drivers {

namespace {

using health::BalancerState;
using Operating = BalancerState::Operating;

constexpr std::size_t most_members = 10'000, most_addresses = 16;

BalancerState state_of(const json::value* balancer) {
    BalancerState out;
    out.operating = health::operating_from(text_at(balancer, "operating_status"));
    const auto provisioning = text_at(balancer, "provisioning_status");
    out.exists = provisioning != "DELETED";
    out.goes_away = provisioning == "PENDING_DELETE";
    out.changes = provisioning.starts_with("PENDING_") && !out.goes_away;
    if (auto address = text_at(balancer, "vip_address"); !address.empty()) out.addresses.push_back(std::move(address));
    for (const auto& more : list_at(balancer, "additional_vips"))
        if (auto address = text_at(&more, "ip_address"); !address.empty() && out.addresses.size() < most_addresses)
            out.addresses.push_back(std::move(address));
    return out;
}

Error not_octavia() { return {Code::unavailable, "what Octavia answers is not what it was asked for"}; }

/// The members of pools, by id. Those without an id cannot be told apart and do not count.
void collect(const json::array& pools, std::map<std::string, Operating>& members) {
    for (const auto& pool : pools)
        for (const auto& member : list_at(&pool, "members"))
            if (const auto id = text_at(&member, "id"); !id.empty() && members.size() < most_members)
                members[id] = health::operating_from(text_at(&member, "operating_status"));
}

} // namespace

Result<std::vector<OctaviaBalancer>> read_octavia_list(std::string_view body) {
    TRY(const auto document, read_answer("Octavia", body));
    if (const auto* list = at(&document, "loadbalancers"); list == nullptr || !list->is_array()) return not_octavia();
    std::vector<OctaviaBalancer> out;
    for (const auto& balancer : list_at(&document, "loadbalancers"))
        if (const auto id = text_at(&balancer, "id"); !id.empty()) out.push_back({id, state_of(&balancer)});
    return out;
}

Result<OctaviaBalancer> read_octavia_balancer(std::string_view body) {
    TRY(const auto document, read_answer("Octavia", body));
    const auto* balancer = at(&document, "loadbalancer");
    if (text_at(balancer, "id").empty() || text_at(balancer, "operating_status").empty()) return not_octavia();
    return OctaviaBalancer{text_at(balancer, "id"), state_of(balancer)};
}

Result<BalancerState> read_octavia_tree(std::string_view body) {
    TRY(const auto document, read_answer("Octavia", body));
    const auto* balancer = at(at(&document, "statuses"), "loadbalancer");
    if (text_at(balancer, "operating_status").empty()) return not_octavia();
    auto out = state_of(balancer);
    std::map<std::string, Operating> all, reachable;
    for (const auto& listener : list_at(balancer, "listeners")) {
        collect(list_at(&listener, "pools"), all);
        if (health::operating_from(text_at(&listener, "operating_status")) != Operating::offline)
            collect(list_at(&listener, "pools"), reachable);
    }
    collect(list_at(balancer, "pools"), all);
    for (const auto& [id, operating] : all)
        if (operating != Operating::offline) out.members.push_back({operating, reachable.contains(id)});
    return out;
}

} // namespace orrery::drivers
