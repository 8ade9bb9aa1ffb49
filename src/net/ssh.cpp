#include "net/ssh.h"

#include "core/component.h"
#include "core/log.h"
#include "net/cross_loop_call.h"
#include "net/ssh_connection.h"

#include <boost/asio/io_context.hpp>
#include <fmt/format.h>

#include <libssh/callbacks.h>
#include <map>
#include <mutex>
#include <thread>

namespace orrery::net {

using namespace std::chrono_literals;

std::string SshTarget::text() const {
    const bool v6 = host.find(':') != std::string::npos;
    auto out = v6 && port != 22 ? fmt::format("{}@[{}]", user, host) : fmt::format("{}@{}", user, host);
    if (port != 22) out += fmt::format(":{}", port);
    return out;
}

namespace {

/// The identity of a connection. The text of the key is in memory only.
std::string identity_of(const SshTarget& target) {
    auto out = fmt::format("{}\n{}\n{}\n{}", target.text(), target.port, target.host_key, target.private_key);
    if (target.jump) out += "\nvia " + identity_of(*target.jump);
    return out;
}

void start_library() {
    static std::once_flag once;
    std::call_once(once, [] {
        ssh_threads_set_callbacks(ssh_threads_get_default());
        ssh_init();
        ssh_set_log_level(SSH_LOG_NOLOG);
    });
}

} // namespace

struct Ssh::State {
    State(asio::any_io_executor home_, SshOptions options)
        : home(std::move(home_)),
          loop(1),
          guard(loop.get_executor()),
          tasks(loop.get_executor(), Component::of(home)),
          runtime{loop.get_executor(), home, options, tasks},
          logins_free(loop.get_executor()),
          all_left(loop.get_executor()),
          thread([this] { loop.run(); }) {}

    /// A connection, or an attempt to open one, for which later callers wait.
    struct Line {
        explicit Line(const asio::any_io_executor& executor) : opened(executor) {}
        std::shared_ptr<SshConnection> connection;
        bool opening = false;
        Notifier opened;
        std::optional<Error> failed;
        std::size_t waiting = 0;
    };

    std::shared_ptr<Line> line_to(const std::string& identity);
    Task<std::shared_ptr<SshConnection>> connection(Context ctx, SshTarget target);
    asio::awaitable<void> open(Context ctx, SshTarget target, std::string identity, std::shared_ptr<Line> line);
    Task<std::shared_ptr<SshConnection>> open_bounded(Context ctx, SshTarget target);
    Task<std::shared_ptr<SshConnection>> jump_of(Context ctx, const SshTarget& target);
    Task<SshResult> run(Context ctx, SshTarget target, SshCommand command);
    Task<std::string> fetch_host_key(Context ctx, SshTarget target);
    Task<Unit> end();
    void note_reach(const std::string& target, const Error* error);

    asio::any_io_executor home;
    std::map<std::string, SshReach> reaches; ///< by the target's text; home loop only
    asio::io_context loop;
    asio::executor_work_guard<asio::io_context::executor_type> guard;
    TaskGroup tasks; ///< failures are those of the component that `home` belongs to
    SshRuntime runtime;
    std::map<std::string, std::shared_ptr<Line>> lines;
    std::map<std::string, std::string> first_keys; // host keys that were trusted on first use, until the caller pins them
    std::size_t logins = 0;
    Notifier logins_free;
    std::size_t callers = 0; // whose work is on the thread
    Notifier all_left;
    bool stopping = false;

