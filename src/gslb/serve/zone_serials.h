#pragma once

#include "core/task.h"
#include "store/leadership.h"
#include "store/store.h"

#include <cstdint>
#include <memory>
#include <string_view>

namespace orrery::gslb {

/// The serials of SOA records. A serial is the revision of the store plus a base that the store holds, so servers that share a
/// store use the same serials. Serials never decrease: the store also holds an upper bound of the serials used so far, which
/// survives a migration, a backup and a restore. Loop thread only.
class ZoneSerials {
public:
    static constexpr std::string_view key = "sys/zone-serial";

    /// Raises the base if serials would be lower than those used earlier: after a restart, a migration or a restore. To be called
    /// before a zone is served.
    static Task<Unit> prepare(Context ctx, store::Store& store, Clock& clock);

    /// The store must outlive this.
    explicit ZoneSerials(store::Store& store);

    /// The serial of the next change; never the same twice.
    std::uint64_t next();
    /// The minimum that `next` would return.
    std::uint64_t upcoming() const;
    /// Whether `reserve` should be called: serials approach the reserved bound.
    bool needs_reserve() const;
    /// Stores a new upper bound in advance.
    Task<Unit> reserve(Context ctx, Clock& clock, store::Fence fence);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
