#include "gslb/kinds.h"

#include "gslb/cluster.h"
#include "gslb/validate.h"

namespace orrery::gslb {

namespace {

using namespace resource;

Field name_text(std::string name, std::string doc) {
    return text(std::move(name), std::move(doc)).format(Format::one_line).between(1, 255);
}

Field override_field(std::vector<std::string> states, std::string doc) {
    return object("override", std::move(doc))
        .with(
            text("state", "What holds instead. drain: no new clients, and it is not missed.").required().one_of(std::move(states)))
        .with(text("reason", "Why, for colleagues.").format(Format::one_line).between(0, 256))
        .with(time("until", "When it ends by itself. Left out: when it is taken back."))
        .with(text("by", "Who said so: set by the server.").format(Format::one_line).between(0, 256));
}

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

Kind monitor_kind() {
    Kind kind("Monitor", "monitors", "How to tell that a member works. Shared by any number of pools and members.");
    kind.spec(text("description", "What it is.").format(Format::one_line).between(0, 256))
        .spec(text("kind",
                   "tcp: a connection is taken; what is sent is answered as expected. tls: a handshake, and a certificate that "
                   "lasts. http, https: an answer with the right code and body. grpc: the health service says SERVING. icmp: "
                   "an echo. udp: an answer. dns: the right answer to a question. plugin: any Nagios-style program. exec: any "
                   "program that ends with 0. octavia: what a regional load balancer's own API says. prometheus: a query. push: "
                   "what others say (PUT /v1/members/NAME/health/MONITOR). calculated: what follows from other Monitors.")
                  .required()
                  .one_of({"tcp", "tls", "http", "https", "grpc", "icmp", "udp", "dns", "plugin", "exec", "octavia", "prometheus",
                           "push", "calculated"}))
        .spec(integer("port", "Where to connect. Left out: the member's.").between(1, 65535))
        .spec(text("host", "tls, http, https, grpc: the name to ask for, and to verify. Left out: the member's address.")
                  .format(Format::host))
        .spec(boolean("verify", "tls, https: whether the certificate must be good. Default true."))
        .spec(duration("least_left",
                       "tls, https: less left of the certificate's life makes the member degraded. Default 14d for tls."))
        .spec(text("path", "http, https: path and query.").between(1, 2048).format(Format::one_line))
        .spec(text("method", "http, https: the method.").one_of({"GET", "HEAD", "POST", "PUT", "OPTIONS"}))
        .spec(map("headers", "http, https: header fields to send.",
                  text("value", "A value.").format(Format::one_line).between(0, 4096))
                  .between(0, 32))
        .spec(text("body", "http, https: what to send.").between(0, 65536))
        .spec(text("expect", "http, https: the codes that are good, as in 200-299,301. Left out: 2xx is good, 429 warns.")
                  .format(Format::one_line)
                  .between(3, 256))
        .spec(boolean("reuse", "http, https: keep the connection for the next look. Default true."))
        .spec(text("send", "tcp, udp: what to send.").between(0, 4096))
        .spec(text("contains", "tcp, http, https, udp, dns: what the answer must contain, in its first 64 KiB (tcp: 4 KiB).")
                  .between(1, 1024))
        .spec(text("matches", "tcp, http, https, udp: a regular expression (RE2) that the answer must match.").between(1, 1024))
        .spec(text("service", "grpc: the service to ask for. Left out: the server as a whole.")
                  .between(0, 256)
                  .format(Format::one_line))
        .spec(boolean("secure", "grpc: with TLS."))
        .spec(text("name", "dns: the name to ask for.").between(1, 254).format(Format::one_line))
        .spec(text("type", "dns: the type to ask for. Default A.").one_of({"A", "AAAA", "CNAME", "MX", "NS", "SOA", "SRV", "TXT"}))
        .spec(integer("rcode", "dns: the code that is good. Default 0, NOERROR.").between(0, 23))
        .spec(boolean("authoritative", "dns: the answer must be."))
        .spec(list("command",
                   "plugin, exec: a program of a folder for plugins, and its arguments; $HOSTADDRESS$ and $PORT$ in them are the "
                   "member's.",
                   text("word", "An argument.").between(0, 4096))
                  .between(1, 64))
        .spec(text("source", "octavia, prometheus: the Source to ask.").refers_to("Source"))
        .spec(text("id", "octavia: the load balancer's id there.").format(Format::one_line).between(1, 64))
        .spec(text("query", "prometheus: an expression with a value for each member, or one for all.")
                  .format(Format::one_line)
                  .between(1, 4096))
        .spec(text("label", "prometheus: the label that is the member's address, with or without a port. Default instance.")
                  .format(Format::one_line)
                  .between(1, 128))
        .spec(number("least", "prometheus: less is bad."))
        .spec(number("most", "prometheus: more is bad."))
        .spec(duration("ttl", "push: how long what was said holds, where that does not say; then its silence is bad. Default 1m.")
                  .between(1, 86400))
        .spec(list("of", "calculated: the Monitors that it is made of. They are looked at for its sake.",
                   text("monitor", "A Monitor, not a calculated one.").refers_to("Monitor"))
                  .between(1, 32))
        .spec(text("rule", "calculated: all of them must be good, any, at-least `need`, or none. Default all.")
                  .one_of({"all", "any", "at-least", "none"}))
        .spec(integer("need", "calculated, at-least: how many.").between(1, 32))
        .spec(integer("quorum", "How many vantages must find it down. Left out: more than half of those that look and are fit.")
                  .between(1, 100))
        .spec(duration("interval", "How often to look. Default 10s; push: 1s.").between(1, 86400))
        .spec(duration("fast", "How often to look while results point to a change. Left out: as usual.").between(1, 86400))
        .spec(duration("slow", "How often to look at what has been down for ten minutes. Left out: as usual.").between(1, 86400))
        .spec(duration("timeout", "How long the whole of one look may take; at most the interval, and at most `fast`. Default 5s."))
        .spec(integer("rise", "Good results in a row before what was down is up. Default 2; octavia, push: 1.").between(1, 100))
        .spec(integer("fall", "Bad results before what was up is down. Default 3; octavia, push: 1.").between(1, 100))
        .spec(integer("forgive", "Good results in a row after which earlier bad ones no longer count. Default 1.").between(1, 100))
        .column("NAME", "name")
        .column("KIND", "spec.kind")
        .column("PORT", "spec.port")
        .column("PATH", "spec.path")
        .column("INTERVAL", "spec.interval")
        .column("RISE", "spec.rise")
        .column("FALL", "spec.fall")
        .column("AGE", "age")
        .prepare([](Context ctx, Draft& draft) { return prepare_monitor(std::move(ctx), draft); })
        .example("kind: Monitor\nname: web\nspec:\n  kind: http\n  port: 80\n  path: /healthz\n  interval: 5s\n  fall: 2\n");
    return kind;
}

Kind zone_kind() {
    Kind kind("Zone", "zones", "A zone that this server answers for: its fixed records, beside the names of load balancers.");
    kind.spec(name_text("origin", "The zone's name.").required().indexed().example("gslb.example"))
        .spec(text("description", "What it is.").format(Format::one_line).between(0, 256))
        .spec(list("nameservers", "The servers it is delegated to: their names. The first is the SOA's.",
                   name_text("server", "A host name."))
                  .required()
                  .between(1, 16))
        .spec(name_text("contact", "Who to write to, as in hostmaster@example.org. Left out: hostmaster at the zone."))
        .spec(duration("ttl", "How long resolvers may keep fixed records that do not say.").between(1, 604800).otherwise("1h"))
        .spec(duration("negative_ttl", "How long they may keep that something is not there.").between(1, 86400).otherwise("30s"))
        .spec(text("records", "Fixed records, as in a zone file. SOA and the zone's NS are made from the fields.")
                  .between(0, 1 << 20))
        .spec(text("signing_key", "The Secret whose value \"private_key\" signs the zone: a P-256 key in PEM. Left out: it is not "
                                  "signed. Put the DS of the status into the parent zone.")
                  .refers_to("Secret"))
        .status(text("state", "served, or refused with the reason."))
        .status(text("why", "What is wrong."))
        .status(integer("names", "Names of load balancers that are answered in it."))
        .status(text("ds", "For the parent zone, where it is signed."))
        .column("NAME", "name")
        .column("ORIGIN", "spec.origin")
        .column("STATE", "status.state")
        .column("NAMES", "status.names")
        .column("AGE", "age")
        .wide_column("WHY", "status.why")
        .prepare([](Context ctx, Draft& draft) { return prepare_zone(std::move(ctx), draft); })
        .example("kind: Zone\nname: gslb\nspec:\n  origin: gslb.example\n  nameservers: [ns1.example]\n  contact: "
                 "hostmaster@example.org\n");
    return kind;
}

Kind publisher_kind() {
    Kind kind("Publisher", "publishers",
              "A DNS service outside to which decisions go as well. What every client gets, not what some networks get.");
    kind.spec(
            text("driver", "What it speaks. externaldns: the webhook protocol of ExternalDNS, and so anything that has an adapter.")
                .required()
                .one_of({"powerdns", "rfc2136", "designate", "externaldns"}))
        .spec(text("description", "What it is.").format(Format::one_line).between(0, 256))
        .spec(list("zones", "Names of load balancers in these zones go there.", name_text("zone", "A zone."))
                  .required()
                  .between(1, 1000))
        .spec(text("url", "powerdns, externaldns: where it is. designate: in place of what the catalog says.").format(Format::url))
        .spec(name_text("server", "rfc2136: the zone's primary, as in 192.0.2.53 or [2001:db8::53]:5353."))
        .spec(text("credentials",
                   "The Secret to log in with. powerdns: its value \"key\". rfc2136: \"secret\", in base64. designate: "
                   "\"password\", or \"credential_secret\" of an application credential.")
                  .refers_to("Secret"))
        .spec(object("tsig", "rfc2136: how updates are signed.")
                  .with(name_text("key", "The key's name.").required())
                  .with(text("algorithm", "The algorithm.")
                            .one_of({"hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha1"})
                            .otherwise("hmac-sha256")))
        .spec(object("keystone", "designate: who we are.")
                  .with(text("url", "Where Keystone is.").required().format(Format::url))
                  .with(name_text("user", "The user."))
                  .with(name_text("user_domain", "The user's domain.").otherwise("Default"))
                  .with(name_text("project", "The project that owns the zones.").otherwise("service"))
                  .with(name_text("project_domain", "The project's domain.").otherwise("Default"))
                  .with(name_text("credential", "The id of an application credential, in place of user and project."))
                  .with(name_text("region", "The region. Left out: the first there is.")))
        .spec(boolean("allow_plaintext", "Speak http:// beyond loopback: what we log in with can then be read on the way.")
                  .otherwise(false))
        .spec(text("owner", "Our name in the marks that tell what is ours there from what is others'.")
                  .format(Format::one_line)
                  .between(1, 40)
                  .otherwise("orrery"))
        .spec(boolean("repair", "Put right what others changed of ours. Otherwise it is shown as DRIFT and left.").otherwise(false))
        .spec(boolean("adopt", "Take over what others wrote before us. Otherwise it is shown as DRIFT and left.").otherwise(false))
        .spec(list("check_servers",
                   "Name servers that are asked after each change whether they answer so: 192.0.2.53, "
                   "[2001:db8::53]:5353.",
                   name_text("server", "A name server."))
                  .between(0, 64))
        .spec(duration("look_every", "How often to look at what stands there though nothing was decided: how soon others' changes "
                                     "are seen.")
                  .between(1, 86400)
                  .otherwise("1m"))
        .status(text("state", "The worst over its names: IN_SYNC, PENDING, DRIFT or ERROR; idle where it has none."))
        .status(text("why", "Of the worst."))
        .status(integer("names", "How many it has."))
        .status(integer("in_sync", "How many of them stand as they should."))
        .status(number("seconds", "The longest that it last took, over its names, from a decision until it was answered there."))
        .column("NAME", "name")
        .column("DRIVER", "spec.driver")
        .column("ZONES", "spec.zones")
        .column("STATE", "status.state")
        .column("NAMES", "status.names")
        .column("IN SYNC", "status.in_sync")
        .column("SECONDS", "status.seconds")
        .column("AGE", "age")
        .wide_column("WHY", "status.why")
        .prepare([](Context ctx, Draft& draft) { return prepare_publisher(std::move(ctx), draft); })
        .example(
            "kind: Publisher\nname: pdns\nspec:\n  driver: powerdns\n  url: https://pdns.example:8081\n  credentials: pdns-api\n"
            "  zones: [gslb.example]\n");
    return kind;
}

Kind decision_kind() {
    Kind kind("Decision", "decisions",
              "What was decided about a name, or withheld: when, why, and from what. Written by the server only.");
    kind.spec(text("loadbalancer", "The LoadBalancer.").required().indexed())
        .spec(text("fqdn", "The name."))
        .spec(integer("seq", "Counts the decisions about the name."))
        .spec(time("at", "When.").required())
        .spec(text("cause", "probe, push, admin, config, time, panic_enter, panic_leave, mass_guard_hold, quorum_hold, "
                            "vantage_excluded, failback, dead_band."))
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
