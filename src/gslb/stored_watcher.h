#pragma once

#include "gslb/ports.h"
#include "store/store.h"

#include <memory>
#include <set>
#include <string>

namespace orrery::gslb {

/// For a server that does not look itself: what is known of members is what their status says, which the server that leads writes.
/// Loop thread only.
class StoredWatcher final : public Watcher {
public:
    /// The store must outlive this.
    explicit StoredWatcher(store::Store& store);
    ~StoredWatcher() override;

    void watch(const std::string& member, Target target) override;
    void forget(const std::string& member) override;
    void report_to(OnSignal on_signal) override;
    void report_places_to(OnPlace on_place) override;

private:
    void tell(const std::string& member, const store::Record* record) const;

    store::Store& store_;
    OnSignal on_signal_;
    OnPlace on_place_;
    std::set<std::string> watched_;
    std::shared_ptr<void> observed_;
};

} // namespace orrery::gslb
