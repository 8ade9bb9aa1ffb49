#include "app/outbound_component.h"
#include "app/settings.h"
#include "core/test_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

namespace orrery::app {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Result<Config> load(std::vector<std::string> flags) {
    // An empty file replaces the default file of this host.
    flags.insert(flags.end(), {"-f", "/dev/null"});
    return load_config(flags, {});
}

std::string errors_of(const Result<Config>& config) { return config.ok() ? "" : config.error().text(); }

TEST(ServerSettings, DefaultsAreAValidConfiguration) {
    const auto config = load({});
    ASSERT_TRUE(config.ok()) << config.error().text();
    EXPECT_EQ(config->path("secrets.key_file"), "/var/lib/orrery/secrets.key");
    EXPECT_FALSE(server_name(*config).empty());
    EXPECT_EQ(load({"--server-name", "a1"})->text("server.name"), "a1");
}

TEST(ServerSettings, EverySettingHasHelpAndUniqueNames) {
    std::set<std::string> names;
    for (const auto& setting : server_settings()) {
        EXPECT_TRUE(setting.help.ends_with('.') || setting.help.ends_with('?')) << setting.key;
        EXPECT_TRUE(names.insert(setting.environment_name()).second) << setting.key;
        for (const auto& other : other_environment()) EXPECT_NE(setting.environment_name(), other);
    }
}

TEST(ServerSettings, SettingsOfEarlierVersionsCauseAWarningAndNoError) {
    testing::TemporaryFolder folder;
    const std::string file = folder / "orrery.yaml";
    std::ofstream(file) << "jobs:\n  slots: 7\n  ansible_plugins: /usr/share/orrery/ansible/callback\n";
    const auto config = load_config({"-f", file}, {});
    ASSERT_TRUE(config.ok()) << config.error().text();
    EXPECT_EQ(config->integer("jobs.slots"), 7);
    EXPECT_THAT(config->warnings(),
                ::testing::ElementsAre(AllOf(HasSubstr("orrery.yaml:3"), HasSubstr("jobs.ansible_plugins has no effect"),
                                             HasSubstr("part of the program"))));
    for (const auto& [flags, environment] : {std::pair<std::vector<std::string>, std::vector<std::pair<std::string, std::string>>>{
                                                 {"-f", "/dev/null", "--jobs-ansible-plugins", "/x"}, {}},
                                             {{"-f", "/dev/null"}, {{"ORRERY_JOBS_ANSIBLE_PLUGINS", "/x"}}}}) {
        const auto other = load_config(flags, environment);
        ASSERT_TRUE(other.ok()) << other.error().text();
        EXPECT_THAT(other->warnings(), ::testing::ElementsAre(HasSubstr("jobs.ansible_plugins has no effect")));
    }
    for (const auto& retired : retired_settings())
        for (const auto& setting : server_settings()) EXPECT_NE(setting.key, retired.key);
}

TEST(ServerSettings, ListeningBeyondLoopbackWithoutTlsIsRefusedUnlessAllowed) {
    EXPECT_THAT(errors_of(load({"--server-listen", "*:8421"})), HasSubstr("server.allow_plaintext"));
    EXPECT_THAT(errors_of(load({"--server-listen", "10.0.0.1:8421"})), HasSubstr("beyond loopback"));
    EXPECT_EQ(errors_of(load({"--server-listen", "*:8421", "--server-allow-plaintext"})), "");
    EXPECT_EQ(errors_of(load({"--server-listen", "[::1]:1,127.0.0.2:1,localhost:1"})), "");
    testing::TemporaryFolder folder;
    const std::string file = folder / "x.pem";
    std::ofstream(file) << "x";
    EXPECT_EQ(errors_of(load({"--server-listen", "*:8421", "--server-tls-certificate", file, "--server-tls-key", file})), "");
    EXPECT_THAT(errors_of(load({"--server-tls-certificate", file})), HasSubstr("needs server.tls.key"));
    EXPECT_THAT(errors_of(load({"--server-tls-certificate", file, "--server-tls-key", file + "2"})),
                HasSubstr("which is not a file"));
}

TEST(ServerSettings, DnsBeyondLoopbackHasARateLimitByDefault) {
    const auto limit = [](std::vector<std::string> arguments, std::string_view listen = "dns.listen") {
        const auto config = load(std::move(arguments));
        return config.ok() ? static_cast<int>(dns_rate_limit(*config, listen).per_second) : -1;
    };
    EXPECT_EQ(limit({}), 0) << "no DNS is served";
    EXPECT_EQ(limit({"--dns-listen", "127.0.0.1:5353"}), 0);
    EXPECT_EQ(limit({"--dns-listen", "[::1]:5353"}), 0);
    EXPECT_EQ(limit({"--dns-listen", "*:53"}), 1000);
    EXPECT_EQ(limit({"--dns-listen", "192.0.2.1:53"}), 1000);
    EXPECT_EQ(limit({"--dns-listen", "*:53", "--dns-rate-limit", "0"}), 0);
    EXPECT_EQ(limit({"--dns-listen", "*:53", "--dns-rate-limit", "200"}), 200);
    EXPECT_EQ(limit({"--dns-listen", "127.0.0.1:5353", "--dns-rate-limit", "20"}), 20);
    EXPECT_EQ(limit({"--catalog-dns-listen", "127.0.0.1:8600"}, "catalog.dns.listen"), 0);
    EXPECT_EQ(limit({"--catalog-dns-listen", "*:8600"}, "catalog.dns.listen"), 1000);
}

TEST(ServerSettings, StoresAndDirectoriesAreChecked) {
    for (const auto* good : {"", "sqlite:///a/b.db", "etcd://127.0.0.1:1,[::1]:2/prefix", "etcd://localhost", "etcds://a:1"})
        EXPECT_EQ(errors_of(load({"--store-url", good})), "") << good;
    for (const auto* bad : {"mysql://a", "sqlite://b", "etcd://", "etcd://me:pw@a:1"})
        EXPECT_NE(errors_of(load({"--store-url", bad})), "") << bad;
    EXPECT_THAT(errors_of(load({"--identity-ldap-url", "ldaps://x"})), HasSubstr("user_base"));
    EXPECT_EQ(errors_of(load({"--identity-ldap-url", "ldaps://x", "--identity-ldap-user-base", "dc=x", "--identity-ldap-roles",
                              "cn=a,dc=x=admin"})),
              "");
    EXPECT_THAT(errors_of(load(
                    {"--identity-ldap-url", "ldaps://x", "--identity-ldap-user-base", "dc=x", "--identity-ldap-roles", "a=king"})),
                HasSubstr("king"));
    EXPECT_THAT(errors_of(load({"--identity-keystone-url", "https://x"})), HasSubstr("password_file"));
}

TEST(ServerSettings, PlaintextBeyondLoopbackIsRefusedUnlessAllowed) {
    for (const auto* far :
         {"etcd://10.0.0.1:2379", "etcd://127.0.0.1:1,10.0.0.1:2", "etcd://etcd.example", "etcd://[fe80::1]:2379"}) {
        EXPECT_THAT(errors_of(load({"--store-url", far})), AllOf(HasSubstr("without TLS"), HasSubstr("store.etcd.allow_plaintext")))
            << far;
        EXPECT_EQ(errors_of(load({"--store-url", far, "--store-etcd-allow-plaintext"})), "") << far;
    }
    EXPECT_THAT(errors_of(load({"--catalog-consul-url", "http://consul.example:8500"})), HasSubstr("must be https://"));
    EXPECT_EQ(errors_of(load({"--catalog-consul-url", "http://consul.example:8500", "--catalog-consul-allow-plaintext"})), "");
    for (const auto* fine : {"http://127.0.0.1:8500", "http://localhost:8500", "https://consul.example"})
        EXPECT_EQ(errors_of(load({"--catalog-consul-url", fine})), "") << fine;
}

TEST(ServerSettings, NoErrorRepeatsThePasswordOfAUrl) {
    for (const auto* key : {"--store-url", "--catalog-consul-url", "--identity-ldap-url", "--identity-keystone-url"})
        for (const auto* url : {"etcd://root:hunter2@h:2379", "etcds://root:hun/hunter2@h", "http://root:hunter2@127.0.0.1:1",
                                "https://hunter2@h", "ldaps://root:hunter2@h", "nonsense://root:hunter2@h"}) {
            const auto errors = errors_of(load({key, url}));
            EXPECT_NE(errors, "") << key << url;
            EXPECT_THAT(errors, Not(HasSubstr("hunter2"))) << key;
        }
}

TEST(ServerSettings, TheEnvironmentCanNameTheFile) {
    testing::TemporaryFolder folder;
    const std::string file = folder / "o.yaml";
    std::ofstream(file) << "log: {level: debug}\n";
    const auto config = load_config({}, {{"ORRERY_CONFIG_FILE", file}});
    ASSERT_TRUE(config.ok()) << config.error().text();
    EXPECT_EQ(config->text("log.level"), "debug");
    EXPECT_FALSE(load_config({}, {{"ORRERY_CONFIG_FILE", file + "x"}}).ok());
}

TEST(ListenAddress, IsParsedInEveryForm) {
    const auto six = parse_listen("[::1]:80");
    ASSERT_TRUE(six.ok());
    EXPECT_EQ(six->host, "::1");
    EXPECT_EQ(six->port, 80);
    EXPECT_TRUE(six->is_loopback());
    EXPECT_EQ(parse_listen("*:80")->host, "::");
    EXPECT_FALSE(parse_listen(":80")->is_loopback());
    for (const auto* bad : {"", "80", "::1:80", "a:80", "1.2.3.4", "1.2.3.4:", "1.2.3.4:99999", "1.2.3.4:8x"})
        EXPECT_FALSE(parse_listen(bad).ok()) << bad;
}

TEST(ServerSettings, OutboundRangesAreCheckedAndListenersProtected) {
    EXPECT_THAT(errors_of(load({"--net-outbound-allow", "127.0.0.1/8"})), HasSubstr("bits set beyond its prefix length"));
    EXPECT_THAT(errors_of(load({"--net-outbound-deny", "localhost"})), HasSubstr("no address or network"));
    EXPECT_THAT(errors_of(load({"--health-programs-user", ""})), HasSubstr("health.programs_user"));
    const auto config = load(
        {"--net-outbound-allow", "127.0.0.0/8,[::1]:8421", "--net-outbound-deny", "10.0.0.0/8", "--dns-listen", "192.0.2.1:53"});
    ASSERT_TRUE(config.ok()) << config.error().text();
    const auto rules = outbound_rules(*config);
    ASSERT_TRUE(rules.ok());
    const auto permits = [&](const char* address, std::uint16_t port) {
        return (*rules)->check(asio::ip::make_address(address), port).ok();
    };
    EXPECT_TRUE(permits("127.0.0.1", 80));
    EXPECT_FALSE(permits("127.0.0.1", 8421)); // server.listen
    EXPECT_TRUE(permits("::1", 8421));        // named with its port
    EXPECT_FALSE(permits("192.0.2.1", 53));
    EXPECT_FALSE(permits("10.0.0.1", 80));
    EXPECT_FALSE(permits("169.254.169.254", 80));
}

} // namespace
} // namespace orrery::app
