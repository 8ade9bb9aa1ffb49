#pragma once

#include "core/clock.h"
#include "store/store.h"

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace orrery::store {

/// The leases of the store, their expiry times and their keys. A plain table: expiry is driven by SqliteStore.
class LeaseTable {
public:
    struct Lease {
        Duration ttl{};
        SteadyTime expires_at{};
        bool revoking = false; ///< its removal is queued; it cannot be renewed any more
        std::unordered_set<std::string> keys;
    };

    void add(LeaseId id, Duration ttl, SteadyTime now) { leases_[id] = Lease{ttl, now + ttl, false, {}}; }
    void remove(LeaseId id) { leases_.erase(id); }
    Lease* find(LeaseId id) {
        const auto found = leases_.find(id);
        return found == leases_.end() ? nullptr : &found->second;
    }
    /// The value of `key` changed from lease `from` to lease `to` (0: none).
    void reassign(const std::string& key, LeaseId from, LeaseId to) {
        if (from == to) return;
        if (auto* lease = find(from)) lease->keys.erase(key);
        if (auto* lease = find(to)) lease->keys.insert(key);
    }
    std::size_t size() const { return leases_.size(); }

private:
    std::unordered_map<LeaseId, Lease> leases_;
};

} // namespace orrery::store
