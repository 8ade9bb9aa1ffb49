#include "gslb/model/kind_fields.h"
#include "gslb/model/kinds.h"
#include "gslb/model/migrations.h"
#include "gslb/model/validate.h"

namespace orrery::gslb {

namespace {

using namespace resource;

Field override_field(std::vector<std::string> states, std::string doc) {
    return object("override", std::move(doc))
        .with(text("state", "The state to use. drain: no new clients; does not count as unhealthy.")
                  .required()
                  .one_of(std::move(states)))
        .with(text("reason", "Why, for other administrators.").format(Format::one_line).between(0, 256))
        .with(time("until", "When the override ends. Default: when it is cleared."))
        .with(text("by", "Who set it. The server writes this.").format(Format::one_line).between(0, 256));
}

Field hold_down_field() {
    return object("hold_down", "Keeps flapping members withdrawn for longer. Default: members return at once.")
        .with(integer("changes", "The number of withdrawals within the window from which on a member is flapping.")
                  .required()
                  .between(2, 100))
        .with(duration("window", "The length of the window.").between(1, 86400).default_value("10m"))
        .with(duration("hold", "How long a member must be up before it returns; doubled with each further withdrawal.")
                  .between(1, 86400)
                  .default_value("30s"))
        .with(duration("max_hold", "The maximum hold time.").between(1, 86400).default_value("10m"));
}

} // namespace

Kind pool_kind() {
    Kind kind("Pool", "pools", "Members that can replace each other. Any number of load balancers may use it.");
    kind.spec(text("description", "What it is.").format(Format::one_line).between(0, 256))
        .spec(name_text("site", "The site of members that have none of their own."))
        .spec(object("location", "The coordinates of the site, for load balancers that send clients to the nearest pool.")
                  .with(number("latitude", "Degrees; south is negative.").required().between(-90, 90))
                  .with(number("longitude", "Degrees; west is negative.").required().between(-180, 180)))
        .spec(any("min_healthy", "The share of the members' weight (50%), or the number of members (2), that must be healthy for "
                                 "the pool to be usable.")
                  .default_value("50%"))
        .spec(list("monitors", "The checks of its members: a member is up if all of them are good.",
                   text("monitor", "A Monitor.").refers_to("Monitor"))
                  .between(0, 16))
        .spec(text("on_unknown", "The state of a member before the first result.").one_of({"up", "down"}).default_value("up"))
        .spec(object("guard",
                     "The mass-failure guard: limits how many members probes may withdraw at a time, because many failures "
                     "at once point to a failure of the prober. Default: 50% within 60s, and held members do not keep "
                     "clients from another usable pool. 100% turns it off.")
                  .with(any("max_ejections",
                            "The share of the members (50%), or the number, that probes may withdraw within the window.")
                            .required()
                            .renamed_from("most"))
                  .with(duration("window", "The length of the window.").between(1, 86400).default_value("60s")))
        .spec(object("load", "Load shedding: reduces the weight of busy members.")
                  .with(number("low", "Up to this load a member keeps its full weight.").required().between(0, 1'000'000'000))
                  .with(number("high", "From this load on a member has no weight; in between, in proportion.")
                            .required()
                            .between(0, 1'000'000'000))
                  .with(any("step", "A weight changes by at most this share at a time.").default_value("20%"))
                  .with(duration("interval", "The minimum time between two changes of a weight.")
                            .between(1, 86400)
                            .default_value("30s")))
        .spec(hold_down_field())
        .spec(override_field({"down", "drain"}, "A state for the whole pool that takes precedence over all probes."))
        .status(text("state", "usable or unusable."))
        .status(text("message", "Why the pool is in this state.").renamed_from("why"))
        .status(integer("members", "The number of members."))
        .status(integer("healthy", "The number of healthy members."))
        .status(any("withheld", "Withheld changes, and what they wait for."))
        .status(any("internal_state", "Internal: what later evaluations need from earlier ones. The form may change.")
                    .renamed_from("memory"))
        .column("NAME", "name")
        .column("SITE", "spec.site")
        .column("STATE", "status.state")
        .column("MEMBERS", "status.members")
        .column("HEALTHY", "status.healthy")
        .column("OVERRIDE", "spec.override.state")
        .column("AGE", "age")
        .wide_column("MESSAGE", "status.message")
        .prepare([](Context ctx, Draft& draft) { return prepare_pool(std::move(ctx), draft); })
        .migrate([](json::object&, json::object& status) { migrate_pool_status(status); })
        .example("kind: Pool\nname: eu\nspec:\n  site: ams\n  min_healthy: 50%\n  monitors: [web]\n");
    return kind;
}

Kind member_kind() {
    Kind kind("Member", "members", "One address that serves for a pool.");
    kind.spec(text("pool", "The Pool it belongs to.").required().refers_to("Pool").indexed())
        .spec(list("addresses", "One IPv4 address, one IPv6 address, or one of each.",
                   text("address", "An address.").format(Format::address))
                  .between(1, 2))
        .spec(text("node", "Instead of addresses: the Node whose address it is.").refers_to("Node"))
        .spec(text("instance", "Instead of addresses: the Instance of the catalog whose address it is.").refers_to("Instance"))
        .spec(object("balancer",
                     "Instead of addresses: a regional load balancer. A Source reports its address and its health; monitors "
                     "probe it, too, and they alone count if the load balancer has no health monitor of its own.")
                  .with(text("source", "The Source, of driver octavia.").required().refers_to("Source"))
                  .with(text("id", "The id of the load balancer.").required().format(Format::one_line).between(1, 64))
                  .with(duration("interval", "The time between queries.").between(1, 86400).default_value("10s")))
        .spec(integer("port", "The port for monitors without one. Default: the instance's.").between(1, 65535))
        .spec(integer("weight", "Its weight relative to other members. 0: only used if no other member is healthy.")
                  .between(0, 1 << 20)
                  .default_value(1))
        .spec(name_text("site", "Its site. Default: the label \"site\" of its Node, then the site of its pool."))
        .spec(name_text("rack", "Its rack. Default: the label \"rack\" of its Node."))
        .spec(number("capacity", "Its capacity, in the unit of the demand of load balancers.").between(0, 1'000'000'000))
        .spec(list("monitors", "Checks in addition to those of its pool.", text("monitor", "A Monitor.").refers_to("Monitor"))
                  .between(0, 16))
        .spec(override_field({"up", "down", "drain"}, "A state that takes precedence over all probes."))
        .status(text("state", "up, degraded, down, drained or unknown."))
        .status(text("message", "Why the member is in this state.").renamed_from("why"))
        .status(time("since", "When the state began."))
        .status(time("drained_at",
                     "Drained: from this time on no resolver has the address in its cache, and the member is safe to work on.")
                    .renamed_from("forgotten_at"))
        .status(any("addresses", "Its addresses."))
        .status(text("unchecked", "Why a check cannot run."))
        .status(number("load", "The last reported load, while it is valid."))
        .status(integer("weight_percent", "The per cent of its weight that load shedding leaves; absent at 100."))
        .status(number("share", "The healthy share of its backends, from 0 to 1, if its Source reports it."))
        .status(text("verdict", "The health state by its monitors: used after a restart until the first fresh result."))
        .column("NAME", "name")
        .column("POOL", "spec.pool")
        .column("ADDRESSES", "status.addresses")
        .column("WEIGHT", "spec.weight")
        .column("STATE", "status.state")
        .column("MESSAGE", "status.message")
        .column("AGE", "age")
        .wide_column("SITE", "spec.site")
        .wide_column("RACK", "spec.rack")
        .prepare([](Context ctx, Draft& draft) { return prepare_member(std::move(ctx), draft); })
        .example("kind: Member\nname: eu-1\nspec:\n  pool: eu\n  addresses: [192.0.2.1, 2001:db8::1]\n  port: 443\n");
    return kind;
}

} // namespace orrery::gslb
