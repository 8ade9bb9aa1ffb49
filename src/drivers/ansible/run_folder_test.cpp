#include "core/test_fixture.h"
#include "core/text.h"
#include "drivers/ansible/run_folder.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

namespace orrery::drivers::run_folder_test {

namespace {
using ::testing::HasSubstr;
using ::testing::Not;

std::string contents(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

AnsibleRun a_run() {
    AnsibleRun run;
    AnsibleHost host;
    host.name = "web-1";
    host.target.host = "192.0.2.1";
    host.target.private_key = "KEY-ONE";
    host.target.host_key = "ssh-ed25519 AAAA comment";
    host.labels = {{"role", "web"}, {"zone", "eu-1"}};
    run.hosts.push_back(host);
    host.name = "web-2";
    host.target.port = 2222;
    host.sudo = true;
    net::SshTarget jump;
    jump.host = "192.0.2.9";
    jump.private_key = "KEY-TWO";
    jump.host_key = "ssh-ed25519 BBBB";
    host.target.jump = std::make_shared<const net::SshTarget>(jump);
    run.hosts.push_back(host);
    run.variables = {{"password", "canary"}};
    run.vault_password = "vault-canary";
    run.content = "/content";
    return run;
}
} // namespace

TEST(AnsibleRunFolder, HoldsTheFilesOfARunReadableByTheOwnerOnly) {
    orrery::testing::TemporaryFolder folder;
    const auto path = folder / "runs/private/a1";
    const auto written = write_run_folder(path, a_run());
    ASSERT_TRUE(written.ok()) << written.error().text();
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
        const auto permissions = entry.status().permissions() & std::filesystem::perms::all;
        EXPECT_EQ(permissions, entry.is_directory() ? std::filesystem::perms(0700) : std::filesystem::perms(0600)) << entry.path();
    }
    const auto inventory = parse_json(contents(path / "inventory.json"));
    ASSERT_TRUE(inventory.ok());
    const auto& all = inventory->at("all").as_object();
    EXPECT_EQ(all.at("hosts").at("web-1").at("ansible_host").as_string(), "192.0.2.1");
    EXPECT_TRUE(all.at("children").at("web").at("hosts").as_object().contains("web-2"));
    EXPECT_TRUE(all.at("children").at("zone_eu_1").at("hosts").as_object().contains("web-1"));
    EXPECT_TRUE(all.at("hosts").at("web-2").at("ansible_become").as_bool());
    EXPECT_THAT(std::string(all.at("hosts").at("web-2").at("ansible_ssh_common_args").as_string().c_str()),
                HasSubstr("ProxyCommand"));
    EXPECT_EQ(contents(path / "known_hosts"),
              "192.0.2.1 ssh-ed25519 AAAA comment\n[192.0.2.1]:2222 ssh-ed25519 AAAA comment\n192.0.2.9 ssh-ed25519 BBBB\n");
    EXPECT_EQ(contents(path / "key1"), "KEY-ONE\n");
    EXPECT_EQ(contents(path / "vault"), "vault-canary\n");
    // The callback plugin comes with the program: no setting and no installed file is needed.
    EXPECT_THAT(contents(path / "ansible.cfg"), HasSubstr("stdout_callback = orrery"));
    EXPECT_THAT(contents(path / "ansible.cfg"), HasSubstr("callback_plugins = " + (path / "callback").string() + "\n"));
    EXPECT_THAT(contents(path / "callback/orrery.py"), HasSubstr("class CallbackModule"));
    EXPECT_THAT(contents(path / "ansible.cfg") + contents(path / "inventory.json"), Not(HasSubstr("canary")));
}

TEST(AnsibleRunFolder, ATemplateInALoginIsRefused) {
    orrery::testing::TemporaryFolder folder;
    const auto refusal = [&](const AnsibleRun& run) {
        const auto written = write_run_folder(folder / "runs/private/a1", run);
        return written.ok() ? std::string("(written)") : written.error().message;
    };
    auto run = a_run();
    run.hosts[0].target.host = "fe80::1%{{ lookup('pipe', 'id') }}";
    EXPECT_EQ(refusal(run), "the address of web-1 is neither an IP address nor a host name");
    run = a_run();
    run.hosts[0].target.user = "{{ lookup('pipe', 'id') }}";
    EXPECT_EQ(refusal(run), "the user of web-1 is not the name of an account");
    run = a_run();
    auto jump = *run.hosts[1].target.jump;
    jump.host = "{{ 7 * 7 }}";
    run.hosts[1].target.jump = std::make_shared<const net::SshTarget>(jump);
    EXPECT_EQ(refusal(run), "the address of a jump host is neither an IP address nor a host name");
    run = a_run();
    run.hosts[0].target.host = "fe80::1%eth0";
    EXPECT_EQ(refusal(run), "(written)");
}

TEST(AnsibleRunFolder, ReplacesAnExistingFolder) {
    orrery::testing::TemporaryFolder folder;
    const auto path = folder / "a1";
    std::filesystem::create_directories(path);
    std::ofstream(path / "old") << "x";
    ASSERT_TRUE(write_run_folder(path, a_run()).ok());
    EXPECT_FALSE(std::filesystem::exists(path / "old"));
}

} // namespace orrery::drivers::run_folder_test
