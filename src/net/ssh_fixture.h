#pragma once

#include "core/test_fixture.h"

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <mutex>
#include <netinet/in.h>
#include <pwd.h>
#include <spawn.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

/// For tests only: the sshd of the distribution on a free loopback port, one process per connection, with logins as the user that
/// runs the test.
namespace orrery::net::testing {

class TestSshd {
public:
    static bool is_installed() { return ::access("/usr/sbin/sshd", X_OK) == 0 && ::access("/usr/bin/ssh-keygen", X_OK) == 0; }

    explicit TestSshd(std::string more_settings = "", const std::string& host_key_type = "ed25519") {
        ::mkdir("/run/sshd", 0755); // privilege separation directory, needed as root
        make_key("id", "ed25519");
        make_key("host", host_key_type);
        std::ofstream(folder_ / "config")
            << "HostKey " << (folder_ / "host").string() << "\nAuthorizedKeysFile " << (folder_ / "id.pub").string()
            << "\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
               "PermitRootLogin yes\nUseDNS no\nLogLevel ERROR\n"
               // A private home directory; SHLVL=2 keeps bash from reading a .bashrc.
               "SetEnv SHLVL=2 HOME="
            << folder_.path().string() << "\n"
            << more_settings << "\n";
        listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(listener_, 64) != 0)
            throw std::system_error(errno, std::generic_category(), "listen on loopback");
        socklen_t size = sizeof address;
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
        port_ = ntohs(address.sin_port);
        thread_ = std::thread([this] { serve(); });
    }
    ~TestSshd() {
        ::shutdown(listener_, SHUT_RDWR);
        thread_.join();
        ::close(listener_);
        cut_off();
        for (const int fd : ignored_) ::close(fd);
    }
    TestSshd(const TestSshd&) = delete;
    TestSshd& operator=(const TestSshd&) = delete;

    std::uint16_t port() const { return port_; }
    std::string private_key() const { return text_of("id"); }
    std::string host_key() const { return text_of("host.pub"); }
    const std::filesystem::path& folder() const { return folder_.path(); }
    static std::string user() { return ::getpwuid(::geteuid())->pw_name; }
    int connections() const { return connections_; }

    /// The number of next connections that are closed before the banner.
    std::atomic<int> refuse_next = 0;
    /// While true, connections are accepted and then ignored.
    std::atomic<bool> silent = false;
    /// Kills all sshd processes, like a crash.
    void cut_off() {
        const std::lock_guard lock(mutex_);
        for (const auto pid : children_) {
            ::kill(-pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
        children_.clear();
    }
    /// Replaces the host key for new connections.
    void change_host_key(const std::string& type = "ed25519") {
        std::filesystem::remove(folder_ / "host");
        make_key("host", type);
    }

private:
    void make_key(const std::string& name, const std::string& type) {
        const auto file = (folder_ / name).string();
        std::vector<std::string> argv{"ssh-keygen", "-q", "-t", type, "-N", "", "-f", file};
        std::vector<char*> arguments;
        for (auto& argument : argv) arguments.push_back(argument.data());
        arguments.push_back(nullptr);
        pid_t pid = 0;
        if (::posix_spawn(&pid, "/usr/bin/ssh-keygen", nullptr, nullptr, arguments.data(), environ) == 0)
            ::waitpid(pid, nullptr, 0);
    }
    std::string text_of(const std::string& name) const {
        std::ifstream file(folder_ / name);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    void serve() {
        for (;;) {
            const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
            if (socket < 0) return;
            ++connections_;
            if (refuse_next > 0) {
                --refuse_next;
                ::close(socket);
                continue;
            }
            if (silent) {
                ignored_.push_back(socket);
                continue;
            }
            posix_spawn_file_actions_t actions;
            posix_spawnattr_t attributes;
            posix_spawn_file_actions_init(&actions);
            posix_spawnattr_init(&attributes);
            posix_spawn_file_actions_adddup2(&actions, socket, 0);
            posix_spawn_file_actions_adddup2(&actions, socket, 1);
            posix_spawn_file_actions_addclosefrom_np(&actions, 3);
            posix_spawnattr_setpgroup(&attributes, 0);
            posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
            const auto config = (folder_ / "config").string(), log = (folder_ / "log").string();
            std::array<const char*, 7> argv{"/usr/sbin/sshd", "-i", "-f", config.c_str(), "-E", log.c_str(), nullptr};
            std::array<const char*, 2> environment{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", nullptr};
            pid_t pid = 0;
            const int failed = ::posix_spawn(&pid, argv[0], &actions, &attributes, const_cast<char**>(argv.data()),
                                             const_cast<char**>(environment.data()));
            posix_spawn_file_actions_destroy(&actions);
            posix_spawnattr_destroy(&attributes);
            ::close(socket);
            const std::lock_guard lock(mutex_);
            if (failed == 0) children_.push_back(pid);
        }
    }

    orrery::testing::TemporaryFolder folder_;
    int listener_ = -1;
    std::uint16_t port_ = 0;
    std::atomic<int> connections_ = 0;
    std::mutex mutex_;
    std::vector<pid_t> children_;
    std::vector<int> ignored_;
    std::thread thread_;
};

} // namespace orrery::net::testing
