#pragma once

#include "core/task.h"
#include "gslb/publish/owner_mark.h"
#include "gslb/publish/record_set.h"

#include <span>
#include <string>
#include <vector>

/// The ports to external DNS services. A driver implements one `DnsProvider` for each service.
namespace orrery::gslb {

/// The current RRsets at a name.
struct ProviderRecords {
    std::string name;
    RecordSets sets;
    bool propagated = true; ///< false: the service stored them but does not serve them everywhere yet
    std::string error;      ///< the service's own message if it cannot serve them
};

/// A change of the RRsets at one name.
struct Change {
    std::string name;
    RecordSets before; ///< as read a moment ago; the change applies only if these are still current
    RecordSets after;  ///< with owner marks
    /// All RRsets at the name are to be removed. Without it an empty `after` is refused: an answer lost by mistake is an outage.
    bool empties = false;
    std::string reason; ///< one line for people, for services with comments
};

/// The result of a change.
struct Accepted {
    bool propagated = true; ///< false: stored, and served later
};

/// Port: a DNS service to which answers are published. Loop thread only. Calls end at the context's deadline. Errors, of a call or
/// of one change, are classified by the next step:
///   conflict                       `before` is not current: another writer was faster. Nothing was written for that name
///   invalid, too_large             the service refuses the change as it is; retry only after a new decision
///   not_found                      the zone does not exist
///   unauthenticated, denied        the credentials are invalid, or lack permission
///   unavailable, timeout, throttled  the change may or may not have been made; read again, then retry
class DnsProvider {
public:
    virtual ~DnsProvider() = default;
    /// For people: "PowerDNS at http://127.0.0.1:8081". Without secrets.
    virtual std::string description() const = 0;
    /// The current RRsets at these names of the zone, one result for each name in order; an unused name has no sets.
    virtual Task<std::vector<ProviderRecords>> read(Context ctx, std::string zone, std::vector<std::string> names) = 0;
    /// Makes all changes, in as few requests as the service allows. One result for each change, in order.
    virtual Task<std::vector<Result<Accepted>>> publish(Context ctx, std::string zone, std::vector<Change> changes) = 0;
    /// The sets as the service would store them (minimum TTL, spelling), for comparison with the current ones.
    virtual Task<std::vector<ProviderRecords>> normalised(Context, std::string /*zone*/, std::vector<ProviderRecords> wanted) {
        co_return wanted;
    }
    /// The maximum number of changes in one call of `publish`, and of names in one call of `read`.
    virtual std::size_t max_batch() const { return 1000; }
};

/// The response of a name server for a name.
struct Answered {
    RecordSets sets; ///< addresses or an alias; empty: a negative response
    bool authoritative = false;
};

/// Port: queries name servers.
class NameServers {
public:
    virtual ~NameServers() = default;
    /// What `server` ("192.0.2.53", "[2001:db8::53]:5353") answers, one result for each name in order; `unavailable` or `timeout`
    /// without a valid response.
    virtual Task<std::vector<Result<Answered>>> ask(Context ctx, std::string server, std::vector<std::string> names) = 0;
};

/// For drivers: `invalid` for a change that removes all RRsets without `empties`.
Result<Unit> guard_against_emptying(const Change& change);

} // namespace orrery::gslb
