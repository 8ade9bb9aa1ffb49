#include "app/settings.h"

#include "app/checker.h"
#include "dns/notify.h"
#include "gslb/clients.h"
#include "gslb/geo_classes.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <unistd.h>

namespace orrery::app {

std::vector<Setting> server_settings() {
    using enum Setting::Type;
    return {
        {"server.listen", list, "127.0.0.1:8421",
         "Addresses to listen at: ADDRESS:PORT, \"*:PORT\" for all of them. Beyond loopback it needs server.tls."},
        {"server.tls.certificate", path, "", "Certificate with its chain, in PEM. With server.tls.key it switches TLS on."},
        {"server.tls.key", path, "", "Private key of the certificate, in PEM."},
        {"server.tls.client_ca", path, "",
         "Only clients that show a certificate signed by this authority may connect; who they are a login or token says."},
        {"server.allow_plaintext", boolean, "false",
         "Listen beyond loopback without TLS: passwords and tokens can then be read on the way."},
        {"server.name", text, "", "The name of this server among those that share a store. Empty: the machine's host name."},
        {"server.run", list, "api,controllers", "Which parts run in this process.", {"api", "controllers"}},
        {"server.shutdown_grace", duration, "10s",
         "How long requests under way may take to finish when the server is told to stop."},

        {"data.folder", path, "/var/lib/orrery", "Where this server keeps its files."},

        {"store.url", text, "",
         "Where resources are kept. Empty: an SQLite file in data.folder. Else sqlite:///path/of/file, "
         "etcd://host:2379,host:2379/prefix, or etcds:// for etcd over TLS."},
        {"store.etcd.ca", path, "", "Authority that signed etcd's certificates, in PEM. Empty: the system's."},
        {"store.etcd.certificate", path, "", "Client certificate to show to etcd, in PEM."},
        {"store.etcd.key", path, "", "Private key of that certificate, in PEM."},
        {"store.etcd.user", text, "", "User to log in to etcd with."},
        {"store.etcd.password_file", secret_file, "", "File that holds that user's password."},

        {"secrets.key_file", path, "<data.folder>/secrets.key",
         "The key that seals secrets in the store. Made at first start. Servers that share a store need the same; without it, "
         "secrets are lost."},

        {"log.level", text, "info", "The least important lines that are written.", {"debug", "info", "warn", "error"}},
        {"log.format",
         text,
         "auto",
         "How lines look. auto: human on a terminal, logfmt elsewhere.",
         {"auto", "human", "logfmt", "json"}},

        {"events.keep", duration, "90d", "Events older than this are removed."},
        {"events.keep_at_most", integer, "1000000", "Beyond this number the oldest events are removed.", {}, 1000},

        {"identity.admin_password_file", secret_file, "",
         "File that holds the password of the first administrator, \"admin\", for the first start. Empty: a one-time password is "
         "made and printed."},
        {"identity.session_time", duration, "12h", "How long a login lasts."},
        {"identity.ldap.url", text, "",
         "Directory to check passwords against: ldaps://host, or ldap://host (then StartTLS is used). Empty: none."},
        {"identity.ldap.plain_on_loopback", boolean, "false", "Speak ldap:// without TLS. For loopback addresses only."},
        {"identity.ldap.ca", path, "", "Authority that signed the directory's certificate, in PEM. Empty: the system's."},
        {"identity.ldap.bind_dn", text, "", "Who searches for users. Empty: anonymous."},
        {"identity.ldap.bind_password_file", secret_file, "", "File that holds the password of bind_dn."},
        {"identity.ldap.user_base", text, "", "Where users are searched, as in ou=people,dc=example,dc=org."},
        {"identity.ldap.user_filter", text, "(uid={user})", "Which of them is meant; {user} is the name given at login."},
        {"identity.ldap.group_base", text, "", "Where groups are searched. Empty: the user's memberOf counts."},
        {"identity.ldap.group_filter", text, "(member={dn})",
         "Which groups a user is in; {dn} is the user's own, {user} the name."},
        {"identity.ldap.roles", map, "",
         "From a group's name or DN to viewer, operator or admin. The greatest counts; users without any are refused."},
        {"identity.keystone.url", text, "", "Keystone v3 to check X-Auth-Token with, as in https://keystone:5000/v3. Empty: none."},
        {"identity.keystone.allow_plaintext", boolean, "false",
         "Speak http:// beyond loopback: the service user's password and all tokens can then be read on the way."},
        {"identity.keystone.user", text, "", "The service user that asks it."},
        {"identity.keystone.user_domain", text, "Default", "That user's domain."},
        {"identity.keystone.project", text, "service", "The project that user works in."},
        {"identity.keystone.project_domain", text, "Default", "That project's domain."},
        {"identity.keystone.password_file", secret_file, "", "File that holds that user's password."},
        {"identity.keystone.ca", path, "", "Authority that signed Keystone's certificate, in PEM. Empty: the system's."},
        {"identity.keystone.projects", list, "", "Only tokens of these projects count, by name or id. Empty: of any."},
        {"identity.keystone.roles", map, "",
         "From a Keystone role to viewer, operator or admin. The greatest counts; tokens without any are refused."},

        {"catalog.http.listen", text, "",
         "Where Consul's clients find the catalog over HTTP: ADDRESS:PORT, 127.0.0.1:8500 for most. Empty: nowhere. Beyond "
         "loopback "
         "it needs server.tls."},
        {"catalog.http.anonymous",
         text,
         "nobody",
         "What a client of the catalog may do without a token: nothing, read, or read and write.",
         {"nobody", "viewer", "operator"}},
        {"catalog.datacenter", text, "dc1", "The datacenter that the catalog says it is."},
        {"catalog.address", text, "127.0.0.1", "The address of this server as a node of the catalog."},
        {"catalog.dns.listen", text, "",
         "Where the catalog answers DNS, over UDP and TCP: ADDRESS:PORT, 127.0.0.1:8600 for most. Empty: nowhere."},
        {"catalog.dns.domain", text, "consul", "The domain below which the catalog's names are."},
        {"catalog.dns.only_passing", boolean, "false",
         "Leave instances out that warn; those that are critical are left out anyway."},
        {"catalog.dns.truncate", boolean, "false",
         "Set TC when a UDP answer without EDNS shows only some of the members, so that clients ask again over TCP."},
        {"catalog.dns.udp_answers", integer, "3", "So many members in a UDP answer without EDNS.", {}, 1, 8},
        {"catalog.dns.node_ttl", duration, "0s", "How long resolvers may keep a node's address."},
        {"catalog.dns.service_ttl", duration, "0s", "How long resolvers may keep a service's members."},
        {"catalog.consul.url", text, "",
         "A Consul to use instead of the built-in catalog: members are read from it, and our own instances written to it. Empty: "
         "none."},
        {"catalog.consul.token_file", secret_file, "", "File that holds the token for it."},
        {"catalog.consul.ca", path, "", "Authority that signed its certificate, in PEM. Empty: the system's."},
        {"catalog.consul.datacenter", text, "", "Its datacenter. Empty: that of the agent asked."},

        {"health.nodes", list, "",
         "Nodes that look at members of load balancers, too, over SSH: vantages beside this server. Nothing is installed there."},
        {"health.canaries", list, "",
         "HOST:PORT that this server reaches whenever it is well, as its gateway. While most cannot be reached, its looks do not "
         "count."},

        {"dns.listen", text, "",
         "Where this server answers DNS for its Zones, over UDP and TCP: ADDRESS:PORT, \"*:53\" for most. Empty: nowhere."},
        {"dns.threads", integer, "1", "Threads that answer over UDP.", {}, 1, 256},
        {"dns.id", text, "", "What this server calls itself to who asks (NSID, id.server). Empty: it does not say."},
        {"dns.version", text, "", "What this server says that it is to who asks for version.bind. Empty: it does not say."},
        {"dns.transfer_to", list, "", "Networks of secondaries that may take whole zones (AXFR), as in 192.0.2.0/24."},
        {"dns.notify", list, "",
         "Secondaries that are told at once when a zone has changed (NOTIFY), as in 192.0.2.53 or [2001:db8::53]:5353. They need "
         "dns.transfer_to as well."},
        {"dns.rate_limit",
         integer,
         "0",
         "Answers a second, of one kind, to the clients of one network (IPv4 /24, IPv6 /56) over UDP. 0: no limit.",
         {},
         0,
         1'000'000},
        {"dns.rate_limit_exempt", list, "", "Networks that dns.rate_limit does not hold for, as in 192.0.2.0/24."},
        {"dns.query_log", path, "", "File that a line is written to for each question asked of the zones. Empty: none."},
        {"dns.query_log_every", integer, "1", "Of the questions, each so-many-th is logged.", {}, 1, 1'000'000},
        {"dns.query_log_size", bytes, "64MiB",
         "A log of questions that is this large becomes FILE.1, in the place of the one before."},
        {"dns.geo_databases", list, "",
         "MaxMind DB files (.mmdb) that say where clients are, for load balancers that steer by geo: one of cities or countries, "
         "one of "
         "autonomous systems, or both. One that is replaced is read again within seconds."},
        {"dns.decisions_keep", duration, "90d", "Records of what was decided about names are removed when older than this."},
        {"dns.decisions_keep_at_most", integer, "200000", "Beyond this number the oldest are removed.", {}, 1000, 10'000'000},

        {"jobs.slots", integer, "1000", "Attempts of all jobs together that run at once.", {}, 1, 1'000'000},
        {"jobs.output_limit", bytes, "4MiB", "So much of what one attempt says is kept."},
        {"jobs.output_total", bytes, "256MiB",
         "On etcd: so much of what all attempts say is kept. Beyond it the oldest jobs that are over lose theirs."},
        {"jobs.artefact_limit", bytes, "16MiB", "A file that a task names as an artefact is kept if it is no larger."},
        {"jobs.artefacts_of_job", bytes, "1GiB", "So much of one job's artefacts is kept, all together."},
        {"jobs.content", path, "<data.folder>/content",
         "Files that tasks may use lie below this folder: what is pushed to machines, playbooks, manifests, modules."},
        {"jobs.runs", path, "<data.folder>/runs",
         "Where playbooks and programs at the server keep what they say until it is read. While a playbook runs, its keys and "
         "secrets are here too, for this account only: a file system in memory is a good place."},
        {"jobs.ansible_plugins", path, "/usr/share/orrery/ansible/callback", "The folder of orrery's callback plugin for Ansible."},
        {"jobs.programs", map, "", "Programs that tasks may run at the server: from a name to a path. Nothing else is run there."},

        {"limits.max_body", bytes, "4MiB", "The largest request body that is taken."},
        {"limits.max_connections", integer, "10000", "Further connections are answered 503.", {}, 1, 1'000'000},
        {"limits.request_timeout", duration, "60s", "How long a request may take."},
    };
}

std::vector<std::string> other_environment() {
    return {"ORRERY_SERVER",      "ORRERY_CA",     "ORRERY_TOKEN_FILE", "ORRERY_CONFIG",
            "ORRERY_CONFIG_FILE", "ORRERY_TEST_*", "ORRERY_LAB_*"};
}

Result<Config> load_config(const std::vector<std::string>& arguments,
                           std::vector<std::pair<std::string, std::string>> environment) {
    ConfigSources sources;
    sources.file = default_config_path;
    sources.file_may_be_absent = true;
    for (const auto& [name, value] : environment) {
        if (name != "ORRERY_CONFIG_FILE" || value.empty()) continue;
        sources.file = value;
        sources.file_may_be_absent = false;
    }
    sources.environment = std::move(environment);
    sources.other_environment = other_environment();
    TRY(std::ignore, read_flags(server_settings(), arguments, sources));
    TRY(auto config, Config::load(server_settings(), std::move(sources)));
    TRY(std::ignore, check_config(config));
    return config;
}

bool ListenAddress::is_loopback() const {
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(host, error);
    return !error && address.is_loopback();
}

Result<ListenAddress> parse_listen(std::string_view text) {
    const Error bad{Code::invalid, fmt::format("\"{}\" is not an address to listen at", text),
                    "write it as in 127.0.0.1:8421, [::1]:8421 or *:8421"};
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos) return bad;
    auto host = text.substr(0, colon);
    const auto port_text = text.substr(colon + 1);
    ListenAddress out;
    const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), out.port);
    if (error != std::errc{} || end != port_text.data() + port_text.size()) return bad;
    if (host.starts_with('[') && host.ends_with(']'))
        host = host.substr(1, host.size() - 2);
    else if (host.find(':') != std::string_view::npos)
        return bad;                               // an IPv6 address without brackets: where would it end?
    if (host.empty() || host == "*") host = "::"; // also takes IPv4
    if (host == "localhost") host = "127.0.0.1";
    boost::system::error_code not_an_address;
    boost::asio::ip::make_address(std::string(host), not_an_address);
    if (not_an_address) return bad;
    out.host = host;
    return out;
}

