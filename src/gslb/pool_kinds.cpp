#include "gslb/fields.h"
#include "gslb/kinds.h"
#include "gslb/validate.h"

namespace orrery::gslb {

namespace {

using namespace resource;

Field override_field(std::vector<std::string> states, std::string doc) {
    return object("override", std::move(doc))
        .with(
            text("state", "What holds instead. drain: no new clients, and it is not missed.").required().one_of(std::move(states)))
        .with(text("reason", "Why, for colleagues.").format(Format::one_line).between(0, 256))
        .with(time("until", "When it ends by itself. Left out: when it is taken back."))
        .with(text("by", "Who said so: set by the server.").format(Format::one_line).between(0, 256));
}

} // namespace

Kind pool_kind() {
    Kind kind("Pool", "pools", "Members that stand in for each other. May serve any number of names.");
    kind.spec(text("description", "What it is.").format(Format::one_line).between(0, 256))
        .spec(name_text("site", "Where its members are that do not say themselves."))
        .spec(object("location", "Where that is on the globe, for load balancers whose clients get the nearest pool.")
                  .with(number("latitude", "Degrees; south is negative.").required().between(-90, 90))
                  .with(number("longitude", "Degrees; west is negative.").required().between(-180, 180)))
        .spec(
            any("min_healthy", "How much of the members' weight (50%), or how many members (2), must be healthy for it to answer.")
                .otherwise("50%"))
        .spec(list("monitors", "How to tell that a member works: all of these must say so.",
                   text("monitor", "A Monitor.").refers_to("Monitor"))
                  .between(0, 16))
        .spec(text("on_unknown", "What a member counts as before the first result.").one_of({"up", "down"}).otherwise("up"))
        .spec(
            object("guard", "Holds back what looks like a failure of the watching rather than of the watched.")
                .with(
                    any("most", "Probes may take out this share of the members (50%), or this many, within the window.").required())
                .with(duration("window", "Within how long.").between(1, 86400).otherwise("60s")))
        .spec(object("load", "Takes weight from members that are busy.")
                  .with(number("low", "Up to this load a member keeps all of its weight.").required().between(0, 1'000'000'000))
                  .with(number("high", "From this load on it has none; between the two, in proportion.")
                            .required()
                            .between(0, 1'000'000'000))
                  .with(any("step", "A weight changes by no more than this share of it at a time.").otherwise("20%"))
                  .with(duration("interval", "And not more often than this.").between(1, 86400).otherwise("30s")))
        .spec(override_field({"down", "drain"}, "What a person says of all of it, above all probes."))
        .status(text("state", "usable or unusable."))
        .status(text("why", "The state in words."))
        .status(integer("members", "How many there are."))
        .status(integer("healthy", "How many of them are healthy."))
        .status(any("withheld", "Changes that wait, and for what."))
        .status(any("memory", "What must be known of earlier times."))
        .column("NAME", "name")
        .column("SITE", "spec.site")
        .column("STATE", "status.state")
        .column("MEMBERS", "status.members")
        .column("HEALTHY", "status.healthy")
        .column("OVERRIDE", "spec.override.state")
        .column("AGE", "age")
        .wide_column("WHY", "status.why")
        .prepare([](Context ctx, Draft& draft) { return prepare_pool(std::move(ctx), draft); })
        .example("kind: Pool\nname: eu\nspec:\n  site: ams\n  min_healthy: 50%\n  monitors: [web]\n");
    return kind;
}

Kind member_kind() {
    Kind kind("Member", "members", "One address that can answer for a pool.");
    kind.spec(text("pool", "The Pool it belongs to.").required().refers_to("Pool").indexed())
        .spec(list("addresses", "One IPv4 address, one IPv6 address, or one of each.",
                   text("address", "An address.").format(Format::address))
                  .between(1, 2))
        .spec(text("node", "Instead: the Node whose address it is.").refers_to("Node"))
        .spec(text("instance", "Instead: the Instance of the catalog whose address it is.").refers_to("Instance"))
        .spec(object("balancer",
                     "Instead: a regional load balancer. A Source tells where it is and how it is; monitors look at it, "
                     "too, and alone where nothing there watches its members.")
                  .with(text("source", "The Source, of driver octavia.").required().refers_to("Source"))
                  .with(text("id", "The load balancer's id there.").required().format(Format::one_line).between(1, 64))
                  .with(duration("interval", "How often to ask.").between(1, 86400).otherwise("10s")))
        .spec(integer("port", "Where monitors look that do not say. Left out: the instance's.").between(1, 65535))
        .spec(integer("weight", "Its share against the others. 0: only when they cannot.").between(0, 1 << 20).otherwise(1))
        .spec(name_text("site", "Where it is. Left out: what its Node's label \"site\" says, else its pool."))
        .spec(name_text("rack", "Where it is there. Left out: what its Node's label \"rack\" says."))
        .spec(number("capacity", "What it can carry, in the unit of the load balancers' demand.").between(0, 1'000'000'000))
        .spec(list("monitors", "Further ways to tell that it works, besides its pool's.",
                   text("monitor", "A Monitor.").refers_to("Monitor"))
                  .between(0, 16))
        .spec(override_field({"up", "down", "drain"}, "What a person says of it, above all probes."))
        .status(text("state", "up, degraded, down, drained or unknown."))
        .status(text("why", "The state in words."))
        .status(time("since", "When it came to this state."))
        .status(time("forgotten_at", "Drained: when no resolver gives it to clients any more, and work on it may begin."))
        .status(any("addresses", "Where it is found."))
        .status(number("share", "How much of what stands behind it is well, from 0 to 1, where whoever knows it says so."))
        .status(text("verdict", "What its monitors last said: what holds after a restart until they say it again."))
        .column("NAME", "name")
        .column("POOL", "spec.pool")
        .column("ADDRESSES", "status.addresses")
        .column("WEIGHT", "spec.weight")
        .column("STATE", "status.state")
        .column("WHY", "status.why")
        .column("AGE", "age")
        .wide_column("SITE", "spec.site")
        .wide_column("RACK", "spec.rack")
        .prepare([](Context ctx, Draft& draft) { return prepare_member(std::move(ctx), draft); })
        .example("kind: Member\nname: eu-1\nspec:\n  pool: eu\n  addresses: [192.0.2.1, 2001:db8::1]\n  port: 443\n");
    return kind;
}

} // namespace orrery::gslb
