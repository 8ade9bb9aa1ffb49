#pragma once

#include "core/task.h"
#include "core/text.h"
#include "health/probe.h"
#include "health/verdict.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace orrery::health {

// --- Systems that know ----------------------------------------------------------------------------------------------

/// Port: a system that knows the health of many things and tells of all of them in one call (regional load balancers, a metrics
/// server, a cluster). Implemented in drivers; app joins the two.
class StatusSource {
public:
    virtual ~StatusSource() = default;
    struct Reading {
        Outcome outcome = Outcome::local_error; ///< local_error: it is known there, and its health is not
        std::string text;
        std::optional<double> share; ///< how much of it is well, 0 to 1: for weights
        bool drains = false;
        std::vector<std::string> addresses; ///< where it is found, where the source tells
    };
    /// What the source is called: two with one name are one.
    virtual std::string name() const = 0;
    /// The readings of those ids that it knows. An error means that it could not be asked: evidence of nothing, of none of them.
    virtual Task<std::map<std::string, Reading>> read(Context ctx, std::vector<std::string> ids) = 0;
};

/// Asks a source for many: looks that come within a moment of each other share one call, and so do those that find an answer not
/// older than `fresh`. A call lasts as long as `patience` even where those who look wait for less: one who is slow is not asked
/// again meanwhile, and what came between two looks is for the next. Loop thread only.
class SourceReader {
public:
    SourceReader(asio::any_io_executor executor, std::shared_ptr<StatusSource> source, Clock& clock,
                 Duration fresh = std::chrono::seconds(1), Duration patience = std::chrono::seconds(10));
    ~SourceReader();
    asio::awaitable<Observation> look(Context ctx, std::string id);
    /// The last reading of that id, however old; nothing where there was none.
    std::optional<StatusSource::Reading> last(const std::string& id) const;
    /// Why the last call for that id had no answer; empty where it had one, or none was made.
    std::string trouble(const std::string& id) const;
    const StatusSource& source() const;
    /// Ends the call that is under way.
    asio::awaitable<void> stop();

private:
    struct State;
    std::shared_ptr<State> state_;
};

/// Port: makes looks at what others know (look_spec.h: octavia, prometheus, push), which ask no address. Implemented by whoever
/// knows the sources.
class InformedLooks {
public:
    virtual ~InformedLooks() = default;
    virtual Result<ProbePtr> probe(const json::object& look, const std::string& address, std::uint16_t port) = 0;
};

// --- Systems that tell ----------------------------------------------------------------------------------------------

/// What others say of things they look at themselves. Their word is good for as long as they said. Loop thread only.
class PushBoard {
public:
    explicit PushBoard(Clock& clock) : clock_(clock) {}
    void told(const std::string& key, Outcome outcome, std::string text, Duration ttl);
    void forget(const std::string& key) { said_.erase(key); }
    /// What stands there now: nothing was ever said: no evidence; the word has run out: bad.
    Observation standing_now(const std::string& key) const;

private:
    struct Said {
        Outcome outcome = Outcome::local_error;
        std::string text;
        SteadyTime at{};
        Duration ttl{};
    };
    Clock& clock_;
    std::map<std::string, Said> said_;
};
/// The board must outlive the probe.
ProbePtr push_probe(const PushBoard& board, std::string key);

// --- What follows from others ---------------------------------------------------------------------------------------

/// A health that is made of others.
struct Formula {
    enum class Kind { at_least, all, any, none };
    Kind kind = Kind::all;
    std::size_t count = 1; ///< of `at_least`
};
/// Good, bad, or, where it hangs on one that nobody knows, evidence of nothing. Degraded ones count as up, and make it a warning
/// where it would not be good without them. Pure.
Observation calculate(const Formula& formula, std::span<const Standing> parts);

} // namespace orrery::health
