#include "app/settings.h"
#include "core/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

namespace orrery::app {
namespace {

using ::testing::HasSubstr;

Result<Config> load(std::vector<std::string> flags) {
    // A file of the machine's would disturb: an empty one is named instead.
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

TEST(ServerSettings, EveryOneHasHelpAndNamesOfItsOwn) {
    std::set<std::string> names;
    for (const auto& setting : server_settings()) {
        EXPECT_TRUE(setting.help.ends_with('.') || setting.help.ends_with('?')) << setting.key;
        EXPECT_TRUE(names.insert(setting.environment_name()).second) << setting.key;
        for (const auto& other : other_environment()) EXPECT_NE(setting.environment_name(), other);
    }
}

TEST(ServerSettings, ListeningBeyondLoopbackWithoutTlsIsRefusedUnlessSaidSo) {
    EXPECT_THAT(errors_of(load({"--server-listen", "*:8421"})), HasSubstr("server.allow_plaintext"));
    EXPECT_THAT(errors_of(load({"--server-listen", "10.0.0.1:8421"})), HasSubstr("beyond loopback"));
    EXPECT_EQ(errors_of(load({"--server-listen", "*:8421", "--server-allow-plaintext"})), "");
    EXPECT_EQ(errors_of(load({"--server-listen", "[::1]:1,127.0.0.2:1,localhost:1"})), "");
    testing::TemporaryFolder folder;
    const std::string file = folder / "x.pem";
    std::ofstream(file) << "x";
    EXPECT_EQ(errors_of(load({"--server-listen", "*:8421", "--server-tls-certificate", file, "--server-tls-key", file})), "");
    EXPECT_THAT(errors_of(load({"--server-tls-certificate", file})), HasSubstr("needs server.tls.key"));
    EXPECT_THAT(errors_of(load({"--server-tls-certificate", file, "--server-tls-key", file + "2"})), HasSubstr("no such file"));
}

TEST(ServerSettings, StoresAndDirectoriesAreChecked) {
    for (const auto* good : {"", "sqlite:///a/b.db", "etcd://a:1,b:2/prefix", "etcds://a:1"})
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

TEST(ServerSettings, TheFileMayBeNamedByTheEnvironment) {
    testing::TemporaryFolder folder;
    const std::string file = folder / "o.yaml";
    std::ofstream(file) << "log: {level: debug}\n";
    const auto config = load_config({}, {{"ORRERY_CONFIG_FILE", file}});
    ASSERT_TRUE(config.ok()) << config.error().text();
    EXPECT_EQ(config->text("log.level"), "debug");
    EXPECT_FALSE(load_config({}, {{"ORRERY_CONFIG_FILE", file + "x"}}).ok());
}

TEST(ListenAddress, IsReadInAllItsForms) {
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

} // namespace
} // namespace orrery::app