std::string server_name(const Config& config) {
    if (!config.text("server.name").empty()) return config.text("server.name");
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "orrery";
    return name.data();
}

namespace {

class ConfigCheck {
public:
    explicit ConfigCheck(const Config& config) : config_(config) {}

    std::vector<FieldError> run() {
        listening();
        key_pair("server.tls.certificate", "server.tls.key");
        key_pair("store.etcd.certificate", "store.etcd.key");
        for (const auto* key :
             {"server.tls.certificate", "server.tls.key", "server.tls.client_ca", "store.etcd.ca", "store.etcd.certificate",
              "store.etcd.key", "store.etcd.password_file", "identity.admin_password_file", "identity.ldap.ca",
              "identity.ldap.bind_password_file", "identity.keystone.ca", "identity.keystone.password_file",
              "catalog.consul.token_file", "catalog.consul.ca"})
            file_is_there(key);
        store();
        ldap();
        keystone();
        catalog();
        names();
        if (config_.list("server.run").empty()) fail("server.run", "is empty: there would be nothing to run");
        return std::move(errors_);
    }

private:
    bool set(std::string_view key) const { return !config_.text(key).empty(); }
    void fail(std::string_view key, std::string_view what) {
        const auto& origin = config_.origin(key);
        errors_.push_back({origin == "default" ? std::string(key) : origin, fmt::format("{} {}", key, what)});
    }

