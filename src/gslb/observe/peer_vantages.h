#pragma once

#include "core/task.h"
#include "health/vantages/health_aggregator.h"
#include "store/store.h"

#include <memory>
#include <string>

namespace orrery::gslb {

/// Makes servers that share a store vantages of each other. Each server has a heartbeat there, under a lease, with whether it
/// counts towards quorum, and a report for each target that it does not find healthy; targets without a report are healthy. A
/// server thus writes only problems, and the reports of a dead server expire with its lease. While this server cannot renew its own
/// lease, it ignores the reports of its peers. Loop thread only.
class PeerVantages {
public:
    struct Options {
        std::string server; ///< its name among the peers
        Duration ttl = std::chrono::seconds(6);
        Duration gather = std::chrono::milliseconds(20);
        Duration ready_after = std::chrono::seconds(60); ///< even if some targets have no result by then
    };
    /// All must outlive this.
    PeerVantages(asio::any_io_executor executor, store::Store& store, Clock& clock, health::HealthAggregator& aggregator,
                 Options options);
    ~PeerVantages();

    /// Runs until it is cancelled, then removes its heartbeat.
    asio::awaitable<void> run(Context ctx);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
