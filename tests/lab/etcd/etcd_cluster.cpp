#include "lab/etcd/etcd_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace orrery::testing {

namespace {

constexpr const char* etcd_program = "/usr/bin/etcd";

sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return address;
}

/// Free ports, each returned only once. They are below the range of ephemeral ports, so that a member that is killed and started
/// again finds its port free. Each process has its own block of ports.
std::vector<int> free_ports(std::size_t count) {
    constexpr int first = 10240, block = 32, blocks = 700;
    static int given = 0;
    std::vector<int> ports;
    for (int tried = 0; ports.size() < count && tried < block; ++tried) {
        const int port = first + ::getpid() % blocks * block + given++ % block;
        const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const auto address = loopback(port);
        if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) ports.push_back(port);
        ::close(socket);
    }
    return ports;
}

bool accepts_connections(int port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto address = loopback(port);
    const bool connected = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    ::close(socket);
    return connected;
}

} // namespace

bool EtcdCluster::installed() { return ::access(etcd_program, X_OK) == 0; }

EtcdCluster::~EtcdCluster() {
    for (std::size_t i = 0; i < members_.size(); ++i) kill(i);
}

Result<Unit> EtcdCluster::start(std::size_t members, std::vector<std::string> more_flags) {
    more_flags_ = std::move(more_flags);
    const auto ports = free_ports(2 * members);
    if (ports.size() != 2 * members) return Error{Code::internal, "no free ports on loopback"};
    for (std::size_t i = 0; i < members; ++i) members_.push_back(Member{fmt::format("m{}", i), ports[2 * i], ports[2 * i + 1], 0});
    for (auto& member : members_) {
        TRY(std::ignore, spawn(member, true));
    }
    for (std::size_t i = 0; i < members_.size(); ++i) {
        TRY(std::ignore, wait_until_listening(i));
    }
    return Unit{};
}

void EtcdCluster::kill(std::size_t member) {
    auto& pid = members_[member].pid;
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = 0;
}

void EtcdCluster::pause(std::size_t member) {
    const auto pid = members_[member].pid;
    ::kill(pid, SIGSTOP);
    // The signal is asynchronous: on a busy host the member would still answer for a moment.
    siginfo_t stopped{};
    ::waitid(P_PID, static_cast<id_t>(pid), &stopped, WSTOPPED | WNOWAIT);
}
void EtcdCluster::resume(std::size_t member) { ::kill(members_[member].pid, SIGCONT); }
Result<Unit> EtcdCluster::restart(std::size_t member) { return spawn(members_[member], false); }

Result<std::string> EtcdCluster::restart_elsewhere(std::size_t member) {
    auto& here = members_[member];
    const int usual = here.client_port;
    here.client_port = free_ports(1).at(0);
    auto up = spawn(here, false);
    if (up.ok()) up = wait_until_listening(member);
    const auto endpoint = fmt::format("127.0.0.1:{}", here.client_port);
    here.client_port = usual;
    if (!up.ok()) return up.error();
    return endpoint;
}

Result<Unit> EtcdCluster::wait_until_listening(std::size_t member) const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!accepts_connections(members_[member].client_port)) {
        if (std::chrono::steady_clock::now() > until || ::kill(members_[member].pid, 0) != 0)
            return Error{Code::unavailable, fmt::format("etcd member {} did not start; its log is {}", member,
                                                        (folder_ / (members_[member].name + ".log")).string())};
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return Unit{};
}

double EtcdCluster::cpu_seconds(std::size_t member) const {
    std::ifstream file(fmt::format("/proc/{}/stat", members_[member].pid));
    std::string word;
    double ticks = 0;
    // The name in the second field is "(etcd)": no spaces to mind. User and system time are fields 14 and 15.
    for (int field = 1; field <= 15 && file >> word; ++field)
        if (field >= 14) ticks += std::stod(word);
    return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::vector<std::string> EtcdCluster::endpoints() const {
    std::vector<std::string> all;
    for (const auto& member : members_) all.push_back(fmt::format("127.0.0.1:{}", member.client_port));
    return all;
}

std::string EtcdCluster::url(const std::string& prefix) const {
    return fmt::format("etcd://{}/{}", fmt::join(endpoints(), ","), prefix);
}

Result<Unit> EtcdCluster::spawn(Member& member, bool fresh) {
    std::vector<std::string> peers;
    for (const auto& each : members_) peers.push_back(fmt::format("{}=http://127.0.0.1:{}", each.name, each.peer_port));
    const auto client = fmt::format("http://127.0.0.1:{}", member.client_port);
    const auto peer = fmt::format("http://127.0.0.1:{}", member.peer_port);
    std::vector<std::string> arguments{etcd_program,
                                       "--name",
                                       member.name,
                                       "--data-dir",
                                       (folder_ / member.name).string(),
                                       "--listen-client-urls",
                                       client,
                                       "--advertise-client-urls",
                                       client,
                                       "--listen-peer-urls",
                                       peer,
                                       "--initial-advertise-peer-urls",
                                       peer,
                                       "--initial-cluster",
                                       fmt::format("{}", fmt::join(peers, ",")),
                                       "--initial-cluster-state",
                                       fresh ? "new" : "existing",
                                       "--initial-cluster-token",
                                       folder_.path().filename(),
                                       "--logger",
                                       "zap",
                                       "--log-level",
                                       "warn"};
    arguments.insert(arguments.end(), more_flags_.begin(), more_flags_.end());
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int log = ::open((folder_ / (member.name + ".log")).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const pid_t parent = ::getpid();
    member.pid = ::fork();
    if (member.pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        ::dup2(log, 1);
        ::dup2(log, 2);
        ::execv(etcd_program, argv.data());
        ::_exit(127);
    }
    ::close(log);
    if (member.pid < 0) return Error{Code::internal, "etcd could not be started"};
    return Unit{};
}

} // namespace orrery::testing
