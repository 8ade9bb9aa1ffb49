#include "app/checker.h"
#include "app/settings.h"
#include "core/url_text.h"
#include "dns/notify.h"
#include "drivers/rest/rest.h"
#include "gslb/clients/client_classes.h"
#include "gslb/clients/geo_classes.h"
#include "net/outbound.h"
#include "store/etcd/etcd_store.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

/// Checks of the configuration as a whole.
namespace orrery::app {

namespace {

class ConfigCheck {
public:
    explicit ConfigCheck(const Config& config) : config_(config) {}

    std::vector<FieldError> run() {
        check_listen();
        check_key_pair("server.tls.certificate", "server.tls.key");
        check_key_pair("store.etcd.certificate", "store.etcd.key");
        for (const auto* key :
             {"server.tls.certificate", "server.tls.key", "server.tls.client_ca", "store.etcd.ca", "store.etcd.certificate",
              "store.etcd.key", "store.etcd.password_file", "identity.admin_password_file", "identity.ldap.ca",
              "identity.ldap.bind_password_file", "identity.keystone.ca", "identity.keystone.password_file",
              "catalog.consul.token_file", "catalog.consul.ca"})
            check_file(key);
        check_store();
        check_ldap();
        check_keystone();
        check_catalog();
        check_consul();
        check_health();
        check_dns();
        if (config_.list("server.run").empty()) fail("server.run", "is empty; use api, controllers or both");
        return std::move(errors_);
    }

private:
    bool set(std::string_view key) const { return !config_.text(key).empty(); }
    void fail(std::string_view key, std::string_view message) {
        const auto& origin = config_.origin(key);
        errors_.push_back({origin == "default" ? std::string(key) : origin, fmt::format("{} {}", key, message)});
    }

    void check_listen() {
        const bool tls = set("server.tls.certificate");
        if (config_.list("server.listen").empty()) fail("server.listen", "is empty; it needs at least one address");
        for (const auto& text : config_.list("server.listen")) {
            const auto address = parse_listen(text);
            if (!address.ok())
                fail("server.listen", fmt::format("has \"{}\", which is not a listen address; {}", text, address.error().remedy));
            else if (!tls && !address->is_loopback() && !config_.boolean("server.allow_plaintext"))
                fail("server.listen", fmt::format("has {}, which is beyond loopback, without TLS: set server.tls.certificate and "
                                                  "server.tls.key, or allow plain HTTP with "
                                                  "server.allow_plaintext",
                                                  text));
        }
    }

    void check_key_pair(std::string_view certificate, std::string_view key) {
        if (set(certificate) && !set(key)) fail(certificate, fmt::format("needs {}", key));
        if (!set(certificate) && set(key)) fail(key, fmt::format("needs {}", certificate));
    }

    void check_file(std::string_view key) {
        std::error_code error;
        if (set(key) && !std::filesystem::is_regular_file(config_.path(key), error) &&
            !std::filesystem::is_fifo(config_.path(key), error))
            fail(key, fmt::format("names {}, which is not a file", config_.path(key).string()));
    }

    void check_store() {
        const auto& url = config_.text("store.url");
        const bool etcd = url.starts_with("etcd://") || url.starts_with("etcds://");
        if (!url.empty() && !etcd && !url.starts_with("sqlite:///"))
            return fail("store.url", "must be empty or begin with sqlite:///, etcd:// or etcds://");
        if (etcd && url.find('@') != std::string::npos)
            fail("store.url", "contains a user; use store.etcd.user and store.etcd.password_file");
        if (etcd && url.substr(url.find("://") + 3).find_first_not_of('/') != 0)
            fail("store.url", "names no server; example: etcds://10.0.0.1:2379");
        else if (auto parsed = store::parse_etcd_url(url); etcd && parsed.ok()) {
            parsed->allow_plaintext = config_.boolean("store.etcd.allow_plaintext");
            if (const auto plain = store::check_etcd_plaintext(*parsed); !plain.ok())
                fail("store.url", fmt::format("is refused: {}; {}", plain.error().message, plain.error().remedy));
        }
        if (set("store.etcd.user") != set("store.etcd.password_file"))
            fail(set("store.etcd.user") ? "store.etcd.user" : "store.etcd.password_file",
                 "needs both store.etcd.user and store.etcd.password_file");
    }

    void check_roles(std::string_view key) {
        if (config_.map(key).empty()) fail(key, "is empty; no user could log in");
        for (const auto& [group, role] : config_.map(key))
            if (role != "viewer" && role != "operator" && role != "admin")
                fail(key, fmt::format("gives {} the role \"{}\"; roles are viewer, operator and admin", group, role));
    }

    void check_ldap() {
        const auto& url = config_.text("identity.ldap.url");
        if (url.empty()) return;
        if (!url.starts_with("ldap://") && !url.starts_with("ldaps://"))
            fail("identity.ldap.url", "must begin with ldaps:// or ldap://");
        if (has_userinfo(url))
            fail("identity.ldap.url", "contains a user; use identity.ldap.bind_dn and identity.ldap.bind_password_file");
        if (!set("identity.ldap.user_base")) fail("identity.ldap.user_base", "is empty; it must be the search base of users");
        if (set("identity.ldap.bind_dn") && !set("identity.ldap.bind_password_file"))
            fail("identity.ldap.bind_dn", "needs identity.ldap.bind_password_file");
        if (config_.text("identity.ldap.user_filter").find("{user}") == std::string::npos)
            fail("identity.ldap.user_filter", "must contain {user}");
        check_roles("identity.ldap.roles");
    }

