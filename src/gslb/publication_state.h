#pragma once

#include "gslb/publication.h"

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace orrery::gslb {

constexpr auto never = SteadyTime::max();
constexpr auto first_ask = std::chrono::milliseconds(50); ///< after a write; services that serve at once are seen at once
constexpr auto longest_ask = std::chrono::seconds(5);     ///< between questions while a write is under way

/// What a publication knows. The half that writes to the service is in publication.cpp, the half that asks the name servers in
/// publication_servers.cpp.
struct Publication::State {
    struct Entry {
        PublishStatus status;
        Desired desired;
        SteadyTime decided{};
        bool dirty = true;       // the decision has not been compared with what stands
        bool leaving = false;    // withdrawn
        bool repair = false;     // once, by hand
        bool at_service = false; // the service has what is desired
        bool seen = false;       // and all name servers gave it once
        std::optional<RecordSets> published;
        RecordSets wanted;          // what is desired, as the service spells it
        std::string trouble;        // what the service says of it
        SteadyTime due{};           // of the next look at the service
        SteadyTime ask_due = never; // of the next question to the name servers
        SteadyTime written{};       // when the service took it
        Duration ask_wait = first_ask;
        int failures = 0;
    };
    using Place = std::map<std::string, Entry, std::less<>>::iterator;
    using Replies = std::vector<Result<Answered>>;

    State(Clock& clock_, Publisher& publisher_, NameServers* servers_, Options options_, OnChange on_change_)
        : clock(clock_),
          publisher(publisher_),
          servers(servers_),
          options(std::move(options_)),
          on_change(std::move(on_change_)),
          random(std::random_device{}()) {
        if (servers == nullptr) options.servers.clear();
    }

    Clock& clock;
    Publisher& publisher;
    NameServers* servers;
    Options options;
    OnChange on_change;
    std::mt19937 random;
    std::map<std::string, Entry, std::less<>> names;
    Counts counts;
    int failures = 0;        // of the path as a whole, in a row
    SteadyTime tried{};      // when it last was
    SteadyTime not_before{}; // after failures
    std::string last_failure;
    std::unique_ptr<Notifier> publish_more, ask_more;

    // --- saying how it stands ---
    /// Sets the state and tells whoever wants to know, where it says something new.
    void say(Entry& entry, PublishState state, std::string why);
    void tell(const Entry& entry);
    void wake();
    void wake_asker();

    // --- decisions ---
    void desire(const std::string& name, Desired desired);
    void withdraw(const std::string& name);
    void repair(const std::string& name);
    void decide_anew(Entry& entry, SteadyTime now);
    std::string path_trouble() const;

    // --- the service ---
    Duration backoff(int failed, Duration longest);
    /// Names whose time has come, at most as many as go into one call; those with a decision first.
    std::vector<std::string> due_names(SteadyTime now) const;
    SteadyTime next_due() const;
    void path_failed(const Context& ctx, const std::vector<std::string>& due, Error error);
    Task<Unit> round(Context ctx);
    void recovered(const Context& ctx);
    /// What stands against what is wanted: the change to make, or none, with the status said.
    std::optional<Change> compare(const Context& ctx, const std::string& name, const Standing& standing, const RecordSets& wanted);
    Task<Unit> write(Context ctx, std::vector<Change> changes);
    /// One change was not taken.
    void refused(const Context& ctx, Entry& entry, const Error& error);
    /// The service has what is desired. Where name servers are asked, they have the last word.
    void at_service(Place place, bool settled, const std::string& trouble);
    /// It is answered as decided.
    void served(Place place);
    void forget(Place place, std::string why);

    // --- the name servers ---
    std::vector<std::string> ask_names(SteadyTime now) const;
    SteadyTime next_ask() const;
    asio::awaitable<void> ask_one(Context ctx, std::string server, std::vector<std::string> asked, std::shared_ptr<Replies> into);
    asio::awaitable<void> ask_round(Context ctx);
    void judge_servers(Place place, std::vector<PublishStatus::Server> seen);
};

} // namespace orrery::gslb
