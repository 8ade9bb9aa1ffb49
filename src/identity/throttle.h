#pragma once

#include "core/clock.h"
#include "core/result.h"
#include "core/task.h"

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>

namespace orrery::identity {

/// Slows down those who guess. Each key (a user, an address) may fail a few times; then it must wait, twice as long after each
/// further failure. Attempts under way count too, so that many at once gain nothing: those beyond a few wait for their turn.
/// Remembers a bounded number of keys and forgets those quiet for an hour. Loop thread only.
class Throttle {
public:
    struct Options {
        int failures = 5;
        int parallel = 5; ///< attempts under way at once, less the failures so far
        Duration first = std::chrono::seconds(30);
        Duration longest = std::chrono::minutes(15);
        Duration forget = std::chrono::hours(1);
        std::size_t size = 10'000;
        std::size_t waiting = 256; ///< who waits for a turn, in all
    };
    Throttle(Options options, const Clock& clock);

    /// One try of a key. Says how it ended, or goes away without a word when it never got that far.
    class Attempt {
    public:
        Attempt(Throttle& throttle, std::string key) : throttle_(&throttle), key_(std::move(key)) {}
        Attempt(Attempt&& other) noexcept;
        Attempt& operator=(Attempt&&) = delete;
        Attempt(const Attempt&) = delete;
        Attempt& operator=(const Attempt&) = delete;
        ~Attempt();
        void failed();
        /// Earlier failures are forgiven.
        void succeeded();

    private:
        Throttle* throttle_;
        std::string key_;
    };
    /// `throttled`, with how long to wait.
    Result<Attempt> admit(std::string key);
    /// The same, but while the only reason against it is that others of the key are under way, it waits until one of them ends.
    Task<Attempt> admit_in_turn(Context ctx, std::string key);

    std::size_t size() const { return by_key_.size(); }

private:
    struct Entry {
        std::string key;
        int failures = 0, under_way = 0;
        SteadyTime blocked_until{}, touched{};
    };
    using Place = std::list<Entry>::iterator;
    Entry* touch(const std::string& key);
    bool is_blocked(const Entry& entry) const { return entry.blocked_until > clock_.steady(); }
    bool is_crowded(const Entry& entry) const;
    void end(const std::string& key, int failures, bool forgive);

    Options options_;
    const Clock& clock_;
    std::list<Entry> entries_; // longest untouched first
    std::unordered_map<std::string, Place> by_key_;
    std::list<Notifier*> waiting_; // first come first
};

/// What counts as one peer: an IPv4 address, or the /64 of an IPv6 address, because whoever has one address there has them all.
std::string peer_key(std::string_view address);

/// Lets one event a minute through for each key, and a bounded number in all, so that nobody fills the store by failing. Loop
/// thread only.
class EventLimit {
public:
    struct Options {
        Duration period = std::chrono::minutes(1);
        std::size_t in_all = 120; ///< a period
        std::size_t size = 4'096;
    };
    EventLimit(Options options, const Clock& clock) : options_(options), clock_(clock) {}
    bool allow(const std::string& key);
    /// How many were held back since this was last asked.
    std::size_t take_held_back();

private:
    Options options_;
    const Clock& clock_;
    std::unordered_map<std::string, SteadyTime> next_;
    SteadyTime period_began_{};
    std::size_t let_through_ = 0, held_back_ = 0;
};

} // namespace orrery::identity
