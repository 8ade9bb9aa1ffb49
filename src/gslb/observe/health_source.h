#pragma once

#include "core/task.h"
#include "health/sources/pushed_statuses.h"
#include "health/sources/status_source.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <memory>
#include <string>
#include <vector>

/// External health sources (kind Source) and pushed statuses (kind Report).
namespace orrery::gslb {

namespace json = boost::json;

/// A system that knows the health of many targets: an Octavia, a Prometheus.
resource::Kind source_kind();
/// A status that a client pushed for a member and a Monitor of kind push. Only the server writes it.
resource::Kind report_kind();

/// Port: queries external health sources. Implemented in app, which knows the drivers.
class Sources {
public:
    virtual ~Sources() = default;
    /// The reader for a check of kind octavia or prometheus; checks that one query can answer share it. A Source that does not
    /// exist or cannot be queried yields no evidence.
    virtual std::shared_ptr<health::SourceReader> reader(const json::object& check) = 0;
};

/// A status that a client pushed for one member and Monitor.
struct PushedStatus {
    health::Outcome outcome = health::Outcome::local_error;
    std::string message;
    Duration ttl{};
};
/// The body of `PUT /v1/members/NAME/health/MONITOR`: {"state": "up|degraded|down", "message", "ttl"}. `invalid` names
/// the field. `default_ttl`: for a body without a TTL.
Result<PushedStatus> parse_pushed_status(const json::value& body, Duration default_ttl);
/// The name of the Report.
std::string report_name(std::string_view member, std::string_view monitor);
/// Its key among the pushed statuses.
std::string pushed_status_key(std::string_view member, std::string_view monitor);
json::object report_spec(std::string_view member, std::string_view monitor, const PushedStatus& pushed, WallTime now);

/// Copies Reports from the store to the pushed statuses in memory. The leader removes Reports of removed members and monitors. A
/// TTL counts from the time at which this server received the Report: a step of the clock expires none. Loop thread only.
class Reports {
public:
    /// All must outlive this.
    Reports(resource::Resources& resources, store::Leadership& leadership, Clock& clock, health::PushedStatuses& board);
    ~Reports();
    /// Runs until it is cancelled.
    asio::awaitable<void> run(Context ctx);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
