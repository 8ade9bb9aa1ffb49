#include "net/process.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <linux/capability.h>
#include <memory>
#include <optional>
#include <pthread.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace orrery::net {

using namespace std::chrono_literals;

namespace {

using Descriptor = asio::posix::stream_descriptor;
using ErrorCode = boost::system::error_code;

/// Owns a file descriptor.
class Fd {
public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(other.release()) {}
    Fd& operator=(Fd&& other) noexcept {
        reset(other.release());
        return *this;
    }
    ~Fd() { reset(-1); }
    int get() const { return fd_; }
    int release() { return std::exchange(fd_, -1); }
    void reset(int fd) {
        if (fd_ >= 0) ::close(fd_);
        fd_ = fd;
    }

private:
    int fd_ = -1;
};

struct Pipe {
    Fd ours, its;
};

enum class Direction { to_child, from_child };

Result<Pipe> make_pipe(Direction direction) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return Error{Code::unavailable, fmt::format("cannot make a pipe: {}", std::strerror(errno))};
    // Above the standard streams, which are about to be replaced, even where ours are closed.
    for (int& end : ends) {
        if (end > 2) continue;
        const int higher = ::fcntl(end, F_DUPFD_CLOEXEC, 3);
        ::close(end);
        end = higher;
    }
    Pipe pipe{Fd(ends[direction == Direction::to_child ? 1 : 0]), Fd(ends[direction == Direction::to_child ? 0 : 1])};
    ::fcntl(pipe.ours.get(), F_SETFL, ::fcntl(pipe.ours.get(), F_GETFL) | O_NONBLOCK);
    return pipe;
}

Result<std::string> find_program(const ProcessSpec& spec) {
    if (spec.argv.empty() || spec.argv[0].empty()) return Error{Code::invalid, "there is no program to run"};
    const auto& name = spec.argv[0];
    const auto usable = [](const std::string& file) {
        struct stat status{};
        return ::stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode);
    };
    const auto not_executable = [](const std::string& file) {
        return Error{Code::denied, fmt::format("the program {} may not be executed", file), "check its permissions"};
    };
    if (name.find('/') != std::string::npos) {
        const auto file = (name.front() == '/' || spec.folder.empty() ? std::filesystem::path(name) : spec.folder / name).string();
        if (!usable(file))
            return Error{Code::not_found, fmt::format("there is no program {}", name), "install it, or correct its path"};
        if (::access(file.c_str(), X_OK) != 0) return not_executable(file);
        return std::filesystem::absolute(file).string();
    }
    const auto given = spec.environment.find("PATH");
    const char* inherited = std::getenv("PATH");
    std::string_view path = given != spec.environment.end() ? std::string_view(given->second)
                            : inherited                     ? inherited
                                                            : "/usr/bin:/bin";
    std::optional<std::string> forbidden;
    while (!path.empty()) {
        const auto folder = path.substr(0, path.find(':'));
        path.remove_prefix(std::min(path.size(), folder.size() + 1));
        if (folder.empty()) continue;
        auto file = fmt::format("{}/{}", folder, name);
        if (!usable(file)) continue;
        if (::access(file.c_str(), X_OK) == 0) return file;
        forbidden = std::move(file);
    }
    if (forbidden) return not_executable(*forbidden);
    return Error{Code::not_found, fmt::format("there is no program {} in PATH", name), "install it, or give its full path"};
}

constexpr const char* setpriv = "/usr/bin/setpriv";

/// The program under util-linux's setpriv, which gives up privileges and becomes the program. It is a process of its own: a child
/// that changes its account while it still shares memory with this process could be manipulated by other processes of that account.
Result<std::string> give_up_privileges(ProcessSpec& spec, std::string program) {
    if (!spec.user && !spec.no_new_privileges) return program;
    if (::access(setpriv, X_OK) != 0)
        return Error{Code::not_found, fmt::format("there is no {} to run {} without privileges", setpriv, program),
                     "install the package util-linux"};
    std::vector<std::string> argv{setpriv, "--no-new-privs"};
    if (spec.user) {
        argv.push_back(fmt::format("--reuid={}", spec.user->uid));
        argv.push_back(fmt::format("--regid={}", spec.user->gid));
        argv.insert(argv.end(), {"--clear-groups", "--inh-caps=-all"}); // ambient capabilities go with the inheritable ones
    }
    argv.insert(argv.end(), {"--", std::move(program)});
    argv.insert(argv.end(), std::make_move_iterator(spec.argv.begin() + 1), std::make_move_iterator(spec.argv.end()));
    spec.argv = std::move(argv);
    return std::string(setpriv);
}

