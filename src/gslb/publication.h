#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "gslb/publication_plan.h"
#include "gslb/publisher.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::gslb {

enum class PublishState {
    pending, ///< on its way: to be written, or written and not yet seen at every name server
    in_sync, ///< what was decided is what is answered
    drift,   ///< others wrote there, and it was left as it is
    error,   ///< it cannot be published, or is not served although it was; the last answer stands
};
std::string_view name_of(PublishState state); ///< "PENDING", "IN_SYNC", "DRIFT", "ERROR"

/// What a name is to answer through this path.
struct Desired {
    RecordSets sets;             ///< from `record_set`; marks are put on by the publication
    bool empty_is_meant = false; ///< the policy says nodata: only then does an empty list of sets go out
    std::uint64_t decision = 0;  ///< for people: which decision this is
    std::string reason;          ///< one line: "member m2 is down"
};

/// How one name stands on one path.
struct PublishStatus {
    std::string name;
    PublishState state = PublishState::pending;
    std::string why; ///< in words; empty where all is well
    std::uint64_t decision = 0;
    RecordSets desired, observed;   ///< observed: at the service, when last read
    WallTime decided_at{}, since{}; ///< since: of the state
    std::optional<WallTime> observed_at;
    /// From the decision until every name server gave the answer (or the service said that it has it, where none is asked).
    std::optional<Duration> time_to_publish;
    bool withheld = false;  ///< the newest decision was not published at all, by rule
    std::string last_error; ///< of the last try that failed; empty after one that did not
    struct Server {
        std::string server;
        bool agrees = false, answered = false;
        std::string text; ///< what it answers, or why there was no answer
    };
    std::vector<Server> servers;
    bool gone = false; ///< withdrawn and removed: this is the last that is heard of it
};

/// Keeps the names of one zone at one publisher as decided. Takes the newest decision for each name, reads what stands, writes only
/// what differs (all in one call), asks the name servers, and says how each name stands. What others write is shown and left unless
/// told otherwise; an empty answer is never written unless it is meant; while the service is away the newest decision waits, and
/// what stands there stands. Level driven: it can be ended at any instant and started again. Loop thread only.
///
///     Publication path(clock, publisher, &servers, {.zone = "gslb.example.", .ownerships = {.owner = "site-1"}}, on_change);
///     group.spawn(path.run(Context::make("gslb-publisher")));
///     path.desire("www.gslb.example.", {.sets = {*record_set(RecordType::a, 30, {"192.0.2.1"})}, .reason = "first"});
class Publication {
public:
    struct Options {
        std::string zone; ///< with the last dot
        Ownerships ownerships;
        std::vector<std::string> servers;                   ///< asked after each write and with each look; may be none
        Duration gather = std::chrono::milliseconds(20);    ///< decisions that come this close go out together
        Duration look_every = std::chrono::minutes(1);      ///< at what stands, though nothing was decided
        Duration call_timeout = std::chrono::seconds(10);   ///< of one call of the publisher
        Duration ask_timeout = std::chrono::seconds(3);     ///< of one round at one name server
        Duration settle_within = std::chrono::seconds(120); ///< from a write until all name servers should have it
        Duration first_backoff = std::chrono::seconds(1);   ///< after a failure; doubles with each that follows
        Duration longest_backoff = std::chrono::seconds(30);
        Duration refused_backoff = std::chrono::minutes(5); ///< for a name that the service does not take as it is
    };
    /// Called on each change of what a status says, from the loop. It may call `desire` and `withdraw`.
    using OnChange = std::function<void(const PublishStatus& status)>;

    Publication(Clock& clock, Publisher& publisher, NameServers* servers, Options options, OnChange on_change = {});
    ~Publication();
    Publication(const Publication&) = delete;
    Publication& operator=(const Publication&) = delete;

    /// The newest decision for a name; an earlier one that has not gone out yet never does.
    void desire(const std::string& name, Desired desired);
    /// The name is no longer ours: what we wrote there is removed, what others wrote is left. `gone` in the status ends it.
    void withdraw(const std::string& name);
    /// Puts right, once, what others wrote at this name: by hand, where the path does not do it by itself.
    void repair(const std::string& name);

    /// Null where it is not published here.
    const PublishStatus* status(std::string_view name) const;
    std::vector<const PublishStatus*> statuses() const; ///< by name

    struct Counts {
        std::uint64_t reads = 0, publishes = 0, changes = 0, failures = 0, questions = 0;
        std::size_t names = 0, waiting = 0; ///< waiting: have a decision that is not written
    };
    Counts counts() const;

    /// Works until it is cancelled.
    asio::awaitable<void> run(Context ctx);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
