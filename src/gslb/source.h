#pragma once

#include "core/task.h"
#include "health/source.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <memory>
#include <string>
#include <vector>

/// Systems outside that know how members are, and what they tell.
namespace orrery::gslb {

namespace json = boost::json;

/// A system that knows the health of many things: an Octavia, a Prometheus.
resource::Kind source_kind();
/// What somebody outside said of a member, for a Monitor of kind push. Written by the server only.
resource::Kind report_kind();

/// Port: who can be asked. Implemented where drivers are known.
class Sources {
public:
    virtual ~Sources() = default;
    /// What answers a look of kind octavia or prometheus; the same for looks that one call can answer. Whether the Source exists
    /// and can be asked shows when it is: until then it is evidence of nothing.
    virtual std::shared_ptr<health::SourceReader> reader(const json::object& look) = 0;
};

/// What was said of a member for one Monitor.
struct Said {
    health::Outcome outcome = health::Outcome::local_error;
    std::string text;
    Duration ttl{};
};
/// The body of `PUT /v1/members/NAME/health/MONITOR`: {"state": "up|degraded|down", "text", "ttl"}. `invalid` names the field.
Result<Said> read_said(const json::value& body, Duration otherwise);
/// Under which a Report is kept.
std::string report_name(std::string_view member, std::string_view monitor);
/// Under which the board has it.
std::string board_key(std::string_view member, std::string_view monitor);
json::object report_spec(std::string_view member, std::string_view monitor, const Said& said, WallTime now);

/// Keeps a board as the Reports in the store say, and while this server leads removes those of members and monitors that are no
/// more. Their time runs from when they were seen here: a set clock ends none. Loop thread only.
class Reports {
public:
    /// All must outlive this.
    Reports(resource::Resources& resources, store::Leadership& leadership, Clock& clock, health::PushBoard& board);
    ~Reports();
    /// Works until it is cancelled.
    asio::awaitable<void> run(Context ctx);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
