#include "app/settings.h"

namespace orrery::app {

std::vector<Setting> server_settings() {
    using enum Setting::Type;
    return {
        {"server.listen", list, "127.0.0.1:8421",
         "Listen addresses of the API: ADDRESS:PORT, or \"*:PORT\" for all addresses. Addresses beyond loopback require "
         "server.tls."},
        {"server.tls.certificate", path, "", "Certificate with its chain, in PEM. Together with server.tls.key it enables TLS."},
        {"server.tls.key", path, "", "Private key of the certificate, in PEM."},
        {"server.tls.client_ca", path, "",
         "Require client certificates signed by this CA. Authentication still needs a login or token."},
        {"server.allow_plaintext", boolean, "false",
         "Allow listen addresses beyond loopback without TLS: passwords and tokens can be read on the network."},
        {"server.name", text, "", "Name of this server among the servers of a store. Empty: the host name."},
        {"server.run", list, "api,controllers", "Parts that run in this process.", {"api", "controllers"}},
        {"server.anonymous_metrics",
         text,
         "loopback",
         "Clients that may read /metrics without a login: loopback, always or never. Others need a token with the role viewer, "
         "which Prometheus sends with authorization.credentials_file.",
         {"loopback", "always", "never"}},
        {"server.anonymous_docs",
         text,
         "loopback",
         "Clients that may read /docs and /openapi.json without a login.",
         {"loopback", "always", "never"}},
        {"server.shutdown_grace", duration, "10s", "Maximum time that requests in progress may take after a stop signal."},

        {"data.folder", path, "/var/lib/orrery", "Folder of the files of this server."},

        {"store.url", text, "",
         "URL of the store. Empty: an SQLite file in data.folder. Otherwise sqlite:///path/of/file, "
         "etcds://host:2379,host:2379/prefix for etcd over TLS, or etcd:// for an etcd on loopback."},
        {"store.etcd.ca", path, "", "CA of etcd's certificates, in PEM. Empty: the CAs of the system."},
        {"store.etcd.certificate", path, "", "Client certificate for etcd, in PEM."},
        {"store.etcd.key", path, "", "Private key of the client certificate, in PEM."},
        {"store.etcd.allow_plaintext", boolean, "false",
         "Allow etcd:// to hosts other than loopback: the stored data and the etcd password can be read and changed on the "
         "network."},
        {"store.etcd.user", text, "", "etcd user."},
        {"store.etcd.password_file", secret_file, "", "File with the password of the etcd user."},

        {"secrets.key_file", path, "<data.folder>/secrets.key",
         "Key that seals secrets in the store. Created at the first start. All servers of a store need the same key; without it, "
         "secrets are lost."},

        {"log.level", text, "info", "Minimum level of log lines.", {"debug", "info", "warn", "error"}},
        {"log.format",
         text,
         "auto",
         "Format of log lines. auto: human on a terminal, otherwise logfmt.",
         {"auto", "human", "logfmt", "json"}},

        {"events.keep", duration, "90d", "Maximum age of events. Older events are removed."},
        {"events.keep_at_most", integer, "1000000", "Maximum number of events. The oldest are removed.", {}, 1000},

        {"identity.admin_password_file", secret_file, "",
         "File with the password of the first administrator, \"admin\", for the first start. Empty: the server generates a "
         "one-time password and prints it."},
        {"identity.session_time", duration, "12h", "Lifetime of a login session."},
        {"identity.ldap.url", text, "",
         "LDAP server that checks passwords: ldaps://host, or ldap://host with StartTLS. Empty: none."},
        {"identity.ldap.plain_on_loopback", boolean, "false", "Use ldap:// without TLS, on loopback addresses only."},
        {"identity.ldap.ca", path, "", "CA of the LDAP server's certificate, in PEM. Empty: the CAs of the system."},
        {"identity.ldap.bind_dn", text, "", "DN of the account that searches for users. Empty: anonymous."},
        {"identity.ldap.bind_password_file", secret_file, "", "File with the password of bind_dn."},
        {"identity.ldap.user_base", text, "", "Search base of users, for example ou=people,dc=example,dc=org."},
        {"identity.ldap.user_filter", text, "(uid={user})", "Filter that finds a user; {user} is the login name."},
        {"identity.ldap.group_base", text, "", "Search base of groups. Empty: the user's memberOf attribute is used."},
        {"identity.ldap.group_filter", text, "(member={dn})",
         "Filter that finds the groups of a user; {dn} is the user's DN, {user} the login name."},
        {"identity.ldap.roles", map, "",
         "Map from the DN of a group to viewer, operator or admin. The highest role applies; users without a role are refused. A "
         "bare name (cn) matches every group of that name anywhere in the directory: use the whole DN."},
        {"identity.keystone.url", text, "",
         "Keystone v3 endpoint that validates X-Auth-Token, for example https://keystone:5000/v3. Empty: none."},
        {"identity.keystone.allow_plaintext", boolean, "false",
         "Allow http:// to hosts other than loopback: the service user's password and all tokens can be read on the network."},
        {"identity.keystone.user", text, "", "Service user for Keystone."},
        {"identity.keystone.user_domain", text, "Default", "Domain of the service user."},
        {"identity.keystone.project", text, "service", "Project of the service user."},
        {"identity.keystone.project_domain", text, "Default", "Domain of the project."},
        {"identity.keystone.password_file", secret_file, "", "File with the password of the service user."},
        {"identity.keystone.ca", path, "", "CA of Keystone's certificate, in PEM. Empty: the CAs of the system."},
        {"identity.keystone.projects", list, "", "Accept only tokens of these projects, by name or id. Empty: all projects."},
        {"identity.keystone.roles", map, "",
         "Map from a Keystone role to viewer, operator or admin. The highest role applies; tokens without a role are refused."},

        {"catalog.http.listen", text, "",
         "Listen address of the Consul-compatible HTTP API: ADDRESS:PORT, usually 127.0.0.1:8500. Empty: disabled. Addresses "
         "beyond loopback require server.tls."},
        {"catalog.http.anonymous",
         text,
         "nobody",
         "Role of requests to the Consul-compatible API without a token: none, read, or read and write.",
         {"nobody", "viewer", "operator"}},
        {"catalog.datacenter", text, "dc1", "Datacenter of the catalog."},
        {"catalog.address", text, "127.0.0.1", "Address of this server as a node of the catalog."},
        {"catalog.dns.listen", text, "",
         "Listen address of the catalog's DNS server, UDP and TCP: ADDRESS:PORT, usually 127.0.0.1:8600. Empty: disabled."},
        {"catalog.dns.domain", text, "consul", "Domain of the DNS names of the catalog."},
        {"catalog.dns.only_passing", boolean, "false", "Omit instances in state warning. Critical instances are always omitted."},
        {"catalog.dns.truncate", boolean, "false",
         "Set TC if a UDP response without EDNS contains only some of the instances, so that clients retry over TCP."},
        {"catalog.dns.udp_answers", integer, "3", "Maximum number of instances in a UDP response without EDNS.", {}, 1, 8},
        {"catalog.dns.node_ttl", duration, "0s", "TTL of node addresses."},
        {"catalog.dns.service_ttl", duration, "0s", "TTL of service records."},
        {"catalog.consul.url", text, "",
         "URL of a Consul that replaces the built-in catalog: members are read from it, and own instances are written to it. "
         "Empty: none."},
        {"catalog.consul.allow_plaintext", boolean, "false",
         "Allow http:// to hosts other than loopback: the token and the members can be read and changed on the network."},
        {"catalog.consul.token_file", secret_file, "", "File with the token for Consul."},
        {"catalog.consul.ca", path, "", "CA of Consul's certificate, in PEM. Empty: the CAs of the system."},
        {"catalog.consul.datacenter", text, "", "Datacenter of Consul. Empty: that of the agent."},

        {"health.nodes", list, "",
         "Nodes that are additional vantages: they probe members of load balancers over SSH. Nothing is installed on them."},
        {"health.canaries", list, "",
         "Canaries: HOST:PORT that this server reaches while its own network works, such as its gateway. While most of them fail, "
         "its probes do not count towards quorum."},

        {"health.programs", map, "",
         "Map from a name to the path of a program that checks of kind plugin and exec may run on the server. No other program "
         "runs."},

        {"health.programs_user", text, "nobody",
         "Account of these programs, without supplementary groups and capabilities; never root. With the account of the server "
         "itself, such a program can read the store and the sealing key."},

        {"net.outbound.allow", list, "",
         "Allows addresses that checks, monitors, http tasks, Publishers and Sources may not reach by default: loopback, "
         "link-local "
         "and metadata addresses, for example 127.0.0.0/8, 127.0.0.1:8080 or [::1]:8080. The listeners of this server and etcd "
         "are allowed only by address and port."},
        {"net.outbound.deny", list, "",
         "Further networks that they may not reach, for example 10.0.0.0/8 or 192.0.2.7:22. The most specific entry of both lists "
         "decides."},

        {"dns.listen", text, "",
         "Listen address of the authoritative DNS server for Zones, UDP and TCP: ADDRESS:PORT, usually \"*:53\". Empty: disabled."},
        {"dns.threads", integer, "1", "Number of threads that answer UDP queries.", {}, 1, 256},
        {"dns.id", text, "", "Name server identifier, returned for NSID and id.server. Empty: none."},
        {"dns.version", text, "", "Answer to version.bind queries. Empty: REFUSED."},
        {"dns.transfer_to", list, "", "Networks of secondaries that may transfer zones (AXFR), such as 192.0.2.0/24."},
        {"dns.notify", list, "",
         "Secondaries that get a NOTIFY when a zone changes, such as 192.0.2.53 or [2001:db8::53]:5353. dns.transfer_to must "
         "include them."},
        {"dns.rate_limit",
         integer,
         "1000",
         "Maximum UDP responses per second to one client network (IPv4 /24, IPv6 /56), for each kind of response. 0: no limit. The "
         "default applies only to a listen address beyond loopback (dns.listen, catalog.dns.listen), and never to loopback "
         "clients.",
         {},
         0,
         1'000'000},
        {"dns.rate_limit_exempt", list, "", "Networks without a rate limit, such as 192.0.2.0/24: your own resolvers."},
        {"dns.stale",
         text,
         "answer",
         "Response while the local copy of the store is older than dns.stale_after (etcd only). answer: the last decisions, which "
         "still follow this server's own health checks. servfail: SERVFAIL, so that resolvers query another server of the zone.",
         {"answer", "servfail"}},
        {"dns.stale_after", duration, "1m", "Maximum age of the local copy of the store before dns.stale applies."},
        {"dns.query_log", path, "", "File of the query log, one line per query. Empty: disabled."},
        {"dns.query_log_every", integer, "1", "Log one of every N queries.", {}, 1, 1'000'000},
        {"dns.query_log_size", bytes, "64MiB",
         "Maximum size of the query log. A full file is renamed to FILE.1, replacing the previous one."},
        {"dns.geo_databases", list, "",
         "MaxMind DB files (.mmdb) with the locations of clients, for load balancers that steer by geo: a city or country "
         "database, an ASN database, or both. A replaced file is loaded within seconds."},
        {"dns.decisions_keep", duration, "90d", "Maximum age of decision records. Older records are removed."},
        {"dns.decisions_keep_at_most",
         integer,
         "200000",
         "Maximum number of decision records. The oldest are removed.",
         {},
         1000,
         10'000'000},

        {"jobs.slots", integer, "1000", "Maximum number of concurrent attempts of all jobs.", {}, 1, 1'000'000},
        {"jobs.output_limit", bytes, "4MiB", "Maximum stored output of one attempt."},
        {"jobs.output_total", bytes, "256MiB",
         "On etcd: maximum stored output of all attempts. Beyond it, the output of the oldest ended jobs is removed."},
        {"jobs.artefact_limit", bytes, "16MiB", "Maximum size of an artefact. Larger files are not fetched."},
        {"jobs.artefacts_of_job", bytes, "1GiB", "Maximum size of all artefacts of one job."},
        {"jobs.content", path, "<data.folder>/content",
         "Folder of the files that tasks may use: files to push to nodes, playbooks, manifests, modules."},
        {"jobs.runs", path, "<data.folder>/runs",
         "Folder for the output of playbooks and programs on the server until it is read. While a playbook runs, it also contains "
         "its keys and secrets, readable by this account only; prefer a file system in memory."},
        {"jobs.name_servers", list, "",
         "Name servers for barriers on DNS names, for example 192.0.2.53 or 192.0.2.53:5353. Empty: those of /etc/resolv.conf."},
        {"jobs.programs", map, "",
         "Map from a name to the path of a program that tasks may run on the server. No other program runs."},

        {"limits.max_body", bytes, "4MiB", "Maximum size of a request body."},
        {"limits.max_connections",
         integer,
         "10000",
         "Maximum number of connections. Further connections get 503.",
         {},
         1,
         1'000'000},
        {"limits.request_timeout", duration, "60s", "Maximum duration of a request."},
    };
}

std::vector<RetiredSetting> retired_settings() {
    return {{"jobs.ansible_plugins", "the callback plugin for Ansible is part of the program"}};
}

} // namespace orrery::app
