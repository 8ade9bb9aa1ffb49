#pragma once

#include "core/clock.h"
#include "store/store.h"

namespace orrery::store {

/// A copy older than this is stale: /readyz returns 503, and responses served from the copy carry its age.
constexpr Duration stale_copy_age = std::chrono::seconds(4);

/// Implemented by stores whose in-memory copy can lag behind the writes of other servers.
class CopyAgeProvider {
public:
    virtual ~CopyAgeProvider() = default;
    /// Time since the copy last had every acknowledged write of all servers.
    virtual Duration copy_age() const = 0;
};

/// The age of a store's copy; zero if this process is the only writer.
inline Duration copy_age(const Store& store) {
    const auto* provider = dynamic_cast<const CopyAgeProvider*>(&store);
    return provider == nullptr ? Duration::zero() : provider->copy_age();
}

} // namespace orrery::store
