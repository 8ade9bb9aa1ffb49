#include "gslb/kinds.h"
#include "gslb/validate.h"

namespace orrery::gslb {

using namespace resource;

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
        .spec(integer("follow_redirects", "http, https: how many redirects are followed, to the same host and never from https to "
                                          "http. Left out: none, and an answer that redirects is judged by its code.")
                  .between(0, 10))
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

} // namespace orrery::gslb
