#include "gslb/fields.h"
#include "gslb/kinds.h"
#include "gslb/validate.h"

namespace orrery::gslb {

using namespace resource;

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
        .spec(keystone_field("designate: who we are.", "the zones"))
        .spec(plaintext_field())
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

} // namespace orrery::gslb
