#include "gslb/kinds.h"

#include "gslb/cluster.h"
#include "gslb/source.h"

namespace orrery::gslb {

using namespace resource;

Kind decision_kind() {
    Kind kind("Decision", "decisions",
              "What was decided about a name, or withheld: when, why, and from what. Written by the server only.");
    kind.spec(text("loadbalancer", "The LoadBalancer.").required().indexed())
        .spec(text("fqdn", "The name."))
        .spec(integer("seq", "Counts the decisions about the name."))
        .spec(time("at", "When.").required())
        .spec(text("cause", "probe, push, admin, config, time, panic_enter, panic_leave, mass_guard_hold, quorum_hold, "
                            "vantage_excluded, source_silent, failback, dead_band."))
        .spec(boolean("changed", "False: the answers stayed as they were, and `withheld` says what was not done."))
        .spec(any("trigger", "What set it off."))
        .spec(any("before", "What was answered before, in short."))
        .spec(any("after", "What is answered from then on."))
        .spec(any("withheld", "Changes that did not happen, and what they wait for."))
        .spec(any("because", "Why, in words."))
        .spec(text("actor", "Who, where a person set it off."))
        .spec(text("reason", "The reason that was given."))
        .spec(any("inputs", "All that it was decided from: enough to decide it again."))
        .column("TIME", "spec.at")
        .column("LOADBALANCER", "spec.loadbalancer")
        .column("SEQ", "spec.seq")
        .column("CAUSE", "spec.cause")
        .column("POOL", "spec.after.pool")
        .column("ANSWERS", "spec.after.answers")
        .column("TTL", "spec.after.ttl")
        .wide_column("NAME", "name")
        .verbs({Verb::read})
        .access(Role::viewer, Role::admin)
        .unaudited();
    return kind;
}

std::vector<Kind> all_kinds() {
    std::vector<Kind> out;
    for (const auto make : {load_balancer_kind, pool_kind, member_kind, monitor_kind, zone_kind, publisher_kind, source_kind,
                            report_kind, cluster_kind, cluster_record_kind, decision_kind})
        out.push_back(make());
    return out;
}

void add_kinds(Registry& registry) {
    for (auto& kind : all_kinds()) registry.add(std::move(kind));
}

} // namespace orrery::gslb
