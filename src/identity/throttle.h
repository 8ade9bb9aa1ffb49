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

/// Limits password guessing. Each key (a user or an address) may fail a few times; then it is blocked, for twice as long after each
/// further failure. Attempts in progress are limited too, so that concurrent guesses gain nothing. Keeps a bounded number of keys
/// and drops those without attempts for an hour. Loop thread only.
class Throttle {
public:
    struct Options {
        int max_failures = 5;
        int max_concurrent = 5; ///< attempts in progress, minus the failures so far
        Duration initial_delay = std::chrono::seconds(30);
        Duration max_delay = std::chrono::minutes(15);
        Duration reset_after = std::chrono::hours(1);
        std::size_t max_keys = 10'000;
        std::size_t max_waiting = 256; ///< callers of `admit_or_wait` that wait, over all keys
    };
    Throttle(Options options, const Clock& clock);

    /// One admitted attempt. The caller reports its result; without a report it counts as neither.
    class Attempt {
    public:
        Attempt(Throttle& throttle, std::string key) : throttle_(&throttle), key_(std::move(key)) {}
        Attempt(Attempt&& other) noexcept;
        Attempt& operator=(Attempt&&) = delete;
        Attempt(const Attempt&) = delete;
        Attempt& operator=(const Attempt&) = delete;
        ~Attempt();
        void failed();
        /// Also resets the failures of the key.
        void succeeded();

    private:
        Throttle* throttle_;
        std::string key_;
    };
    /// `throttled` with the remaining time if the key is blocked or at capacity.
    Result<Attempt> admit(std::string key);
    /// Like `admit`, but waits while the key is only at capacity, until one of its attempts ends.
    Task<Attempt> admit_or_wait(Context ctx, std::string key);

    std::size_t size() const { return by_key_.size(); }

private:
    struct Entry {
        std::string key;
        int failures = 0, in_progress = 0;
        SteadyTime blocked_until{}, last_used{};
    };
    using Position = std::list<Entry>::iterator;
    Entry* touch(const std::string& key);
    bool is_blocked(const Entry& entry) const { return entry.blocked_until > clock_.steady(); }
    bool is_at_capacity(const Entry& entry) const;
    void end(const std::string& key, int failures, bool forgive);

    Options options_;
    const Clock& clock_;
    std::list<Entry> entries_; // least recently used first
    std::unordered_map<std::string, Position> by_key_;
    std::list<Notifier*> waiting_; // in order of arrival
};

/// The throttle key of an address: an IPv4 address, or the /64 of an IPv6 address, because one client usually controls a whole /64.
std::string peer_key(std::string_view address);

} // namespace orrery::identity