    void listening() {
        const bool tls = set("server.tls.certificate");
        if (config_.list("server.listen").empty()) fail("server.listen", "is empty: nobody could reach the server");
        for (const auto& text : config_.list("server.listen")) {
            const auto address = parse_listen(text);
            if (!address.ok())
                fail("server.listen", fmt::format("has \"{}\", which is no address; {}", text, address.error().remedy));
            else if (!tls && !address->is_loopback() && !config_.boolean("server.allow_plaintext"))
                fail("server.listen", fmt::format("has {}, beyond loopback, and there is no TLS: set server.tls.certificate and "
                                                  "server.tls.key, or say that you mean it with "
                                                  "server.allow_plaintext",
                                                  text));
        }
    }

    void key_pair(std::string_view certificate, std::string_view key) {
        if (set(certificate) && !set(key)) fail(certificate, fmt::format("needs {}", key));
        if (!set(certificate) && set(key)) fail(key, fmt::format("needs {}", certificate));
    }

    void file_is_there(std::string_view key) {
        std::error_code error;
        if (set(key) && !std::filesystem::is_regular_file(config_.path(key), error) &&
            !std::filesystem::is_fifo(config_.path(key), error))
            fail(key, fmt::format("names {}, and there is no such file", config_.path(key).string()));
    }