/// Whether this process has a capability in effect.
bool has_capability(int number) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("CapEff:")) return (std::strtoull(line.c_str() + 7, nullptr, 16) >> number & 1U) != 0;
    return ::geteuid() == 0;
}

/// Writes without the signal that a closed pipe would send to this process.
ssize_t write_to_pipe(int fd, const char* data, std::size_t size) {
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    const auto written = ::write(fd, data, size);
    const int error = errno;
    if (written < 0 && error == EPIPE && !was_pending) {
        constexpr timespec now{};
        while (sigtimedwait(&pipe_signal, nullptr, &now) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    errno = error;
    return written;
}

class SpawnActions {
public:
    SpawnActions() {
        posix_spawn_file_actions_init(&actions);
        posix_spawnattr_init(&attributes);
    }
    ~SpawnActions() {
        posix_spawn_file_actions_destroy(&actions);
        posix_spawnattr_destroy(&attributes);
    }
    SpawnActions(const SpawnActions&) = delete;
    SpawnActions& operator=(const SpawnActions&) = delete;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
};

struct Ends {
    Fd in, out, errors;
};

Result<pid_t> spawn_program(const ProcessSpec& spec, const std::string& program, const Ends& its) {
    std::vector<std::string> variables;
    for (const auto& [name, value] : spec.environment) variables.push_back(fmt::format("{}={}", name, value));
    if (const char* path = std::getenv("PATH"); path && !spec.environment.contains("PATH"))
        variables.push_back(fmt::format("PATH={}", path));
    std::vector<char*> environment, argv;
    for (auto& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    for (const auto& argument : spec.argv) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);

    SpawnActions spawn;
    if (its.in.get() >= 0)
        posix_spawn_file_actions_adddup2(&spawn.actions, its.in.get(), 0);
    else
        posix_spawn_file_actions_addopen(&spawn.actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&spawn.actions, its.out.get(), 1);
    posix_spawn_file_actions_adddup2(&spawn.actions, its.errors.get(), 2);
    // Whatever some library opened without O_CLOEXEC stays with us.
    posix_spawn_file_actions_addclosefrom_np(&spawn.actions, 3);
    if (!spec.folder.empty()) posix_spawn_file_actions_addchdir_np(&spawn.actions, spec.folder.c_str());
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setpgroup(&spawn.attributes, 0);
    posix_spawnattr_setsigmask(&spawn.attributes, &none);
    posix_spawnattr_setsigdefault(&spawn.attributes, &all);
    posix_spawnattr_setflags(&spawn.attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

    pid_t pid = -1;
    const int error = ::posix_spawn(&pid, program.c_str(), &spawn.actions, &spawn.attributes, argv.data(), environment.data());
    if (error == 0) return pid;
    const auto message = fmt::format("cannot run {}: {}", program, std::strerror(error));
    if (error == ENOENT || error == ENOTDIR) return Error{Code::not_found, message, "check the interpreter in its first line"};
    if (error == EACCES || error == EPERM) return Error{Code::denied, message};
    if (error == ENOEXEC || error == E2BIG) return Error{Code::invalid, message};
    return Error{Code::unavailable, message};
}

/// Whether the group has a process that is not a zombie. Init reaps orphans, in some containers only after a while.
bool has_living_member(pid_t group) {
    std::error_code error;
    for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
        const auto name = at->path().filename().string();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        std::ifstream file(at->path() / "stat");
        std::string line;
        std::getline(file, line);
        const auto name_end = line.rfind(')');
        char state = 'Z';
        int parent = 0, its_group = 0;
        if (name_end == std::string::npos ||
            std::sscanf(line.c_str() + name_end + 1, " %c %d %d", &state, &parent, &its_group) != 3)
            continue;
        if (its_group == group && state != 'Z' && state != 'X') return true;
    }
    return false;
}

/// A running child. Callbacks on the loop own it, so that it is reaped even if the caller was destroyed.
class Child : public std::enable_shared_from_this<Child> {
public:
    Child(const asio::any_io_executor& executor, ProcessSpec spec_)
        : spec(std::move(spec_)),
          in(executor),
          out(executor),
          errors(executor),
          exit(executor),
          changed(executor, SteadyTime::max()),
          pause(executor) {}

    void start(pid_t pid_, Pipe& in_pipe, Pipe& out_pipe, Pipe& error_pipe) {
        pid = pid_;
        out.assign(out_pipe.ours.release());
        errors.assign(error_pipe.ours.release());
        read(out, 1);
        read(errors, 2);
        if (in_pipe.ours.get() >= 0) {
            in.assign(in_pipe.ours.release());
            write_input();
        }
        if (const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); fd >= 0) exit.assign(fd);
        wait_for_exit();
    }

    /// Signals the group. Only while the child is not reaped, so that its number cannot be reused.
    void signal_group(int number) {
        if (!group_ended()) ::kill(-pid, number);
    }
    bool group_ended() const { return exited && (::kill(-pid, 0) != 0 || !has_living_member(pid)); }

    void close_outputs() {
        ErrorCode ignored;
        out.close(ignored);
        errors.close(ignored);
    }

    ProcessSpec spec;
    Descriptor in, out, errors, exit;
    asio::steady_timer changed; // at the end of time; cancelled when the child has exited
    asio::steady_timer pause;
    pid_t pid = -1;
    bool exited = false;
    bool ending = false; // the group was signalled
    ProcessResult result;

private:
    void read(Descriptor& from, int number) {
        from.async_wait(Descriptor::wait_read, [self = shared_from_this(), &from, number](const ErrorCode& error) {
            if (error || (self->exited && !self->ending)) return;
            if (self->take(from, number, piece_.size()) != Took::end) self->read(from, number);
        });
    }

    enum class Took { some, nothing, end };
    Took take(Descriptor& from, int number, std::size_t most) {
        const auto got = ::read(from.native_handle(), piece_.data(), std::min(most, piece_.size()));
        if (got < 0) return errno == EAGAIN || errno == EINTR ? Took::nothing : Took::end;
        if (got == 0) return Took::end;
        const std::string_view piece(piece_.data(), static_cast<std::size_t>(got));
        auto& kept = number == 1 ? result.output : result.errors;
        const auto room = spec.max_output - std::min(spec.max_output, kept.size());
        kept.append(piece.substr(0, room));
        if (piece.size() > room) result.truncated = true;
        if (spec.on_output) spec.on_output(number, piece);
        return Took::some;
    }

    void write_input() {
        const auto written = write_to_pipe(in.native_handle(), spec.input.data() + sent_, spec.input.size() - sent_);
        if (written > 0) sent_ += static_cast<std::size_t>(written);
        const bool full = written >= 0 || errno == EAGAIN || errno == EINTR;
        if (sent_ == spec.input.size() || !full) { // a child that does not read it all is its own business
            ErrorCode ignored;
            in.close(ignored);
            return;
        }
        in.async_wait(Descriptor::wait_write, [self = shared_from_this()](const ErrorCode& error) {
            if (!error && !self->exited) self->write_input();
        });
    }

    void wait_for_exit() {
        auto check_exit = [self = shared_from_this()](const ErrorCode& error) {
            if (error || self->exited) return;
            self->reap();
            if (!self->exited) self->wait_for_exit();
        };
        if (exit.is_open()) {
            exit.async_wait(Descriptor::wait_read, std::move(check_exit));
        } else { // no descriptor for it to be had: out of them, or an old kernel
            pause.expires_after(10ms);
            pause.async_wait(std::move(check_exit));
        }
    }

    void reap() {
        int status = 0;
        pid_t ended = 0;
        do ended = ::waitpid(pid, &status, WNOHANG);
        while (ended < 0 && errno == EINTR);
        if (ended == 0) return;
        // What it wrote is in the pipes now. Who else holds them open may write on, and is not waited for.
        drain(out, 1);
        drain(errors, 2);
        exited = true;
        if (ended == pid && WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
        if (ended == pid && WIFSIGNALED(status)) result.signal = WTERMSIG(status);
        ErrorCode ignored;
        in.close(ignored);
        exit.close(ignored);
        // Who cleans up at our request may still write, and must not die of a closed pipe before its time.
        if (!ending) close_outputs();
        changed.cancel();
    }

    void drain(Descriptor& from, int number) {
        int waiting = 0;
        if (!from.is_open() || ::ioctl(from.native_handle(), FIONREAD, &waiting) != 0) return;
        for (auto left = static_cast<std::size_t>(std::max(waiting, 0)); left > 0;) {
            const auto most = std::min(left, piece_.size());
            if (take(from, number, most) != Took::some) return;
            left -= most;
        }
    }

    std::size_t sent_ = 0;
    // Of the thread: a piece lives only while it is handed on.
    static thread_local std::array<char, 64 * 1024> piece_;
};

thread_local std::array<char, 64 * 1024> Child::piece_;

/// SIGTERM, time to clean up, SIGKILL; returns when the child is reaped and nothing of its group is left.
asio::awaitable<void> end_group(std::shared_ptr<Child> child) {
    const auto executor = co_await asio::this_coro::executor;
    asio::steady_timer poll(executor);
    // A second cancellation of the caller must not interrupt the end of the group.
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    child->ending = true;
    child->signal_group(SIGTERM);
    const auto give_up = std::chrono::steady_clock::now() + child->spec.term_grace;
    bool killed = false;
    auto wait = 5ms;
    while (!child->exited || !child->group_ended()) {
        if (!killed && std::chrono::steady_clock::now() >= give_up) {
            child->signal_group(SIGKILL);
            killed = true;
        }
        if (killed && child->exited) break;
        poll.expires_after(wait);
        wait = std::min(wait * 2, 100ms);
        co_await poll.async_wait(asio::as_tuple(asio::use_awaitable));
    }
    child->close_outputs();
    co_await asio::this_coro::throw_if_cancelled(throws);
}

} // namespace

Result<std::optional<ProcessUser>> account_named(const std::string& name) {
    std::vector<char> buffer(16 << 10);
    passwd entry{};
    passwd* found = nullptr;
    if (::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
        return Error{Code::invalid, fmt::format("there is no account {}", name)};
    if (entry.pw_uid == 0) return Error{Code::invalid, fmt::format("{} is root, and programs of checks never run as root", name)};
    if (entry.pw_uid == ::geteuid()) return std::optional<ProcessUser>{};
    if (!has_capability(CAP_SETUID) || !has_capability(CAP_SETGID) || !has_capability(CAP_KILL))
        return Error{Code::denied, fmt::format("this process may not start programs as {}", name)};
    return std::optional(ProcessUser{entry.pw_uid, entry.pw_gid});
}

Task<ProcessResult> run_process(Context ctx, ProcessSpec spec) {
    CO_TRY(const auto program, find_program(spec));
    for (const auto& argument : spec.argv)
        if (argument.find('\0') != std::string::npos)
            co_return Error{Code::invalid, fmt::format("an argument of {} has a NUL in it", program)};
    if (std::error_code ignored; !spec.folder.empty() && !std::filesystem::is_directory(spec.folder, ignored))
        co_return Error{Code::not_found,
                        fmt::format("cannot run {} in {}: there is no such folder", program, spec.folder.string())};

    Pipe in_pipe;
    if (!spec.input.empty()) {
        CO_TRY(in_pipe, make_pipe(Direction::to_child));
    }
    CO_TRY(auto out_pipe, make_pipe(Direction::from_child));
    CO_TRY(auto error_pipe, make_pipe(Direction::from_child));
    Ends its{std::move(in_pipe.its), std::move(out_pipe.its), std::move(error_pipe.its)};
    CO_TRY(const auto started, give_up_privileges(spec, program));
    CO_TRY(const auto pid, spawn_program(spec, started, its));
    its = {};

    auto child = std::make_shared<Child>(co_await asio::this_coro::executor, std::move(spec));
    child->start(pid, in_pipe, out_pipe, error_pipe);
    child->changed.expires_at(ctx.deadline().value_or(SteadyTime::max()));
    while (!child->exited) {
        auto [error] = co_await child->changed.async_wait(asio::as_tuple(asio::use_awaitable));
        if (child->exited) break;
        const bool cancelled = static_cast<bool>(error);
        // Ending the group is not cut short: the caller would leave a process behind.
        if (cancelled) co_await asio::this_coro::reset_cancellation_state();
        co_await end_group(child);
        if (cancelled) co_return Error{Code::cancelled, fmt::format("{} was ended because the caller was cancelled", program)};
        co_return Error{Code::timeout, fmt::format("{} was ended because it was not done in time", program)};
    }
    co_return std::move(child->result);
}

} // namespace orrery::net
