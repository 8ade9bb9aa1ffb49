#pragma once

#include "core/clock.h"
#include "store/store.h"

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace orrery::store {

/// Which leases there are, until when, and which keys hang on them. Decides nothing and waits for nothing.
class Leases {
public:
    struct Lease {
        Duration ttl{};
        SteadyTime ends{};
        bool ending = false; ///< its removal is on the way; it can no longer be renewed
        std::unordered_set<std::string> keys;
    };

    void add(LeaseId id, Duration ttl, SteadyTime now) { leases_[id] = Lease{ttl, now + ttl, false, {}}; }
    void remove(LeaseId id) { leases_.erase(id); }
    Lease* find(LeaseId id) {
        const auto found = leases_.find(id);
        return found == leases_.end() ? nullptr : &found->second;
    }
    /// A key's value, with or without a lease, was replaced by another.
    void moved(const std::string& key, LeaseId from, LeaseId to) {
        if (from == to) return;
        if (auto* lease = find(from)) lease->keys.erase(key);
        if (auto* lease = find(to)) lease->keys.insert(key);
    }
    std::size_t size() const { return leases_.size(); }

private:
    std::unordered_map<LeaseId, Lease> leases_;
};

} // namespace orrery::store
