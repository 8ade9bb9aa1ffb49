#pragma once

#include "core/clock.h"
#include "core/component.h"
#include "core/task.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery {

/// Runs the components of a process and isolates their failures from each other. A failed component is stopped (all of its tasks
/// are cancelled and awaited) and restarted with a growing delay; after too many failures in a row it stays down. Each failure
/// raises an alarm. Loop thread only.
class Supervisor {
public:
    enum class Policy {
        restart,  ///< stop it and restart it with a growing delay
        carry_on, ///< raise the alarm only: its tasks are independent of each other
        terminal  ///< the process cannot run without it; the receiver of the alarm shuts the process down
    };
    enum class State { running, restarting, failed };
    struct Status {
        std::string component;
        State state = State::running;
        int failures = 0;        ///< in a row
        std::uint64_t total = 0; ///< since the process started
        std::string message;     ///< of the last failure; empty when it is not recent
        Duration retry_in{};     ///< in an alarm with state `restarting`: the time until the restart
        Policy policy = Policy::restart;
    };
    struct Options {
        Duration first_backoff = std::chrono::seconds(1); ///< doubles with each failure in a row
        Duration max_backoff = std::chrono::minutes(1);
        int max_failures = 5;                             ///< in a row; then it stays down
        Duration stable_after = std::chrono::minutes(10); ///< a component that ran for this long starts a new row of failures
        Clock* clock = &real_clock();
    };
    /// Called on the loop at each failure, before the component is stopped. Must not block.
    using OnAlarm = std::function<void(const Status& status)>;
    /// Spawns the tasks of a component into the group; called at each start.
    using Begin = std::function<void(TaskGroup& group)>;

    Supervisor(asio::io_context& loop, Options options, OnAlarm on_alarm);
    ~Supervisor();
    Supervisor(const Supervisor&) = delete;
    Supervisor& operator=(const Supervisor&) = delete;

    /// Declares a component and returns it. Objects of the component must be constructed with its executor.
    Component& add(std::string name, Policy policy);
    asio::any_io_executor executor(std::string_view name) const;
    /// Starts a declared component. Objects that `begin` refers to must outlive `stop`.
    void start(std::string_view name, Begin begin);
    /// Stops all components and waits until all of their tasks have ended. No alarm is raised after this.
    asio::awaitable<void> stop();

    std::vector<Status> statuses() const;
    /// `orrery_component_failed` (1 while a component is not running) and `orrery_component_failures_total`, by component.
    std::vector<std::pair<std::string, double>> gauges() const;
    /// The failed components and their messages in one line; empty while all components run.
    std::string degraded() const;

private:
    struct Entry;
    void failed(Entry& entry, const std::string& message);
    void begin(Entry& entry);
    asio::awaitable<void> recover(Entry& entry);

    asio::io_context& loop_;
    Options options_;
    OnAlarm on_alarm_;
    bool stopping_ = false;
    std::map<std::string, std::unique_ptr<Entry>, std::less<>> entries_;
    TaskGroup recoveries_;
};

std::string_view name_of(Supervisor::State state);

} // namespace orrery
