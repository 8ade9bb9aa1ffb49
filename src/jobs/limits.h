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

/// How many nodes of a role may be changed at once. The rule "default" applies to roles without one.
struct RollingRule {
    int limit = 0;                  ///< nodes at once; 0: none, ever
    std::vector<std::string> after; ///< roles whose nodes must be complete first
    bool paused = false;            ///< by an operator; nothing else sets or clears it
    std::string reason;
};

/// What the jobs of a server share: slots, nodes, locks and rolling slots. A task that finds one taken is kept with it and woken
/// when it is free. Loop thread only.
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

    /// The number of a node here.
    std::uint32_t host(const std::string& name);
    int on_host(std::uint32_t host) const { return hosts_[host].running; }
    void take_host(std::uint32_t host) { ++hosts_[host].running; }
    void release_host(std::uint32_t host);
    void wait_for_host(std::uint32_t host, Waiter waiter) { hosts_[host].waiting.push_back(waiter); }

    /// The holder, as "job/task"; empty: the lock is free.
    const std::string& lock_holder(const std::string& lock) const;
    void take_lock(const std::string& lock, std::string holder) { locks_[lock].holder = std::move(holder); }
    void release_lock(const std::string& lock);
    void wait_for_lock(const std::string& lock, Waiter waiter) { locks_[lock].waiting.push_back(waiter); }
    /// The task that was woken for this lock cannot use it now: wakes the next one.
    void wake_next_for_lock(const std::string& lock);

    /// --- Rolling slots: nodes that are being changed, by role ---

    void set_rules(std::map<std::string, RollingRule> rules);
    /// The rule for a role; null: no limit.
    const RollingRule* rule_for(const std::string& role) const;
    bool holds_rolling_slot(const std::string& role, const std::string& host) const;
    /// The job whose change holds the slot; empty: no slot is held.
    std::string rolling_slot_owner(const std::string& role, const std::string& host) const;
    /// "n-2 by job up": the first ones.
    std::string rolling_slots_text(const std::string& role) const;
    /// The role and node of all slots of a job.
    std::vector<std::pair<std::string, std::string>> rolling_slots_of(const std::string& job) const;
    std::size_t rolling_slots_used(const std::string& role) const;
    void take_rolling_slot(const std::string& role, const std::string& host, const std::string& job);
    /// Releases all slots of a job, or that of one node.
    void release_rolling_slots(const std::string& job);
    void release_rolling_slot(const std::string& role, const std::string& host);
    /// Grows when a slot may have become free.
    std::uint64_t rolling_changes() const { return rolling_changes_; }
    void note_rolling_change() { ++rolling_changes_; }

    /// Forgets all tasks of this scheduler that wait.
    void forget(const Scheduler* scheduler);

private:
    void wake_all(std::vector<Waiter>& waiting);

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
    std::map<std::string, std::map<std::string, std::string>> rolling_slots_; ///< role → node → job
    std::uint64_t rolling_changes_ = 0;
};

} // namespace orrery::jobs
