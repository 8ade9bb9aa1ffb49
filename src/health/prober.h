#pragma once

#include "core/task.h"
#include "health/engine.h"
#include "health/probe.h"
#include "health/schedule.h"
#include "health/verdict.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace orrery::health {

/// How a target is looked at, again and again.
struct Watching {
    ProbePtr probe;
    Duration interval = std::chrono::seconds(10);
    Duration timeout = std::chrono::seconds(5); ///< of a whole look; at most the interval counts
    Thresholds thresholds;
    Standing remembered = Standing::unknown; ///< what stood before a restart: kept, as stale, until there is evidence
    Duration fast{};                         ///< the interval while results point to a change; 0: as usual
    Duration slow{};                         ///< the interval once it has been down for `slow_after`; 0: as usual
    Duration slow_after = std::chrono::minutes(10);
};

/// Looks at many targets at their times and says what it amounts to. Each has a phase of its own in the interval that is the same
/// after every restart, and a little jitter; the same look wanted by several is made once; one target is never looked at twice at
/// once. A look that finds all places taken, or its host's, waits for up to half an interval; one that cannot be begun by then, or
/// whose predecessor still runs, is left out and counted. Probes that have a plan are looked at by the engine, on its own threads;
/// the others are coroutines here. Loop thread only.
class Prober {
public:
    struct Options {
        std::size_t at_once = 512;              ///< looks that are coroutines
        std::size_t connections_at_once = 4096; ///< looks of the engine
        std::size_t at_once_per_host = 64;
        int jitter_percent = 5;
        std::shared_ptr<Engine> engine; ///< null: one of its own, with one thread, made when it is first needed
    };
    /// Called after each look at `key`. `changed`: the standing is another now.
    using OnResult = std::function<void(const std::string& key, const Verdict& verdict, const Observation& seen, bool changed)>;

    Prober(asio::any_io_executor executor, Clock& clock, Options options, OnResult on_result);
    ~Prober();

    /// Begins to look, or goes on in another way: an unchanged probe keeps its verdict. The first look comes within the first
    /// interval, or a second where nothing is known yet.
    void set(const std::string& key, Watching watching);
    void remove(std::string_view key);
    void clear();
    /// Null where it is not looked at.
    const Verdict* verdict(std::string_view key) const;
    /// The soonest that the verdict could change by looks alone (reference for TTLs); nothing where it is not looked at.
    Duration until_change(std::string_view key) const;

    /// Works until it is cancelled.
    asio::awaitable<void> run(Context ctx);

    struct Counts {
        std::size_t watched = 0, targets = 0, looking = 0;
        std::uint64_t looks = 0, late = 0, local_errors = 0;
    };
    Counts counts() const;
    /// Null until something was looked at by it.
    const Engine* engine() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::health
