#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "health/observation.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace orrery::health {

/// Port: an external health source, which returns the health of many targets in one call (a regional load balancer's API, a metrics
/// server). Drivers implement it; app connects the two.
class StatusSource {
public:
    virtual ~StatusSource() = default;
    struct Reading {
        Outcome outcome = Outcome::local_error; ///< local_error: the source knows the target, but not its health
        std::string text;
        std::optional<double> share; ///< the healthy share of the target, 0 to 1; for weights
        bool drains = false;
        std::vector<std::string> addresses; ///< of the target, if the source knows them
    };
    /// Identifies the source: two sources with one name are the same.
    virtual std::string name() const = 0;
    /// Returns the readings of the ids that the source knows. An error means that the source is unavailable: no evidence for any
    /// id.
    virtual Task<std::map<std::string, Reading>> read(Context ctx, std::vector<std::string> ids) = 0;
};

/// Batches and caches calls to a source. Requests that arrive together share one call, and a reading that is at most `fresh` old is
/// used without a call. A call may take `timeout`, even if its requests have shorter deadlines: a slow source is not called again
/// meanwhile, and the next request uses the late result. Loop thread only.
class SourceReader {
public:
    SourceReader(asio::any_io_executor executor, std::shared_ptr<StatusSource> source, Clock& clock,
                 Duration fresh = std::chrono::seconds(1), Duration timeout = std::chrono::seconds(10));
    ~SourceReader();
    asio::awaitable<Observation> observe(Context ctx, std::string id);
    /// The last reading of an id, however old; nullopt if there was none.
    std::optional<StatusSource::Reading> last(const std::string& id) const;
    /// Why the last call for an id failed; empty if it succeeded or none was made.
    std::string error(const std::string& id) const;
    const StatusSource& source() const;
    /// Cancels the call that is under way.
    asio::awaitable<void> stop();

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::health