    void check_keystone() {
        const auto& url = config_.text("identity.keystone.url");
        if (url.empty()) return;
        if (!url.starts_with("http://") && !url.starts_with("https://"))
            fail("identity.keystone.url", "must begin with https:// or http://");
        if (!set("identity.keystone.user")) fail("identity.keystone.user", "is empty; it must be the service user for Keystone");
        if (!set("identity.keystone.password_file")) fail("identity.keystone.password_file", "is empty");
        check_roles("identity.keystone.roles");
    }

    void check_health() {
        for (const auto& text : config_.list("health.canaries"))
            if (const auto canary = read_canary(text); !canary.ok()) fail("health.canaries", canary.error().message);
        for (const auto& [name, path] : config_.map("health.programs"))
            if (name.empty() || name.find('/') != std::string::npos || name.starts_with('.') || !path.starts_with('/'))
                fail("health.programs", fmt::format("\"{}={}\" must be a name without a path, and an absolute path", name, path));
        if (!set("health.programs_user")) fail("health.programs_user", "is empty; it must be the name of an account");
        for (const auto* key : {"net.outbound.allow", "net.outbound.deny"})
            for (const auto& text : config_.list(key))
                if (const auto range = net::parse_outbound_range(text); !range.ok())
                    fail(key, fmt::format("has {}; {}", range.error().message, range.error().remedy));
    }

    void check_dns() {
        if (set("dns.listen"))
            if (const auto address = parse_listen(config_.text("dns.listen")); !address.ok())
                fail("dns.listen", fmt::format("is \"{}\", which is not a listen address; {}", config_.text("dns.listen"),
                                               address.error().remedy));
        if (config_.list("dns.geo_databases").size() > gslb::max_geo_databases)
            fail("dns.geo_databases", fmt::format("can have at most {} files", gslb::max_geo_databases));
        if (config_.text("dns.id").size() > 64) fail("dns.id", "can have at most 64 characters");
        if (config_.text("dns.version").size() > 255) fail("dns.version", "can have at most 255 characters");
        for (const auto* key : {"dns.transfer_to", "dns.rate_limit_exempt"})
            for (const auto& text : config_.list(key))
                if (const auto prefix = gslb::parse_prefix(text); !prefix.ok())
                    fail(key, fmt::format("has \"{}\": {}", text, prefix.error().message));
        for (const auto& text : config_.list("dns.notify"))
            if (const auto secondary = dns::Notifier::parse(text); !secondary.ok())
                fail("dns.notify", fmt::format("has {}; {}", secondary.error().message, secondary.error().remedy));
        if (!config_.list("dns.notify").empty() && config_.list("dns.transfer_to").empty())
            fail("dns.notify", "has secondaries, but dns.transfer_to is empty: no secondary may transfer a zone");
        if (config_.duration("dns.stale_after") < std::chrono::seconds(5)) fail("dns.stale_after", "must be at least 5s");
        if (config_.bytes("dns.query_log_size") < 64 * 1024) fail("dns.query_log_size", "must be at least 64KiB");
    }

    void check_catalog() {
        for (const auto* key : {"catalog.http.listen", "catalog.dns.listen"}) {
            if (!set(key)) continue;
            const auto address = parse_listen(config_.text(key));
            if (!address.ok())
                fail(key, fmt::format("is \"{}\", which is not a listen address; {}", config_.text(key), address.error().remedy));
            else if (std::string_view(key) == "catalog.http.listen" && !set("server.tls.certificate") && !address->is_loopback() &&
                     !config_.boolean("server.allow_plaintext"))
                fail(key,
                     fmt::format("is {}, which is beyond loopback, without TLS: set server.tls.certificate and server.tls.key, or "
                                 "allow plain HTTP with server.allow_plaintext",
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
                fail(key, "must consist of a-z, 0-9 and '-', up to 63 characters");
        }
        for (const auto* key : {"catalog.dns.node_ttl", "catalog.dns.service_ttl"})
            if (config_.duration(key) < Duration::zero() || config_.duration(key) > std::chrono::hours(24 * 7))
                fail(key, "must be between 0s and 7d");
    }

    void check_consul() {
        const auto& url = config_.text("catalog.consul.url");
        if (!url.empty() && !url.starts_with("http://") && !url.starts_with("https://"))
            fail("catalog.consul.url", "must begin with http:// or https://");
        else if (!url.empty())
            if (const auto base = drivers::api_base("", url, config_.boolean("catalog.consul.allow_plaintext")); !base.ok())
                fail("catalog.consul.url", base.error().fields.front().message);
        if (url.empty() && (set("catalog.consul.token_file") || set("catalog.consul.ca")))
            fail("catalog.consul.url", "is empty, but a token or a CA for it is set");
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