    void store() {
        const auto& url = config_.text("store.url");
        const bool etcd = url.starts_with("etcd://") || url.starts_with("etcds://");
        if (!url.empty() && !etcd && !url.starts_with("sqlite:///"))
            return fail("store.url", "must be empty or begin with sqlite:///, etcd:// or etcds://");
        if (etcd && url.find('@') != std::string::npos)
            fail("store.url", "holds a user: use store.etcd.user and store.etcd.password_file");
        if (etcd && url.substr(url.find("://") + 3).find_first_not_of('/') != 0)
            fail("store.url", "names no server, as in etcd://10.0.0.1:2379");
        if (set("store.etcd.user") != set("store.etcd.password_file"))
            fail(set("store.etcd.user") ? "store.etcd.user" : "store.etcd.password_file",
                 "needs both store.etcd.user and store.etcd.password_file");
    }

    void roles(std::string_view key) {
        if (config_.map(key).empty()) fail(key, "is empty: nobody could log in");
        for (const auto& [group, role] : config_.map(key))
            if (role != "viewer" && role != "operator" && role != "admin")
                fail(key, fmt::format("gives {} the role \"{}\"; roles are viewer, operator and admin", group, role));
    }

    void ldap() {
        const auto& url = config_.text("identity.ldap.url");
        if (url.empty()) return;
        if (!url.starts_with("ldap://") && !url.starts_with("ldaps://"))
            fail("identity.ldap.url", "must begin with ldaps:// or ldap://");
        if (!set("identity.ldap.user_base")) fail("identity.ldap.user_base", "is empty: where are the users?");
        if (set("identity.ldap.bind_dn") && !set("identity.ldap.bind_password_file"))
            fail("identity.ldap.bind_dn", "needs identity.ldap.bind_password_file");
        if (config_.text("identity.ldap.user_filter").find("{user}") == std::string::npos)
            fail("identity.ldap.user_filter", "has no {user} in it");
        roles("identity.ldap.roles");
    }

