#pragma once

#include "core/result.h"
#include "core/testing.h"

#include <string>
#include <sys/types.h>
#include <vector>

namespace orrery::testing {

/// Real etcd members on loopback, for tests. Each has free ports and a data folder below a temporary one; all are killed and
/// removed at the end, and also when the test's own process dies. Call it from the main thread, which the members are bound to.
class EtcdCluster {
public:
    /// Whether the program is installed; a test without it is skipped.
    static bool installed();

    EtcdCluster() = default;
    ~EtcdCluster();
    EtcdCluster(const EtcdCluster&) = delete;
    EtcdCluster& operator=(const EtcdCluster&) = delete;

    /// Starts `members` of them and waits until each accepts connections. `more_flags` go to each.
    Result<Unit> start(std::size_t members, std::vector<std::string> more_flags = {});
    /// SIGKILL, and its end is awaited.
    void kill(std::size_t member);
    /// SIGSTOP: alive for the kernel, silent for everybody else. `resume` ends it.
    void pause(std::size_t member);
    void resume(std::size_t member);
    /// Starts a killed member on its old data. Returns at once: it serves some time later.
    Result<Unit> restart(std::size_t member);
    /// The same on another port, which nobody knows but the caller, until it is killed. Returns that endpoint once it accepts
    /// connections.
    Result<std::string> restart_elsewhere(std::size_t member);
    /// Waits (blocking) until the member's port accepts connections.
    Result<Unit> wait_until_listening(std::size_t member) const;
    bool running(std::size_t member) const { return members_[member].pid > 0; }
    pid_t pid(std::size_t member) const { return members_[member].pid; }
    /// CPU time the member has used since it was started.
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
    Result<Unit> spawn(Member& member, bool anew);

    TemporaryFolder folder_;
    std::vector<Member> members_;
    std::vector<std::string> more_flags_;
};

} // namespace orrery::testing
