#include "gslb/model/kinds.h"

#include "gslb/model/migrations.h"
#include "gslb/observe/externaldns_source.h"
#include "gslb/observe/health_source.h"

namespace orrery::gslb {

using namespace resource;

Kind decision_kind() {
    Kind kind(
        "Decision", "decisions",
        "The record of a decision about a load balancer, or of a withheld change, with its inputs. Only the server writes it.");
    kind.spec(text("loadbalancer", "The LoadBalancer.").required().indexed())
        .spec(text("fqdn", "The name."))
        .spec(integer("seq", "The number of the decision, counted for each load balancer."))
        .spec(time("at", "When it was decided.").required())
        .spec(text("cause", "config, probe, driver, push, load, admin, time, leader, panic_enter, panic_leave, mass_guard_hold, "
                            "flap_hold, quorum_hold, vantage_excluded, source_silent, failback, dead_band."))
        .spec(boolean("changed", "False: the answers did not change; `withheld` lists what was not done."))
        .spec(any("trigger", "What made the decision necessary."))
        .spec(any("before", "The answers before, in short."))
        .spec(any("after", "The answers from then on."))
        .spec(any("withheld", "Withheld changes, and what they wait for."))
        .spec(any("messages", "Why, for people.").renamed_from("because"))
        .spec(text("actor", "Who made the change that triggered it."))
        .spec(text("reason", "The reason that the actor gave."))
        .spec(any("inputs", "The complete inputs: a replay decides again from them."))
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
        .unaudited()
        .migrate([](json::object& spec, json::object&) { migrate_decision(spec); });
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