    void keystone() {
        const auto& url = config_.text("identity.keystone.url");
        if (url.empty()) return;
        if (!url.starts_with("http://") && !url.starts_with("https://"))
            fail("identity.keystone.url", "must begin with https:// or http://");
        if (!set("identity.keystone.user")) fail("identity.keystone.user", "is empty: who asks Keystone?");
        if (!set("identity.keystone.password_file")) fail("identity.keystone.password_file", "is empty");
        roles("identity.keystone.roles");
    }

    void names() {
        if (set("dns.listen"))
            if (const auto address = parse_listen(config_.text("dns.listen")); !address.ok())
                fail("dns.listen",
                     fmt::format("is \"{}\", which is no address; {}", config_.text("dns.listen"), address.error().remedy));
        for (const auto& text : config_.list("health.canaries"))
            if (const auto canary = read_canary(text); !canary.ok()) fail("health.canaries", canary.error().message);
        if (config_.list("dns.geo_databases").size() > gslb::most_geo_databases)
            fail("dns.geo_databases", fmt::format("may have {} files", gslb::most_geo_databases));
        if (config_.text("dns.id").size() > 64) fail("dns.id", "may have 64 characters");
        if (config_.text("dns.version").size() > 255) fail("dns.version", "may have 255 characters");
        for (const auto* key : {"dns.transfer_to", "dns.rate_limit_exempt"})
            for (const auto& text : config_.list(key))
                if (const auto prefix = gslb::parse_prefix(text); !prefix.ok())
                    fail(key, fmt::format("has \"{}\": {}", text, prefix.error().message));
        for (const auto& text : config_.list("dns.notify"))
            if (const auto secondary = dns::Notify::parse(text); !secondary.ok())
                fail("dns.notify", fmt::format("has {}; {}", secondary.error().message, secondary.error().remedy));
        if (!config_.list("dns.notify").empty() && config_.list("dns.transfer_to").empty())
            fail("dns.notify", "has secondaries, but none may take a zone: dns.transfer_to is empty");
        if (config_.bytes("dns.query_log_size") < 64 * 1024) fail("dns.query_log_size", "must be at least 64KiB");
    }

    void catalog() {
        for (const auto* key : {"catalog.http.listen", "catalog.dns.listen"}) {
            if (!set(key)) continue;
            const auto address = parse_listen(config_.text(key));
            if (!address.ok())
                fail(key, fmt::format("is \"{}\", which is no address; {}", config_.text(key), address.error().remedy));
            else if (std::string_view(key) == "catalog.http.listen" && !set("server.tls.certificate") && !address->is_loopback() &&
                     !config_.boolean("server.allow_plaintext"))
                fail(key,
                     fmt::format("is {}, beyond loopback, and there is no TLS: set server.tls.certificate and server.tls.key, or "
                                 "say that you mean it with server.allow_plaintext",
                                 config_.text(key)));
        }
        boost::system::error_code error;
        boost::asio::ip::make_address(config_.text("catalog.address"), error);
        if (error) fail("catalog.address", "must be an IP address");
        for (const auto* key : {"catalog.datacenter", "catalog.dns.domain"}) {
            const auto& value = config_.text(key);
            const bool dots = std::string_view(key) == "catalog.dns.domain";
            const auto wrong =
                value.find_first_not_of(dots ? "abcdefghijklmnopqrstuvwxyz0123456789-." : "abcdefghijklmnopqrstuvwxyz0123456789-_");
            if (value.empty() || value.size() > 63 || wrong != std::string::npos)
                fail(key, "must be of a-z, 0-9 and '-', up to 63 characters");
        }
        for (const auto* key : {"catalog.dns.node_ttl", "catalog.dns.service_ttl"})
            if (config_.duration(key) < Duration::zero() || config_.duration(key) > std::chrono::hours(24 * 7))
                fail(key, "must be between 0s and 7d");
        const auto& url = config_.text("catalog.consul.url");
        if (!url.empty() && !url.starts_with("http://") && !url.starts_with("https://"))
            fail("catalog.consul.url", "must begin with http:// or https://");
        if (url.empty() && (set("catalog.consul.token_file") || set("catalog.consul.ca")))
            fail("catalog.consul.url", "is empty, and yet a token or an authority for it is given");
    }

    const Config& config_;
    std::vector<FieldError> errors_;
};

} // namespace

Result<Unit> check_config(const Config& config) {
    auto errors = ConfigCheck(config).run();
    if (errors.empty()) return Unit{};
    Error error{Code::invalid, fmt::format("the configuration has {} error{}", errors.size(), errors.size() == 1 ? "" : "s"),
                "\"orrery config default\" prints every setting with its meaning"};
    error.fields = std::move(errors);
    return error;
}

} // namespace orrery::app
