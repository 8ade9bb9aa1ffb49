#include "gslb/model/kind_fields.h"
#include "gslb/model/kinds.h"
#include "gslb/model/validate.h"

namespace orrery::gslb {

using namespace resource;

Kind zone_kind() {
    Kind kind("Zone", "zones",
              "A zone that this server is authoritative for: its static records, beside the names of load balancers.");
    kind.spec(name_text("origin", "The zone's name.").required().indexed().example("gslb.example"))
        .spec(text("description", "What it is.").format(Format::one_line).between(0, 256))
        .spec(list("nameservers", "The host names of its name servers. The first is the MNAME of the SOA record.",
                   name_text("server", "A host name."))
                  .required()
                  .between(1, 16))
        .spec(name_text("contact",
                        "The mail address of the SOA record, as in hostmaster@example.org. Default: hostmaster at the zone."))
        .spec(duration("ttl", "The TTL of static records without one.").between(1, 604800).default_value("1h"))
        .spec(duration("negative_ttl", "The TTL of negative responses.").between(1, 86400).default_value("30s"))
        .spec(text("records", "Static records, in zone file syntax. The SOA and NS records of the zone come from the fields.")
                  .between(0, 1 << 20))
        .spec(integer("serial_offset",
                      "Added to the serial of the zone, for secondaries that have a later one from another primary "
                      "or from a lost store: see status.secondaries_ahead.")
                  .between(0, 4294967295))
        .spec(text("signing_key", "The Secret whose value \"private_key\" signs the zone: a P-256 key in PEM. Default: the zone is "
                                  "not signed. Add the DS record of the status to the parent zone.")
                  .refers_to("Secret"))
        .status(text("state", "served; refused: see message; unsigned: served, but its signing key cannot be used."))
        .status(text("message", "Why the zone is refused or unsigned.").renamed_from("why"))
        .status(integer("names", "The number of load balancer names served in it."))
        .status(text("ds", "The DS record for the parent zone, if the zone is signed."))
        .status(list("secondaries_ahead", "Secondaries with a later serial than this server: they do not transfer the zone.",
                     object("secondary", "A server of dns.notify.")
                         .with(text("address", "Its address."))
                         .with(integer("serial", "The serial it has."))))
        .status(list("warnings",
                     "Problems with a remedy: a secondary with a later serial, a name server of the zone "
                     "without an address.",
                     text("warning", "A sentence.")))
        .column("NAME", "name")
        .column("ORIGIN", "spec.origin")
        .column("STATE", "status.state")
        .column("NAMES", "status.names")
        .column("AGE", "age")
        .wide_column("MESSAGE", "status.message")
        .prepare([](Context ctx, Draft& draft) { return prepare_zone(std::move(ctx), draft); })
        .example("kind: Zone\nname: gslb\nspec:\n  origin: gslb.example\n  nameservers: [ns1.example]\n  contact: "
                 "hostmaster@example.org\n");
    return kind;
}

namespace {

Field tsig_field() {
    return object("tsig", "rfc2136: how updates are signed.")
        .with(name_text("key", "The key's name.").required())
        .with(text("algorithm", "The algorithm.")
                  .one_of({"hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha1"})
                  .default_value("hmac-sha256"));
}

} // namespace

Kind publisher_kind() {
    Kind kind("Publisher", "publishers",
              "An external DNS service to which answers are published: those of the default client class.");
    kind.spec(text("driver",
                   "The protocol. externaldns: the webhook protocol of ExternalDNS, and with it every service that has an adapter.")
                  .required()
                  .one_of({"powerdns", "rfc2136", "designate", "externaldns"}))
        .spec(text("description", "What it is.").format(Format::one_line).between(0, 256))
        .spec(
            list("zones", "Load balancers in these zones are published.", name_text("zone", "A zone.")).required().between(1, 1000))
        .spec(text("url",
                   "powerdns, externaldns: the URL of the service. designate: instead of the endpoint of the Keystone catalog.")
                  .format(Format::url))
        .spec(name_text("server", "rfc2136: the zone's primary, as in 192.0.2.53 or [2001:db8::53]:5353."))
        .spec(text("credentials",
                   "The Secret to log in with. powerdns: its value \"key\". rfc2136: \"secret\", in base64. designate: "
                   "\"password\", or \"credential_secret\" of an application credential.")
                  .refers_to("Secret"))
        .spec(tsig_field())
        .spec(keystone_field("designate: the Keystone credentials.", "the zones"))
        .spec(plaintext_field())
        .spec(text("owner", "The owner in owner marks, which distinguish our records from those of others.")
                  .format(Format::one_line)
                  .between(1, 40)
                  .default_value("orrery"))
        .spec(boolean("repair", "Restore our records if others changed them. Otherwise the change is reported as DRIFT.")
                  .default_value(false))
        .spec(boolean("adopt", "Take over records that others wrote before us. Otherwise they are reported as DRIFT.")
                  .default_value(false))
        .spec(list("check_servers",
                   "Name servers that are queried after each change until they give the new answer: 192.0.2.53, "
                   "[2001:db8::53]:5353.",
                   name_text("server", "A name server."))
                  .between(0, 64))
        .spec(duration("poll_interval", "The time between reads of the published records: how soon changes by others are detected.")
                  .between(1, 86400)
                  .default_value("1m")
                  .renamed_from("look_every"))
        .status(text("state", "The worst state of its names: IN_SYNC, PENDING, DRIFT or ERROR; idle without names."))
        .status(text("message", "Why, for the name with the worst state.").renamed_from("why"))
        .status(integer("names", "The number of its names."))
        .status(integer("in_sync", "The number of its names that are in sync."))
        .status(number("seconds",
                       "The longest time of the last publications, from the decision until the service answered accordingly."))
        .column("NAME", "name")
        .column("DRIVER", "spec.driver")
        .column("ZONES", "spec.zones")
        .column("STATE", "status.state")
        .column("NAMES", "status.names")
        .column("IN SYNC", "status.in_sync")
        .column("SECONDS", "status.seconds")
        .column("AGE", "age")
        .wide_column("MESSAGE", "status.message")
        .prepare([](Context ctx, Draft& draft) { return prepare_publisher(std::move(ctx), draft); })
        .example(
            "kind: Publisher\nname: pdns\nspec:\n  driver: powerdns\n  url: https://pdns.example:8081\n  credentials: pdns-api\n"
            "  zones: [gslb.example]\n");
    return kind;
}

} // namespace orrery::gslb
