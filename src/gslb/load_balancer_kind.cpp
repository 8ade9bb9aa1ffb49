#include "gslb/fields.h"
#include "gslb/kinds.h"
#include "gslb/validate.h"

namespace orrery::gslb {

namespace {

using namespace resource;

Field prefixes_field() {
    return list("prefixes", "Who they are: networks such as 192.0.2.0/24 or 2001:db8::/32. The longest that holds a client counts.",
                text("prefix", "A network.").format(Format::one_line).between(1, 64))
        .required()
        .between(1, 10'000);
}

Field pools_field() {
    return list("pools", "The pools to try for them, in order; each must be among the load balancer's.",
                text("pool", "A pool's name.").format(Format::name))
        .required()
        .between(1, 64);
}

Field strict_field() {
    return boolean("strict", "Never any other pool than these, also when none of them is usable.").otherwise(false);
}

void add_steering(Kind& kind) {
    kind.spec(
            text("steering",
                 "Which pools answer. failover: the first usable one, in order. spread: all usable active pools together, by their "
                 "weights. topology: by the client's network. geo: by where the client is. latency: the one nearest by "
                 "measurement.")
                .one_of({"failover", "spread", "topology", "geo", "latency"})
                .otherwise("failover"))
        .spec(list("topology", "topology: networks and the pools for them. Clients of no network here get the pools as listed.",
                   object("clients", "Some clients.")
                       .with(name_text("name", "What to call them. Left out: their first prefix."))
                       .with(prefixes_field())
                       .with(pools_field())
                       .with(strict_field()))
                  .between(1, 1000))
        .spec(object("geo", "geo: places and the pools for them, as the server's dns.geo_databases know them.")
                  .with(list("rules", "The first that fits a client counts. In each, all that is said must fit.",
                             object("clients", "Some clients.")
                                 .with(name_text("name", "What to call them. Left out: what is said of them, as in NL or AS64500."))
                                 .with(text("continent", "The continent.").one_of({"AF", "AN", "AS", "EU", "NA", "OC", "SA"}))
                                 .with(text("country", "The country, as in NL (ISO 3166-1).").between(2, 2))
                                 .with(text("subdivision", "A part of the country, as in NH of NL (ISO 3166-2).").between(1, 3))
                                 .with(integer("asn", "The number of the autonomous system.").between(1, 4294967295))
                                 .with(pools_field())
                                 .with(strict_field()))
                            .between(1, 1000))
                  .with(boolean("nearest", "Clients that no rule fits get the three active pools nearest to them, by the pools' "
                                           "location, and others the pools as listed. Default false.")))
        .spec(
            object("latency", "latency: whose measurements count for whom.")
                .with(duration("dead_band", "A pool takes over only if it is nearer by more than this.").otherwise("10ms"))
                .with(
                    any("dead_band_share", "And by more than this share of the present one's time, such as 20%.").otherwise("20%"))
                .with(list("clients", "Networks, and the vantage point that measures for them.",
                           object("clients", "Some clients.")
                               .with(name_text("name", "What to call them. Left out: their first prefix."))
                               .with(prefixes_field())
                               .with(name_text("vantage", "Whose measurements count.").required()))
                          .required()
                          .between(1, 1000)));
}

} // namespace

Kind load_balancer_kind() {
    Kind kind("LoadBalancer", "loadbalancers", "A name whose answers follow health: which pools answer, for whom, how.");
    kind.spec(name_text("fqdn", "The name that is answered; its first label may be *.")
                  .required()
                  .indexed()
                  .example("www.gslb.example"))
        .spec(name_text("zone", "The zone it is in. Left out: the name without its first label."))
        .spec(text("description", "What it is.").format(Format::one_line).between(0, 256))
        .spec(list("pools", "Where answers come from, in order of preference.",
                   object("use", "A pool.")
                       .with(text("pool", "The Pool.").required().refers_to("Pool"))
                       .with(text("tier", "active: answers. passive: answers when no active pool can.")
                                 .one_of({"active", "passive"})
                                 .otherwise("active"))
                       .with(integer("weight", "spread: its share against the other pools. 0: only when they cannot.")
                                 .between(0, 1 << 20)))
                  .required()
                  .between(1, 64));
    add_steering(kind);
    kind.spec(text("answers",
                   "What an answer holds. all: every healthy member. round-robin: the same, each time beginning at the next. "
                   "weighted: "
                   "one, by weight. weighted-many: each by its weight against the greatest. subset: max_answers at random, spread "
                   "over "
                   "sites or racks. sticky: the same for the same client's network, and only a lost member's clients move. "
                   "sticky-by-name: the "
                   "same for everybody who asks for a name, the names of a wildcard spread over the members, and only a lost "
                   "member's names move.")
                  .one_of({"all", "round-robin", "weighted", "weighted-many", "subset", "sticky", "sticky-by-name"})
                  .otherwise("all"))
        .spec(integer("max_answers", "At most so many addresses of a family. Left out: no limit; sticky and sticky-by-name: 1.")
                  .between(1, 1000))
        .spec(object("ttl", "How long resolvers may keep an answer: as long as nothing can change, within these.")
                  .with(duration("max", "At most.").between(1, 86400).otherwise("30s"))
                  .with(duration("min", "At least. Left out: half of max.").between(1, 86400)))
        .spec(object("all_down", "What to answer when no pool is usable.")
                  .with(text("answer", "all: everybody, whatever their health (shown as panic). last-good: what was answered last. "
                                       "fallback: fixed addresses or an alias. nodata, servfail, refuse: nothing, in that way.")
                            .one_of({"all", "last-good", "fallback", "nodata", "servfail", "refuse"})
                            .otherwise("all"))
                  .with(list("addresses", "fallback: one IPv4 and one IPv6 address at most.",
                             text("address", "An address.").format(Format::address))
                            .between(1, 2))
                  .with(name_text("alias", "fallback: a name elsewhere, instead of addresses.")))
        .spec(object("failback", "When clients return to a pool that was not usable for a while.")
                  .with(text("mode", "auto: at once. delayed: when it was usable for `after`. manual: when somebody approves.")
                            .one_of({"auto", "delayed", "manual"})
                            .otherwise("auto"))
                  .with(duration("after", "delayed: how long it must have been usable.").between(1, 7 * 86400))
                  .with(time("approved_at", "Clients may return to what they left before this time.")))
        .spec(duration("failover_within",
                       "How soon clients must have left an address that failed. Status warns where that cannot be held.")
                  .between(1, 86400))
        .spec(number("demand", "What all clients together want at the busiest time, in the unit of the members' capacities.")
                  .between(0, 1'000'000'000))
        .status(text("state", "normal: the preferred pools answer. failover: others do. panic: nothing is well, and something is "
                              "answered all the same. empty: nothing is answered."))
        .status(text("pool", "Where answers come from, for clients of no network of their own."))
        .status(any("answers", "The addresses, for the same."))
        .status(integer("ttl", "Seconds."))
        .status(boolean("panic", "Nothing is well, and this is answered all the same."))
        .status(any("classes", "All of it, by who asks."))
        .status(any("because", "Why, in words."))
        .status(any("withheld", "Changes that wait, and for what."))
        .status(any("failover_time", "The longest that a client can go on using an address that failed, and what spoils it."))
        .status(time("since", "When the answers became these."))
        .status(integer("decisions", "How many there have been."))
        .status(any("published", "How it stands at each way out: this server, and every Publisher of its zone."))
        .status(any("memory", "What later decisions need to know of earlier ones."))
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
