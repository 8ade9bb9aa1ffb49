#pragma once

#include "core/task.h"
#include "gslb/engine.h"
#include "gslb/places.h"
#include "gslb/ports.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::gslb {

/// Makes names answer as their load balancers say. Follows the kinds and what is known of members; what changes within a few
/// milliseconds is decided together; new answers go to the sink at once, and then, while this server leads, into the status of what
/// they concern and into Decision records, in groups. It can be ended at any instant: memory is in the status, and the first
/// decision after a restart changes nothing that did not change. Loop thread only.
class Controller {
public:
    struct Options {
        std::string server; ///< as it is called where leaders are elected
        Duration gather = std::chrono::milliseconds(5);
        Duration records_kept = std::chrono::hours(24 * 90);
        std::size_t most_records = 200'000;
    };
    /// `sink` and `places` may be null. All others must outlive this.
    Controller(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership, Clock& clock,
               Watcher& watcher, NameSink* sink, Options options, Places* places = nullptr);
    ~Controller();

    /// Works until it is cancelled.
    asio::awaitable<void> run(Context ctx);
    /// Decides and serves all that is known already, at once: before a door is opened at which names are asked for.
    void decide_now();

    const Engine& engine() const;
    /// How long after a member of this pool was taken out resolvers may still give it to clients.
    Duration kept_by_resolvers(std::string_view pool) const;
    /// Load that was measured elsewhere. `not_found` where there is no such member.
    Result<Unit> report_load(const std::string& member, double load);

    /// Why a name answers as it does, now or at an earlier time, and what a client gets: {"name", "at", "decision", ...}.
    Result<json::object> why(std::string_view name, const std::optional<boost::asio::ip::address>& client,
                             std::optional<WallTime> at) const;

    /// Records that wait to be written.
    std::size_t waiting() const;
    std::vector<std::pair<std::string, double>> gauges() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