    /// A caller's stay on the thread.
    struct Visit {
        explicit Visit(State& state_) : state(state_) { ++state.callers; }
        ~Visit() {
            if (--state.callers == 0) state.all_left.notify_all();
        }
        Visit(const Visit&) = delete;
        Visit& operator=(const Visit&) = delete;
        State& state;
    };
    std::thread thread;
};

Ssh::Ssh(asio::any_io_executor home, SshOptions options) {
    start_library();
    state_ = std::make_shared<State>(std::move(home), options);
}

Ssh::~Ssh() {
    state_->guard.reset();
    state_->loop.stop();
    if (state_->thread.joinable()) state_->thread.join();
    state_->lines.clear();
}

Task<std::shared_ptr<SshConnection>> Ssh::State::jump_of(Context ctx, const SshTarget& target) {
    if (!target.jump) co_return nullptr;
    auto found = co_await connection(ctx, *target.jump);
    if (!found.ok()) co_return std::move(found).error().within(fmt::format("on the way to {}", target.text()));
    co_return std::move(found);
}

Task<std::shared_ptr<SshConnection>> Ssh::State::open_bounded(Context ctx, SshTarget target) {
    CO_TRY(auto jump, co_await jump_of(ctx, target));
    while (logins >= runtime.options.max_logins) {
        CO_TRY(std::ignore, co_await logins_free.wait(ctx));
    }
    ++logins;
    // Each try has its time; a host that turns us away early is tried some times more.
    auto opened = co_await SshConnection::open(ctx.with_timeout(runtime.options.login_timeout * 2), runtime, std::move(target),
                                               std::move(jump));
    --logins;
    logins_free.notify_all();
    co_return std::move(opened);
}

asio::awaitable<void> Ssh::State::open(Context ctx, SshTarget target, std::string identity, std::shared_ptr<Line> line) {
    co_await asio::this_coro::throw_if_cancelled(false);
    // For all waiting callers, so it does not use the deadline of the first one.
    auto opened = co_await open_bounded(ctx.without_deadline().with_timeout(runtime.options.login_timeout * 3), std::move(target));
    line->opening = false;
    if (opened.ok()) {
        line->connection = std::move(*opened);
    } else {
        line->failed = opened.error();
        if (const auto at = lines.find(identity); at != lines.end() && at->second == line) lines.erase(at);
    }
    line->opened.notify_all();
}

std::shared_ptr<Ssh::State::Line> Ssh::State::line_to(const std::string& identity) {
    if (const auto found = lines.find(identity); found != lines.end()) return found->second;
    // A new host: also remove hosts without connection and waiting callers.
    std::erase_if(lines, [](const auto& item) {
        const auto& line = *item.second;
        return !line.opening && line.waiting == 0 && (!line.connection || !line.connection->alive());
    });
    return lines.emplace(identity, std::make_shared<Line>(runtime.executor)).first->second;
}

Task<std::shared_ptr<SshConnection>> Ssh::State::connection(Context ctx, SshTarget target) {
    const auto identity = identity_of(target);
    for (int tried = 0; tried < 3; ++tried) {
        if (stopping) co_return Error{Code::cancelled, "SSH is being stopped"};
        const auto line = line_to(identity);
        if (line->connection && line->connection->alive()) co_return line->connection;
        if (!line->opening) {
            line->connection.reset();
            line->opening = true;
            if (target.host_key.empty() && target.on_first_key) {
                if (const auto known = first_keys.find(identity); known != first_keys.end()) {
                    target.host_key = known->second;
                } else {
                    target.on_first_key = [this, identity, asked = target.on_first_key](Context asking,
                                                                                        std::string key) -> Task<Unit> {
                        return [](State& self, std::string who, std::function<Task<Unit>(Context, std::string)> ask, Context its,
                                  std::string shown) -> Task<Unit> {
                            CO_TRY(std::ignore, co_await ask(its, shown));
                            asio::post(self.loop, [&self, who, shown] { self.first_keys[who] = shown; });
                            co_return Unit{};
                        }(*this, identity, asked, asking, std::move(key));
                    };
                }
            }
            tasks.spawn(open(ctx, target, identity, line));
        }
        if (line->waiting >= runtime.options.max_waiting)
            co_return Error{Code::throttled,
                            fmt::format("{} commands wait for a connection to {} already", line->waiting, target.text())};
        ++line->waiting;
        Result<Unit> waited = Unit{};
        while (line->opening && waited.ok()) waited = co_await line->opened.wait(ctx);
        --line->waiting;
        if (!waited.ok() && waited.error().code == Code::timeout)
            co_return Error{Code::timeout, fmt::format("no connection to {} in time", target.text())};
        if (!waited.ok()) co_return waited.error();
        if (line->failed) co_return *line->failed;
        if (line->connection && line->connection->alive()) co_return line->connection;
    }
    co_return Error{Code::unavailable, fmt::format("the connection to {} broke as soon as it was made", target.text())};
}

Task<SshResult> Ssh::State::run(Context ctx, SshTarget target, SshCommand command) {
    const Visit visit(*this);
    CO_TRY(auto found, co_await connection(ctx, std::move(target)));
    co_return co_await found->run(ctx, std::move(command));
}

Task<std::string> Ssh::State::fetch_host_key(Context ctx, SshTarget target) {
    const Visit visit(*this);
    CO_TRY(auto jump, co_await jump_of(ctx, target));
    co_return co_await SshConnection::fetch_host_key(ctx.with_timeout(runtime.options.login_timeout), runtime, std::move(target),
                                                     std::move(jump));
}

Task<Unit> Ssh::State::end() {
    stopping = true;
    for (auto& [identity, line] : lines)
        if (line->connection) line->connection->close("SSH is being stopped");
    lines.clear();
    co_await tasks.stop();
    while (callers > 0) {
        CO_TRY(std::ignore, co_await all_left.wait(Context::background()));
    }
    co_return Unit{};
}

Task<SshResult> Ssh::run(Context ctx, SshTarget target, SshCommand command) {
    auto state = state_;
    const auto text = target.text();
    auto ran = co_await run_on(state->runtime.executor, state->run(ctx, std::move(target), std::move(command)));
    state->note_reach(text, ran.ok() ? nullptr : &ran.error());
    co_return ran;
}

std::optional<SshReach> Ssh::last_reach(const std::string& target_text) const {
    const auto found = state_->reaches.find(target_text);
    return found == state_->reaches.end() ? std::nullopt : std::optional(found->second);
}

void Ssh::State::note_reach(const std::string& target, const Error* error) {
    constexpr std::size_t max_reaches = 20'000;
    // Any other error is about the command, or about the caller.
    const bool lost =
        error != nullptr && (error->code == Code::unavailable || error->code == Code::denied || error->code == Code::timeout);
    if (error != nullptr && !lost) return;
    if (reaches.size() >= max_reaches && !reaches.contains(target)) reaches.erase(reaches.begin());
    reaches[target] = {real_clock().wall(), !lost, lost ? error->message : std::string()};
}

Task<std::string> Ssh::shown_host_key(Context ctx, SshTarget target) {
    auto state = state_;
    co_return co_await run_on(state->runtime.executor, state->fetch_host_key(ctx, std::move(target)));
}

asio::awaitable<void> Ssh::stop() {
    auto state = state_;
    if (state->thread.joinable()) {
        std::ignore = co_await run_on(state->runtime.executor, state->end());
        state->guard.reset();
        state->thread.join(); // what is left are handlers that end at once
    }
}

} // namespace orrery::net
