#pragma once

#include "gslb/publish/zone_publisher.h"

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace orrery::gslb {

constexpr auto never = SteadyTime::max();
constexpr auto first_ask_interval = std::chrono::milliseconds(50); ///< after a write: fast for services that serve at once
constexpr auto max_ask_interval = std::chrono::seconds(5);         ///< between queries while a write propagates

/// Private to the folder: the state of a ZonePublisher. zone_publisher.cpp has the half that writes to the service,
/// zone_publisher_servers.cpp the half that queries the name servers.
struct ZonePublisher::State {
    struct Entry {
        PublishStatus status;
        Desired desired;
        SteadyTime decided{};
        bool dirty = true;       // the decision was not compared with the current RRsets yet
        bool leaving = false;    // withdrawn
        bool repair = false;     // once, on request
        bool at_service = false; // the service has the desired RRsets
        bool seen = false;       // and all name servers answered so once
        std::optional<RecordSets> published;
        RecordSets wanted;          // the desired RRsets as the service stores them
        std::string error;          // the error that the service reports
        SteadyTime due{};           // of the next read
        SteadyTime ask_due = never; // of the next query to the name servers
        SteadyTime written{};       // when the service accepted it
        Duration ask_wait = first_ask_interval;
        int failures = 0;
    };
    using EntryIterator = std::map<std::string, Entry, std::less<>>::iterator;
    using Replies = std::vector<Result<Answered>>;

    State(Clock& clock_, DnsProvider& provider_, NameServers* servers_, Options options_, OnChange on_change_)
        : clock(clock_),
          provider(provider_),
          servers(servers_),
          options(std::move(options_)),
          on_change(std::move(on_change_)),
          random(std::random_device{}()) {
        if (servers == nullptr) options.servers.clear();
    }

    Clock& clock;
    DnsProvider& provider;
    NameServers* servers;
    Options options;
    OnChange on_change;
    std::mt19937 random;
    std::map<std::string, Entry, std::less<>> names;
    Counts counts;
    int failures = 0;        // of the whole target, consecutive
    SteadyTime tried{};      // the last attempt
    SteadyTime not_before{}; // after failures
    std::string last_failure;
    std::unique_ptr<Notifier> publish_more, ask_more;

    // --- status ---
    /// Sets state and message, and calls `on_change` if they changed.
    void set_status(Entry& entry, PublishState state, std::string message);
    void notify(const Entry& entry);
    void wake();
    void wake_checker();

    // --- decisions ---
    void desire(const std::string& name, Desired desired);
    void withdraw(const std::string& name);
    void repair(const std::string& name);
    void restart(Entry& entry, SteadyTime now);
    std::string target_error() const;

    // --- the service ---
    Duration backoff(int failed, Duration max);
    /// Names that are due, at most one batch; those with a new decision first.
    std::vector<std::string> due_names(SteadyTime now) const;
    SteadyTime next_due() const;
    void target_failed(const Context& ctx, const std::vector<std::string>& due, Error error);
    Task<Unit> round(Context ctx);
    void recovered(const Context& ctx);
    /// Compares current and wanted RRsets: returns the change to make, or sets the status.
    std::optional<Change> compare(const Context& ctx, const std::string& name, const ProviderRecords& current,
                                  const RecordSets& wanted);
    Task<Unit> write(Context ctx, std::vector<Change> changes);
    /// The service refused one change.
    void refused(const Context& ctx, Entry& entry, const Error& error);
    /// The service has the desired RRsets. If name servers are queried, their answers decide.
    void at_service(EntryIterator at, bool propagated, const std::string& error);
    /// The name servers answer as decided.
    void served(EntryIterator at);
    void forget(EntryIterator at, std::string message);

    // --- the name servers ---
    std::vector<std::string> ask_names(SteadyTime now) const;
    SteadyTime next_ask() const;
    asio::awaitable<void> ask_one(Context ctx, std::string server, std::vector<std::string> queried, std::shared_ptr<Replies> into);
    asio::awaitable<void> ask_round(Context ctx);
    void judge_servers(EntryIterator at, std::vector<PublishStatus::Server> seen);
};

} // namespace orrery::gslb
