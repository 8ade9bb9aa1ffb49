#include "core/config.h"
#include "core/test_fixture.h"

#include <boost/json/serialize.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sys/stat.h>

namespace orrery {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Setting> table() {
    using enum Setting::Type;
    return {
        {"server.listen", list, "127.0.0.1:8421", "Addresses to listen at."},
        {"server.allow_plaintext", boolean, "false", "Listen beyond loopback without TLS."},
        {"server.run", list, "api,controllers", "Parts.", {"api", "controllers"}},
        {"data.folder", path, "/var/lib/orrery", "Where everything is kept."},
        {"store.url", text, "", "Where the store is."},
        {"store.keys", integer, "10", "How many.", {}, 1, 100},
        {"secrets.key_file", path, "<data.folder>/secrets.key", "The key that seals secrets."},
        {"log.format", text, "auto", "Format of the lines.", {"auto", "json"}},
        {"events.keep", duration, "90d", "How long."},
        {"ldap.bind_password_file", secret_file, "", "Password."},
        {"ldap.roles", map, "", "Group to role."},
        {"limits.body", bytes, "4MiB", "Largest body."},
    };
}

class ConfigFile : public ::testing::Test {
protected:
    Result<Config> load(std::string_view text) {
        std::ofstream(file()) << text;
        sources.file = file();
        return Config::load(table(), sources);
    }
    std::string file() const { return folder / "orrery.yaml"; }
    testing::TemporaryFolder folder;
    ConfigSources sources;
};

TEST_F(ConfigFile, DefaultsApplyToUnsetSettings) {
    const auto config = load("");
    ASSERT_TRUE(config.ok()) << config.error().text();
    EXPECT_THAT(config->list("server.listen"), ElementsAre("127.0.0.1:8421"));
    EXPECT_FALSE(config->boolean("server.allow_plaintext"));
    EXPECT_EQ(config->duration("events.keep"), 24h * 90);
    EXPECT_EQ(config->bytes("limits.body"), 4U << 20U);
    EXPECT_EQ(config->path("secrets.key_file"), "/var/lib/orrery/secrets.key");
    EXPECT_EQ(config->origin("store.url"), "default");
    EXPECT_FALSE(config->is_set("store.url"));
}

TEST_F(ConfigFile, FlagsOverrideTheEnvironmentAndThatOverridesTheFile) {
    sources.environment = {{"ORRERY_STORE_URL", "from-environment"}, {"ORRERY_STORE_KEYS", "12"}, {"PATH", "/bin"}};
    sources.flags = {{"store-url", "from-flag"}};
    const auto config = load("store:\n  url: from-file\n  keys: 11\nlog:\n  format: json\n");
    ASSERT_TRUE(config.ok()) << config.error().text();
    EXPECT_EQ(config->text("store.url"), "from-flag");
    EXPECT_EQ(config->origin("store.url"), "--store-url");
    EXPECT_EQ(config->integer("store.keys"), 12);
    EXPECT_EQ(config->origin("store.keys"), "ORRERY_STORE_KEYS");
    EXPECT_EQ(config->text("log.format"), "json");
    EXPECT_EQ(config->origin("log.format"), file() + ":5");
}

TEST_F(ConfigFile, AllErrorsAreReportedAtOnceWithTheirLines) {
    const auto config = load("store:\n  ulr: x\n  keys: many\nserver:\n  listen: 1.2.3.4:5\n  run: [api, cotrollers]\nevnets:\n  "
                             "keep: 3d\nlog:\n  format: jsn\n");
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(config.error().code, Code::invalid);
    std::vector<std::string> lines;
    for (const auto& field : config.error().fields) lines.push_back(field.path.substr(file().size()) + " " + field.message);
    EXPECT_THAT(lines, ElementsAre(":2 store.ulr is not a setting; did you mean store.url?",
                                   ":3 store.keys must be a whole number, not \"many\"",
                                   ":5 server.listen must be a list, as in [one, two]",
                                   ":6 server.run must be one of api, controllers, not \"cotrollers\"; did you mean controllers?",
                                   ":7 evnets is not a setting; did you mean events?",
                                   ":10 log.format must be one of auto, json, not \"jsn\"; did you mean json?"))
        << config.error().text();
}

TEST_F(ConfigFile, SecretsAreFilesNeverValues) {
    const auto config = load("ldap:\n  bind_password: hunter2\n");
    ASSERT_FALSE(config.ok());
    ASSERT_EQ(config.error().fields.size(), 1U);
    EXPECT_THAT(config.error().fields[0].message, HasSubstr("ldap.bind_password_file"));
    EXPECT_THAT(config.error().text(), ::testing::Not(HasSubstr("hunter2")));

    sources.environment = {{"ORRERY_LDAP_BIND_PASSWORD", "hunter2"}};
    const auto from_environment = load("");
    ASSERT_FALSE(from_environment.ok());
    EXPECT_THAT(from_environment.error().text(), HasSubstr("ORRERY_LDAP_BIND_PASSWORD_FILE"));
}

TEST_F(ConfigFile, ReadsSecretFilesAndWarnsIfAllUsersCanReadThem) {
    std::ofstream(folder / "password") << "hunter2\n";
    ::chmod((folder / "password").c_str(), 0644);
    auto config = load("ldap:\n  bind_password_file: password\n"); // relative to the file
    ASSERT_TRUE(config.ok()) << config.error().text();
    const auto secret = config->secret("ldap.bind_password_file");
    ASSERT_TRUE(secret.ok()) << secret.error().text();
    EXPECT_EQ(*secret, "hunter2");
    EXPECT_EQ(config->warnings().size(), 1U);
    ::chmod((folder / "password").c_str(), 0600);
    config = load("ldap:\n  bind_password_file: password\n");
    EXPECT_TRUE(config->warnings().empty());

    const auto missing = load("ldap: {bind_password_file: nowhere}\n")->secret("ldap.bind_password_file");
    ASSERT_FALSE(missing.ok());
    EXPECT_THAT(missing.error().message, HasSubstr("nowhere"));
    EXPECT_EQ(*load("")->secret("ldap.bind_password_file"), std::nullopt);
}

TEST_F(ConfigFile, UnknownEnvironmentNamesAreRefusedWithASuggestion) {
    sources.environment = {{"ORRERY_STORE_ULR", "x"}, {"ORRERY_SERVER", "http://x"}, {"ORRERY_TEST_ETCD", "1"}};
    sources.other_environment = {"ORRERY_SERVER", "ORRERY_TEST_*"};
    const auto config = load("");
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(config.error().fields,
              (std::vector<FieldError>{{"ORRERY_STORE_ULR", "is not a setting; did you mean ORRERY_STORE_URL?"}}));
}

TEST_F(ConfigFile, MapsKeepNamesThatHoldEqualSigns) {
    const auto file = load("ldap:\n  roles:\n    cn=admins,dc=x: admin\n    cn=ops,dc=x: operator\n");
    ASSERT_TRUE(file.ok()) << file.error().text();
    sources.environment = {{"ORRERY_LDAP_ROLES", "cn=admins,dc=x=admin; cn=ops,dc=x=operator"}};
    const auto environment = load("");
    ASSERT_TRUE(environment.ok()) << environment.error().text();
    EXPECT_EQ(file->map("ldap.roles"), environment->map("ldap.roles"));
    EXPECT_EQ(file->map("ldap.roles").at("cn=ops,dc=x"), "operator");
}

TEST_F(ConfigFile, RefusesWhatIsNotAMapOfSettings) {
    for (const std::string_view text : {"- a\n", "store: [\n", "store: x\n", "store:\n  url: {a: b}\n", "store:\n  url:\n",
                                        "a: 1\n---\nb: 2\n", "store: {url: a}\nstore: {url: b}\n", "? [a]\n: b\n",
                                        "server:\n  run: [[a]]\n", "ldap: {roles: {a: [b]}}\n", "store:\n  url: \"a\\nb\"\n"})
        EXPECT_FALSE(load(text).ok()) << text;
}

TEST_F(ConfigFile, AMissingFileIsAnErrorUnlessItIsTheDefaultFile) {
    sources.file = folder / "absent.yaml";
    EXPECT_FALSE(Config::load(table(), sources).ok());
    sources.file_may_be_absent = true;
    EXPECT_TRUE(Config::load(table(), sources).ok());
    sources.file = folder.path();
    EXPECT_FALSE(Config::load(table(), sources).ok());
}

TEST(ConfigFlags, AreParsed) {
    ConfigSources sources;
    ASSERT_TRUE(read_flags(table(),
                           {"--store-url=a=b", "--server-allow-plaintext", "--server-listen", "a:1", "--server-listen", "b:2", "-f",
                            "x.yaml"},
                           sources)
                    .ok());
    EXPECT_EQ(sources.file, "x.yaml");
    sources.file.clear();
    const auto config = Config::load(table(), sources);
    ASSERT_TRUE(config.ok()) << config.error().text();
    EXPECT_EQ(config->text("store.url"), "a=b");
    EXPECT_TRUE(config->boolean("server.allow_plaintext"));
    EXPECT_THAT(config->list("server.listen"), ElementsAre("a:1", "b:2"));
}

TEST(ConfigFlags, TyposGetASuggestion) {
    ConfigSources sources;
    const auto typo = read_flags(table(), {"--store-ulr", "x"}, sources);
    ASSERT_FALSE(typo.ok());
    EXPECT_EQ(typo.error().remedy, "did you mean --store-url?");
    const auto secret = read_flags(table(), {"--ldap-bind-password", "x"}, sources);
    ASSERT_FALSE(secret.ok());
    EXPECT_THAT(secret.error().remedy, HasSubstr("--ldap-bind-password-file"));
    EXPECT_FALSE(read_flags(table(), {"--store-url"}, sources).ok());
    EXPECT_FALSE(read_flags(table(), {"store"}, sources).ok());
}

TEST(ConfigShow, MasksPasswordsInUrls) {
    ConfigSources sources;
    sources.flags = {{"store-url", "etcd://me:hunter2@h:2379/x"}};
    const auto config = Config::load(table(), sources);
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->shown("store.url"), "etcd://me:***@h:2379/x");
    EXPECT_EQ(boost::json::serialize(config->shown_json("store.url")),
              R"({"key":"store.url","value":"etcd://me:***@h:2379/x","origin":"--store-url"})");
    EXPECT_EQ(config->shown("limits.body"), "4MiB");
    EXPECT_EQ(boost::json::serialize(config->shown_json("server.run")),
              R"({"key":"server.run","value":["api","controllers"],"origin":"default"})");
}

TEST_F(ConfigFile, TheDefaultFileIsValidWithoutItsCommentMarks) {
    const auto text = default_config_file(table());
    EXPECT_THAT(text, HasSubstr("\n#store:\n#  # Where the store is.\n#  url: \"\"\n"));
    EXPECT_TRUE(load(text).ok());
    std::string uncommented;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with("#") && (!line.starts_with("# ") || line.starts_with("#  "))) uncommented += line.substr(1) + "\n";
    const auto config = load(uncommented);
    ASSERT_TRUE(config.ok()) << config.error().text() << uncommented;
    EXPECT_EQ(config->origin("limits.body").substr(0, file().size()), file());
    EXPECT_EQ(config->bytes("limits.body"), 4U << 20U);
}

TEST(Bytes, SurviveARoundTrip) {
    for (const std::string_view text : {"0", "1", "1KiB", "4MiB", "3GiB", "1025"}) EXPECT_EQ(bytes_text(*parse_bytes(text)), text);
    for (const std::string_view text : {"", "x", "1k", "-1", "99999999999GiB", "1.5MiB"})
        EXPECT_FALSE(parse_bytes(text).ok()) << text;
}

} // namespace
} // namespace orrery
