#include "gslb/model/kind_fields.h"
#include "gslb/model/kinds.h"
#include "gslb/model/migrations.h"
#include "gslb/model/validate.h"

namespace orrery::gslb {

namespace {

using namespace resource;

Field prefixes_field() {
    return list("prefixes", "The networks of the clients, such as 192.0.2.0/24 or 2001:db8::/32. The longest matching prefix wins.",
                text("prefix", "A network.").format(Format::one_line).between(1, 64))
        .required()
        .between(1, 10'000);
}

Field pools_field() {
    return list("pools", "The pools for these clients, in order; each must be a pool of the load balancer.",
                text("pool", "A pool's name.").format(Format::name))
        .required()
        .between(1, 64);
}

Field strict_field() { return boolean("strict", "Never use another pool, even if none of these is usable.").default_value(false); }

void add_steering(Kind& kind) {
    kind.spec(text("steering",
                   "Which pools answer. failover: the first usable pool, in order. spread: all usable active pools, by weight. "
                   "topology: by the client's network. geo: by the client's location. latency: the pool with the lowest measured "
                   "round-trip time.")
                  .one_of({"failover", "spread", "topology", "geo", "latency"})
                  .default_value("failover"))
        .spec(list("topology", "topology: networks and the pools for them. Other clients get the pools as listed.",
                   object("clients", "A client class.")
                       .with(name_text("name", "The name of the class. Default: its first prefix."))
                       .with(prefixes_field())
                       .with(pools_field())
                       .with(strict_field()))
                  .between(1, 1000))
        .spec(object("geo", "geo: locations and the pools for them, by the databases of the setting dns.geo_databases.")
                  .with(list("rules", "The first matching rule wins. All fields of a rule must match.",
                             object("clients", "A client class.")
                                 .with(name_text("name", "The name of the class. Default: its fields, as in NL or AS64500."))
                                 .with(text("continent", "The continent.").one_of({"AF", "AN", "AS", "EU", "NA", "OC", "SA"}))
                                 .with(text("country", "The country, such as NL (ISO 3166-1).").between(2, 2))
                                 .with(text("subdivision", "A subdivision of the country, such as NH of NL (ISO 3166-2).")
                                           .between(1, 3))
                                 .with(integer("asn", "The number of the autonomous system.").between(1, 4294967295))
                                 .with(pools_field())
                                 .with(strict_field()))
                            .between(1, 1000))
                  .with(boolean("nearest", "Clients without a matching rule get the three nearest active pools, by the location of "
                                           "the pools, and then the pools as listed. Default false.")))
        .spec(object("latency", "latency: the vantages that measure for clients.")
                  .with(duration("dead_band", "A pool takes over only if its round-trip time is lower by more than this.")
                            .default_value("10ms"))
                  .with(any("dead_band_share", "And by more than this share of the present pool's time, such as 20%.")
                            .default_value("20%"))
                  .with(list("clients", "Networks, and the vantage that measures for them.",
                             object("clients", "A client class.")
                                 .with(name_text("name", "The name of the class. Default: its first prefix."))
                                 .with(prefixes_field())
                                 .with(name_text("vantage", "The vantage whose measurements count.").required()))
                            .required()
                            .between(1, 1000)));
}

} // namespace

Kind load_balancer_kind() {
    Kind kind("LoadBalancer", "loadbalancers", "A DNS name whose answers follow health and policy.");
    kind.spec(name_text("fqdn", "The DNS name; its first label may be *.").required().indexed().example("www.gslb.example"))
        .spec(name_text("zone", "The zone of the name. Default: the name without its first label."))
        .spec(text("description", "What it is.").format(Format::one_line).between(0, 256))
        .spec(
            list("pools", "The pools that answer, in order of preference.",
                 object("use", "A pool.")
                     .with(text("pool", "The Pool.").required().refers_to("Pool"))
                     .with(text("tier", "active: answers. passive: answers only if no active pool is usable.")
                               .one_of({"active", "passive"})
                               .default_value("active"))
                     .with(integer("weight", "spread: its weight relative to other pools. 0: only used if no other pool is usable.")
                               .between(0, 1 << 20)))
                .required()
                .between(1, 64));
    add_steering(kind);
    kind.spec(text("answers",
                   "What a response contains. all: every healthy member. round-robin: the same, rotated with each query. weighted: "
                   "one member, by weight. weighted-many: each member with a probability of its weight relative to the highest. "
                   "subset: max_answers members at random, spread over sites or racks. sticky: the same member for the same client "
                   "network; only clients of a lost member move. sticky-by-name: the same member for all clients of a name; the "
                   "names of a wildcard are spread over the members, and only names of a lost member move.")
                  .one_of({"all", "round-robin", "weighted", "weighted-many", "subset", "sticky", "sticky-by-name"})
                  .default_value("all"))
        .spec(integer("max_answers",
                      "The maximum number of addresses of each family. Default: no limit; sticky and sticky-by-name: 1.")
                  .between(1, 1000))
        .spec(object("ttl", "The TTL of answers: the time for which nothing can change, within these limits.")
                  .with(duration("max", "The maximum.").between(1, 86400).default_value("30s"))
                  .with(duration("min", "The minimum. Default: half of max.").between(1, 86400)))
        .spec(object("all_down", "The answer if no pool is usable.")
                  .with(text("answer",
                             "all: all members, whatever their health (panic). healthy: the remaining healthy members, or all if "
                             "there are none. last-good: the last good answer, without members that were removed. fallback: "
                             "fixed addresses or an alias. nodata, servfail, refuse: a response of that kind.")
                            .one_of({"all", "healthy", "last-good", "fallback", "nodata", "servfail", "refuse"})
                            .default_value("all"))
                  .with(list("addresses", "fallback: one IPv4 and one IPv6 address at most.",
                             text("address", "An address.").format(Format::address))
                            .between(1, 2))
                  .with(name_text("alias", "fallback: a CNAME target, instead of addresses.")))
        .spec(object("failback", "When clients return to a pool that was unusable.")
                  .with(text("mode", "auto: at once. delayed: after the pool was usable for `after`. manual: after an approval.")
                            .one_of({"auto", "delayed", "manual"})
                            .default_value("auto"))
                  .with(duration("after", "delayed: how long the pool must be usable.").between(1, 7 * 86400))
                  .with(time("approved_at", "Clients may return to pools that they left before this time.")))
        .spec(duration("failover_within",
                       "The time within which clients must have left a failed address. The status warns if that cannot be met.")
                  .between(1, 86400))
        .spec(number("demand", "The peak demand of all clients, in the unit of the members' capacities.").between(0, 1'000'000'000))
        .status(text("state",
                     "normal: the preferred pools answer. failover: other pools answer. panic: no pool is usable, and members "
                     "answer anyway. empty: no address is answered."))
        .status(text("pool", "The pools that answer the default client class."))
        .status(any("answers", "The addresses for the default client class."))
        .status(integer("ttl", "Seconds."))
        .status(boolean("panic", "No pool is usable, and members answer anyway."))
        .status(any("classes", "The answers of all client classes."))
        .status(any("messages", "Why, for people.").renamed_from("because"))
        .status(any("withheld", "Withheld changes, and what they wait for."))
        .status(any("failover_time", "The worst-case time until clients have left a failed address, with warnings."))
        .status(time("since", "When the answers last changed."))
        .status(integer("decisions", "The number of decisions."))
        .status(any("published", "The state of each publication target: this server, and every Publisher of the zone."))
        .status(any("internal_state", "Internal: what later decisions need from earlier ones. The form may change.")
                    .renamed_from("memory"))
        .column("NAME", "name")
        .column("FQDN", "spec.fqdn")
        .column("STEERING", "spec.steering")
        .column("STATE", "status.state")
        .column("POOL", "status.pool")
        .column("ANSWERS", "status.answers")
        .column("TTL", "status.ttl")
        .column("AGE", "age")
        .wide_column("DECISIONS", "status.decisions")
        .wide_column("SINCE", "status.since")
        .also_called({"lb", "gslb"})
        .prepare([](Context ctx, Draft& draft) { return prepare_load_balancer(std::move(ctx), draft); })
        .migrate([](json::object&, json::object& status) { migrate_load_balancer_status(status); })
        .example(R"(kind: LoadBalancer
name: www
spec:
  fqdn: www.gslb.example
  pools:
    - pool: eu
    - pool: us
      tier: passive
  answers: round-robin
  ttl:
    max: 20s
    min: 5s
  failback:
    mode: delayed
    after: 2m
  failover_within: 60s
)");
    return kind;
}

} // namespace orrery::gslb
