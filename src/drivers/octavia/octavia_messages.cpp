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

constexpr std::size_t max_members = 10'000, max_addresses = 16;

BalancerState state_of(const json::object& balancer) {
    BalancerState out;
    out.operating = health::operating_from(text_at(balancer, "operating_status"));
    const auto provisioning = text_at(balancer, "provisioning_status");
    out.exists = provisioning != "DELETED";
    out.goes_away = provisioning == "PENDING_DELETE";
    out.changes = provisioning.starts_with("PENDING_") && !out.goes_away;
    if (auto address = text_at(balancer, "vip_address"); !address.empty()) out.addresses.push_back(std::move(address));
    for (const auto& more : array_at(balancer, "additional_vips"))
        if (auto address = text_at(as_object(more), "ip_address"); !address.empty() && out.addresses.size() < max_addresses)
            out.addresses.push_back(std::move(address));
    return out;
}

Error not_octavia() { return {Code::unavailable, "the answer of Octavia is not what was asked for"}; }

/// Adds the members of pools, by id. Members without an id cannot be distinguished and do not count.
void collect(const json::array& pools, std::map<std::string, Operating>& members) {
    for (const auto& pool : pools)
        for (const auto& member : array_at(as_object(pool), "members"))
            if (const auto id = text_at(as_object(member), "id"); !id.empty() && members.size() < max_members)
                members[id] = health::operating_from(text_at(as_object(member), "operating_status"));
}

} // namespace

Result<std::vector<OctaviaBalancer>> read_octavia_list(std::string_view body) {
    TRY(const auto document, read_answer("Octavia", body));
    const auto* list = as_object(document).if_contains("loadbalancers");
    if (list == nullptr || !list->is_array()) return not_octavia();
    std::vector<OctaviaBalancer> out;
    for (const auto& balancer : list->get_array())
        if (const auto id = text_at(as_object(balancer), "id"); !id.empty()) out.push_back({id, state_of(as_object(balancer))});
    return out;
}

Result<OctaviaBalancer> read_octavia_balancer(std::string_view body) {
    TRY(const auto document, read_answer("Octavia", body));
    const auto& balancer = object_at(as_object(document), "loadbalancer");
    if (text_at(balancer, "id").empty() || text_at(balancer, "operating_status").empty()) return not_octavia();
    return OctaviaBalancer{text_at(balancer, "id"), state_of(balancer)};
}

Result<BalancerState> read_octavia_tree(std::string_view body) {
    TRY(const auto document, read_answer("Octavia", body));
    const auto& balancer = object_at(object_at(as_object(document), "statuses"), "loadbalancer");
    if (text_at(balancer, "operating_status").empty()) return not_octavia();
    auto out = state_of(balancer);
    std::map<std::string, Operating> all, reachable;
    for (const auto& listener : array_at(balancer, "listeners")) {
        collect(array_at(as_object(listener), "pools"), all);
        if (health::operating_from(text_at(as_object(listener), "operating_status")) != Operating::offline)
            collect(array_at(as_object(listener), "pools"), reachable);
    }
    collect(array_at(balancer, "pools"), all);
    for (const auto& [id, operating] : all)
        if (operating != Operating::offline) out.members.push_back({operating, reachable.contains(id)});
    return out;
}

} // namespace orrery::drivers
