#pragma once

#include "core/result.h"
#include "core/test_fixture.h"

#include <gtest/gtest.h>

#include <string>
#include <sys/types.h>
#include <vector>

namespace orrery::testing {

/// Real etcd members on loopback, for tests. Each member has free ports and a temporary data folder. All members are killed and
/// their data removed at the end, also when the test's process dies. Main thread only: the members are bound to it.
class EtcdCluster {
public:
    /// Is etcd installed? A test without it is skipped.
    static bool installed();

    EtcdCluster() = default;
    ~EtcdCluster();
    EtcdCluster(const EtcdCluster&) = delete;
    EtcdCluster& operator=(const EtcdCluster&) = delete;

    /// Starts `members` members and waits until each accepts connections. Each gets `more_flags`.
    Result<Unit> start(std::size_t members, std::vector<std::string> more_flags = {});
    /// Sends SIGKILL and waits for the end of the process.
    void kill(std::size_t member);
    /// Sends SIGSTOP: the process exists but does not answer, until `resume`.
    void pause(std::size_t member);
    void resume(std::size_t member);
    /// Starts a killed member on its old data. Returns immediately, before the member serves.
    Result<Unit> restart(std::size_t member);
    /// The same on another port, which only the caller knows, until the member is killed. Returns that endpoint when it accepts
    /// connections.
    Result<std::string> restart_elsewhere(std::size_t member);
    /// Waits (blocking) until the member's port accepts connections.
    Result<Unit> wait_until_listening(std::size_t member) const;
    bool running(std::size_t member) const { return members_[member].pid > 0; }
    pid_t pid(std::size_t member) const { return members_[member].pid; }
    /// CPU time of the member since its start.
    double cpu_seconds(std::size_t member) const;
    std::size_t size() const { return members_.size(); }

    /// "127.0.0.1:port" of each.
    std::vector<std::string> endpoints() const;
    /// "etcd://127.0.0.1:1,127.0.0.1:2/orrery/"
    std::string url(const std::string& prefix = "orrery/") const;

private:
    struct Member {
        std::string name;
        int client_port = 0, peer_port = 0;
        pid_t pid = 0;
    };
    Result<Unit> spawn(Member& member, bool fresh);

    TemporaryFolder folder_;
    std::vector<Member> members_;
    std::vector<std::string> more_flags_;
};

} // namespace orrery::testing

/// Skips the test of a coroutine, visibly, on a host without etcd.
#define CO_NEEDS_ETCD()                                                                                                            \
    if (!EtcdCluster::installed()) {                                                                                               \
        []() { GTEST_SKIP() << "etcd is not installed (Debian package etcd-server)"; }();                                          \
        co_return;                                                                                                                 \
    }
