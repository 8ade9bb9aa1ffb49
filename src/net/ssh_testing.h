#pragma once

#include "core/testing.h"

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
#include <thread>
#include <unistd.h>
#include <vector>

/// For tests only: the distribution's sshd on a port of loopback that the kernel chose, one process a connection, logins as who
/// runs the test.
namespace orrery::net::testing {

class TestSshd {
public:
    static bool is_installed() { return ::access("/usr/sbin/sshd", X_OK) == 0 && ::access("/usr/bin/ssh-keygen", X_OK) == 0; }

    explicit TestSshd(std::string more_settings = "", const std::string& host_key_type = "ed25519") {
        ::mkdir("/run/sshd", 0755); // where it wants to lock itself in, as root
        make_key("id", "ed25519");
        make_key("host", host_key_type);
        std::ofstream(folder_ / "config")
            << "HostKey " << (folder_ / "host").string() << "\nAuthorizedKeysFile " << (folder_ / "id.pub").string()
            << "\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
               "PermitRootLogin yes\nUseDNS no\nLogLevel ERROR\n"
               // A home of its own; and bash, told that it is not the first, reads nobody's .bashrc.
               "SetEnv SHLVL=2 HOME="
            << folder_.path().string() << "\n"
            << more_settings << "\n";
        listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
        ::listen(listener_, 64);
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
        for (const int fd : held_) ::close(fd);
    }
    TestSshd(const TestSshd&) = delete;
    TestSshd& operator=(const TestSshd&) = delete;

    std::uint16_t port() const { return port_; }
    std::string private_key() const { return text_of("id"); }
    std::string host_key() const { return text_of("host.pub"); }
    const std::filesystem::path& folder() const { return folder_.path(); }
    static std::string user() { return ::getpwuid(::geteuid())->pw_name; }
    int connections() const { return connections_; }

    /// So many of the next connections are closed before a word is said.
    std::atomic<int> turn_away = 0;
    /// And from now on all are accepted and left in silence.
    std::atomic<bool> silent = false;
    /// Ends all its processes, as a crash would.
    void cut_off() {
        const std::lock_guard lock(mutex_);
        for (const auto pid : children_) {
            ::kill(-pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
        children_.clear();
    }
    /// Another key from the next connection on.
    void change_host_key(const std::string& type = "ed25519") {
        std::filesystem::remove(folder_ / "host");
        make_key("host", type);
    }

private:
    void make_key(const std::string& name, const std::string& type) {
        const auto file = (folder_ / name).string();
        std::vector<std::string> argv{"ssh-keygen", "-q", "-t", type, "-N", "", "-f", file};
        std::vector<char*> words;
        for (auto& word : argv) words.push_back(word.data());
        words.push_back(nullptr);
        pid_t pid = 0;
        if (::posix_spawn(&pid, "/usr/bin/ssh-keygen", nullptr, nullptr, words.data(), environ) == 0) ::waitpid(pid, nullptr, 0);
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
            if (turn_away > 0) {
                --turn_away;
                ::close(socket);
                continue;
            }
            if (silent) {
                held_.push_back(socket);
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
    std::vector<int> held_;
    std::thread thread_;
};

} // namespace orrery::net::testing
