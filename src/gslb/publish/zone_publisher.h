#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "gslb/publish/dns_provider.h"
#include "gslb/publish/publication_plan.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::gslb {

enum class PublishState {
    pending, ///< not written yet, or not yet answered by every name server
    in_sync, ///< the name servers answer as decided
    drift,   ///< others changed the records, and the change was left in place
    error,   ///< publication failed, or the service does not serve the records; the last answer stays
};
std::string_view name_of(PublishState state); ///< "PENDING", "IN_SYNC", "DRIFT", "ERROR"

/// What a name is to answer at this publication target.
struct Desired {
    RecordSets sets;             ///< from `record_set`; the zone publisher adds the owner marks
    bool empty_is_meant = false; ///< the policy is nodata: only then is an empty list of sets published
    std::uint64_t decision = 0;  ///< the number of the decision, for people
    std::string reason;          ///< one line: "member m2 is down"
};

/// The state of one name at one publication target.
struct PublishStatus {
    std::string name;
    PublishState state = PublishState::pending;
    std::string message; ///< empty while in sync
    std::uint64_t decision = 0;
    RecordSets desired, observed;   ///< observed: at the last read
    WallTime decided_at{}, since{}; ///< since: when the state began
    std::optional<WallTime> observed_at;
    /// From the decision until every name server gave the answer (without name servers: until the service confirmed it).
    std::optional<Duration> time_to_publish;
    bool withheld = false;  ///< the newest decision must not be published
    std::string last_error; ///< of the last attempt, if it failed
    struct Server {
        std::string server;
        bool agrees = false, answered = false;
        std::string text; ///< its answer, or why there was none
    };
    std::vector<Server> servers;
    bool removed = false; ///< withdrawn: this is the last status of the name
};

/// The publication loop of one zone at one DNS provider. Takes the newest decision for each name, reads the current RRsets, writes
/// only differences (in one call), queries the name servers, and reports the status of each name. Changes by others are reported
/// and left unless the policy allows a repair. An empty answer is written only if the decision says so. While the service is
/// unavailable, the newest decision waits and the last answer stays. Level-driven: can be stopped at any instant and started again.
/// Loop thread only.
///
///     ZonePublisher publisher(clock, provider, &servers, {.zone = "gslb.example.", .ownership_policy = {.owner = "site-1"}});
///     group.spawn(publisher.run(Context::make("gslb-publisher")));
///     publisher.desire("www.gslb.example.", {.sets = {*record_set(RecordType::a, 30, {"192.0.2.1"})}, .reason = "first"});
class ZonePublisher {
public:
    struct Options {
        std::string zone; ///< with the last dot
        OwnershipPolicy ownership_policy;
        std::vector<std::string> servers;                         ///< queried after each write and each read; may be empty
        Duration gather = std::chrono::milliseconds(20);          ///< decisions within this time are published together
        Duration poll_interval = std::chrono::minutes(1);         ///< between reads without a decision
        Duration call_timeout = std::chrono::seconds(10);         ///< of one call of the provider
        Duration ask_timeout = std::chrono::seconds(3);           ///< of one batch of queries to one name server
        Duration propagation_timeout = std::chrono::seconds(120); ///< from a write until all name servers must answer accordingly
        Duration first_backoff = std::chrono::seconds(1);         ///< after a failure; doubled with each further one
        Duration max_backoff = std::chrono::seconds(30);
        Duration refused_backoff = std::chrono::minutes(5); ///< for a name whose change the service refuses
    };
    /// Called on the loop thread when a status changes. May call `desire` and `withdraw`.
    using OnChange = std::function<void(const PublishStatus& status)>;

    ZonePublisher(Clock& clock, DnsProvider& provider, NameServers* servers, Options options, OnChange on_change = {});
    ~ZonePublisher();
    ZonePublisher(const ZonePublisher&) = delete;
    ZonePublisher& operator=(const ZonePublisher&) = delete;

    /// Sets the newest decision for a name. An earlier one that is not published yet is dropped.
    void desire(const std::string& name, Desired desired);
    /// Removes our records at the name and keeps those of others. The last status has `removed`.
    void withdraw(const std::string& name);
    /// Overwrites changes by others at this name, once.
    void repair(const std::string& name);

    /// Null if the name is not published here.
    const PublishStatus* status(std::string_view name) const;
    std::vector<const PublishStatus*> statuses() const; ///< by name

    struct Counts {
        std::uint64_t reads = 0, publishes = 0, changes = 0, failures = 0, questions = 0;
        std::size_t names = 0, waiting = 0; ///< waiting: with a decision that is not written
    };
    Counts counts() const;

    /// Runs until it is cancelled.
    asio::awaitable<void> run(Context ctx);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
