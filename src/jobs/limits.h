#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace orrery::jobs {

class Scheduler;

/// What a role allows while its machines are being changed. The one called "default" is for roles that have none of their own.
struct RollingRule {
    int limit = 0;                  ///< machines at once; 0 is never
    std::vector<std::string> after; ///< roles that must be through first
    bool paused = false;            ///< by an operator; nothing else sets or clears it
    std::string reason;
};

/// What all jobs of a server share: slots, machines, locks, and the places of roles that roll. Tasks that find something taken are
/// kept with it and called when it is free. Loop thread only.
class Limits {
public:
    explicit Limits(int slots) : slots_(slots) {}

    struct Waiter {
        Scheduler* scheduler = nullptr;
        std::uint32_t task = 0;
    };

    bool slot_free() const { return running_ < slots_; }
    void take_slot() { ++running_; }
    void release_slot() { --running_; }
    int running() const { return running_; }
    int slots() const { return slots_; }

    /// A machine's number here.
    std::uint32_t host(const std::string& name);
    int on_host(std::uint32_t host) const { return hosts_[host].running; }
    void take_host(std::uint32_t host) { ++hosts_[host].running; }
    void release_host(std::uint32_t host);
    void wait_for_host(std::uint32_t host, Waiter waiter) { hosts_[host].waiting.push_back(waiter); }

    /// Who holds it, "job/task"; empty: nobody.
    const std::string& lock_holder(const std::string& lock) const;
    void take_lock(const std::string& lock, std::string holder) { locks_[lock].holder = std::move(holder); }
    void release_lock(const std::string& lock);
    void wait_for_lock(const std::string& lock, Waiter waiter) { locks_[lock].waiting.push_back(waiter); }
    /// Whoever was called for this lock cannot use it now: call the next.
    void pass_lock_on(const std::string& lock);

    /// --- Machines that are being changed, by role ---

    void set_rules(std::map<std::string, RollingRule> rules);
    /// The rule for a role; null: none, and no limit.
    const RollingRule* rule_for(const std::string& role) const;
    bool holds_place(const std::string& role, const std::string& host) const;
    std::size_t places_taken(const std::string& role) const;
    void take_place(const std::string& role, const std::string& host, const std::string& job);
    /// Gives back all places that the job holds, or that of one machine.
    void release_places(const std::string& job);
    void release_place(const std::string& role, const std::string& host);
    /// Grows whenever a place may have become free.
    std::uint64_t rolling_changes() const { return rolling_changes_; }
    void note_rolling_change() { ++rolling_changes_; }

    /// Nobody calls this one any more.
    void forget(const Scheduler* scheduler);

private:
    void call(std::vector<Waiter>& waiting);

    struct HostSlots {
        int running = 0;
        std::vector<Waiter> waiting;
    };
    struct Lock {
        std::string holder;
        std::vector<Waiter> waiting;
    };
    int slots_, running_ = 0;
    std::unordered_map<std::string, std::uint32_t> host_numbers_;
    std::vector<HostSlots> hosts_;
    std::map<std::string, Lock> locks_;
    std::map<std::string, RollingRule> rules_;
    std::map<std::string, std::map<std::string, std::string>> places_; ///< role → machine → job
    std::uint64_t rolling_changes_ = 0;
};

} // namespace orrery::jobs
