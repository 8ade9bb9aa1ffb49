#include "gslb/model/kinds.h"
#include "gslb/model/validate.h"

namespace orrery::gslb {

using namespace resource;

Kind monitor_kind() {
    Kind kind("Monitor", "monitors", "A check of members. Any number of pools and members may share it.");
    kind.spec(text("description", "What it is.").format(Format::one_line).between(0, 256))
        .spec(
            text("kind",
                 "tcp: a connection, and the expected reply to `send`. tls: a handshake, and a certificate that stays valid. http, "
                 "https: a response with an expected status code and body. grpc: the health service reports SERVING. icmp: an "
                 "echo reply. udp: a reply. dns: the expected response to a query. plugin: a Nagios plugin. exec: a program "
                 "that exits with 0. octavia: the status from the API of a regional load balancer. prometheus: a query. push: "
                 "a status that a client reports (PUT /v1/members/NAME/health/MONITOR). calculated: a formula over other "
                 "Monitors.")
                .required()
                .one_of({"tcp", "tls", "http", "https", "grpc", "icmp", "udp", "dns", "plugin", "exec", "octavia", "prometheus",
                         "push", "calculated"}))
        .spec(integer("port", "The port to connect to. Default: the member's.").between(1, 65535))
        .spec(text("host", "tls, http, https, grpc: the host name to request and to verify. Default: the member's address.")
                  .format(Format::host))
        .spec(boolean("verify", "tls, https: verify the certificate. Default true."))
        .spec(duration("min_certificate_lifetime",
                       "tls, https: a certificate that expires sooner makes the member degraded. Default 14d for tls.")
                  .renamed_from("least_left"))
        .spec(text("ca", "tls, https, grpc: trusted certificate authorities, in PEM. Default: those of the vantage.")
                  .or_secret()
                  .between(1, 65536))
        .spec(text("path", "http, https: path and query.").between(1, 2048).format(Format::one_line))
        .spec(text("method", "http, https: the method.").one_of({"GET", "HEAD", "POST", "PUT", "OPTIONS"}))
        .spec(map("headers", "http, https: header fields to send.",
                  text("value", "A value, or {secret: NAME.KEY}.").or_secret().format(Format::one_line).between(0, 4096))
                  .between(0, 32))
        .spec(text("body", "http, https: the request body, or {secret: NAME.KEY}.").or_secret().between(0, 65536))
        .spec(text("expect", "http, https: the expected status codes, as in 200-299,301. Default: 2xx is good, 429 is a warning.")
                  .format(Format::one_line)
                  .between(3, 256))
        .spec(boolean("reuse", "http, https: keep the connection for the next probe. Default true."))
        .spec(integer("follow_redirects",
                      "http, https: the number of redirects to follow, to the same host and never from https to "
                      "http. Default 0: a redirect is evaluated by its status code.")
                  .between(0, 10))
        .spec(text("send", "tcp, udp: the data to send.").between(0, 4096))
        .spec(
            text("contains", "tcp, http, https, udp, dns: a text that the response must contain in its first 64 KiB (tcp: 4 KiB).")
                .between(1, 1024))
        .spec(text("matches", "tcp, http, https, udp: a regular expression (RE2) that the response must match.").between(1, 1024))
        .spec(
            text("service", "grpc: the service to check. Default: the server as a whole.").between(0, 256).format(Format::one_line))
        .spec(boolean("secure", "grpc: use TLS."))
        .spec(text("name", "dns: the name to query.").between(1, 254).format(Format::one_line))
        .spec(text("type", "dns: the type to query. Default A.").one_of({"A", "AAAA", "CNAME", "MX", "NS", "SOA", "SRV", "TXT"}))
        .spec(integer("rcode", "dns: the expected response code. Default 0, NOERROR.").between(0, 23))
        .spec(boolean("authoritative", "dns: require an authoritative response."))
        .spec(list("command",
                   "plugin, exec: a program, by its name in the setting health.programs of the server or checker, and its "
                   "arguments; $HOSTADDRESS$ and $PORT$ are replaced by the member's address and port.",
                   text("argument", "An argument.").between(0, 4096))
                  .between(1, 64))
        .spec(text("source", "octavia, prometheus: the Source to query.").refers_to("Source"))
        .spec(text("id", "octavia: the id of the load balancer.").format(Format::one_line).between(1, 64))
        .spec(text("query", "prometheus: an expression with one value for each member, or one for all.")
                  .format(Format::one_line)
                  .between(1, 4096))
        .spec(text("label", "prometheus: the label with the member's address, with or without a port. Default instance.")
                  .format(Format::one_line)
                  .between(1, 128))
        .spec(number("min", "prometheus: a lower value is a failure.").renamed_from("least"))
        .spec(number("max", "prometheus: a higher value is a failure.").renamed_from("most"))
        .spec(duration("ttl",
                       "push: how long a status is valid that has no TTL of its own; an expired status is a failure. Default 1m.")
                  .between(1, 86400))
        .spec(list("of", "calculated: the Monitors of the formula. They are probed for it.",
                   text("monitor", "A Monitor, not a calculated one.").refers_to("Monitor"))
                  .between(1, 32))
        .spec(text("rule", "calculated: all of them must be good, any, at-least `need`, or none. Default all.")
                  .one_of({"all", "any", "at-least", "none"}))
        .spec(integer("need", "calculated, at-least: the number of good Monitors.").between(1, 32))
        .spec(integer("quorum",
                      "How many vantages must report a member down. Default: more than half of the trusted vantages that probe it.")
                  .between(1, 100))
        .spec(duration("interval", "The time between probes. Default 10s; push: 1s.").between(1, 86400))
        .spec(duration("fast_interval", "The time between probes while results point to a change. Default: the interval.")
                  .between(1, 86400)
                  .renamed_from("fast"))
        .spec(duration("down_interval", "The time between probes of a member that is down for ten minutes. Default: the interval.")
                  .between(1, 86400)
                  .renamed_from("slow"))
        .spec(duration("timeout", "The time limit of one probe; at most the interval and the fast interval. Default 5s."))
        .spec(integer("rise", "Consecutive good results until a member that was down is up. Default 2; octavia, push: 1.")
                  .between(1, 100))
        .spec(integer("fall", "Bad results until a member that was up is down. Default 3; octavia, push: 1.").between(1, 100))
        .spec(integer("forgive", "Consecutive good results that erase earlier bad ones. Default 1.").between(1, 100))
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
