#pragma once

#include "core/task.h"
#include "gslb/clients/geo_databases.h"
#include "gslb/runtime/engine.h"
#include "gslb/runtime/ports.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::gslb {

/// Evaluates load balancers when their resources or the health of members change. Changes within a few milliseconds are evaluated
/// together. New answers go to the publisher at once; the leader then writes status and Decision records, in groups. Can be stopped
/// at any instant: the state is in the status, and the first decision after a restart is not a change by itself. Loop thread only.
class Controller {
public:
    struct Options {
        std::string server; ///< its name in leader election
        Duration gather = std::chrono::milliseconds(5);
        Duration records_kept = std::chrono::hours(24 * 90);
        std::size_t max_records = 200'000;
        /// How long a new leader waits for the records that followers kept while there was no leader, before it writes. Zero for a
        /// single server, or for one that never leads.
        Duration handover{};
    };
    /// `publisher` and `geo` may be null. All others must outlive this.
    Controller(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership, Clock& clock,
               Watcher& watcher, AnswerPublisher* publisher, Options options, GeoDatabases* geo = nullptr);
    ~Controller();

    /// Runs until it is cancelled.
    asio::awaitable<void> run(Context ctx);
    /// Evaluates and serves everything that is known at once: to be called before a DNS listener opens.
    void decide_now();

    const Engine& engine() const;
    /// How long resolvers may still return a member of this pool after its withdrawal.
    Duration cached_by_resolvers(std::string_view pool) const;
    /// Sets a measured load, valid for `ttl`. `not_found` for an unknown member.
    Result<Unit> report_load(const std::string& member, double load, Duration ttl);

    /// Why a load balancer answers as it does, now or at an earlier time, and what a client gets: {"loadbalancer", "at",
    /// "decision", ...}. `name`: of the load balancer, or its domain name.
    Result<json::object> why(std::string_view name, const std::optional<boost::asio::ip::address>& client,
                             std::optional<WallTime> at) const;

    /// The number of records that wait to be written.
    std::size_t waiting() const;
    std::vector<std::pair<std::string, double>> gauges() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
