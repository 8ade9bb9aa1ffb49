#pragma once

#include "core/task.h"
#include "health/engine/engine.h"
#include "health/health_state_machine.h"
#include "health/probes/probe.h"
#include "health/schedule.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace orrery::health {

/// A probe with its intervals and thresholds.
struct ProbeSchedule {
    ProbePtr probe;
    Duration interval = std::chrono::seconds(10);
    Duration timeout = std::chrono::seconds(5); ///< of a whole probe; limited to the interval
    Thresholds thresholds;
    HealthState remembered = HealthState::unknown; ///< the state before a restart: kept, as stale, until there is evidence
    Duration fast_interval{};                      ///< while results point to a change; 0: the interval
    Duration down_interval{};                      ///< after `down_after` in state down; 0: the interval
    Duration down_after = std::chrono::minutes(10);
};

/// Probes many targets on schedule and keeps the health state of each. Every target has a phase within its interval that survives
/// restarts, plus a little jitter. Identical probes of several checks are made once, and a target is never probed twice at the same
/// time. A probe that finds a concurrency limit reached waits for up to half an interval; if it still cannot start, or if the
/// previous probe of the target still runs, it is skipped and counted. Probes with a program run on the engine's threads, the
/// others as coroutines on the loop. Loop thread only.
class Prober {
public:
    struct Options {
        std::size_t at_once = 512;              ///< concurrent probes that are coroutines
        std::size_t connections_at_once = 4096; ///< concurrent probes of the engine
        std::size_t at_once_per_host = 64;
        int jitter_percent = 5;
        std::shared_ptr<Engine> engine; ///< null: the prober makes one with one thread when it is first needed
    };
    /// Called after each probe of a check. `changed`: the state changed.
    using OnResult =
        std::function<void(const std::string& key, const HealthStateMachine& verdict, const Observation& seen, bool changed)>;

    Prober(asio::any_io_executor executor, Clock& clock, Options options, OnResult on_result);
    ~Prober();

    /// Adds or changes a check. A check with an unchanged probe keeps its health state. The first probe is due within the first
    /// interval; without a remembered state within one second.
    void set(const std::string& key, ProbeSchedule schedule);
    void remove(std::string_view key);
    void clear();
    /// Null if there is no such check.
    const HealthStateMachine* verdict(std::string_view key) const;
    /// The shortest time in which probes could change the state (an input of TTLs); zero if there is no such check.
    Duration until_change(std::string_view key) const;

    /// Runs until cancelled.
    asio::awaitable<void> run(Context ctx);

    struct Counts {
        std::size_t checks = 0, targets = 0, running = 0;
        std::uint64_t probes = 0, skipped = 0, local_errors = 0;
    };
    Counts counts() const;
    /// Null until a probe with a program was added.
    const Engine* engine() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::health
