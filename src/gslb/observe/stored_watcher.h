#pragma once

#include "gslb/runtime/ports.h"
#include "store/store.h"

#include <memory>
#include <set>
#include <string>

namespace orrery::gslb {

/// The watcher of a server that does not probe: takes the health of members from their status, which the leader writes. Loop thread
/// only.
class StoredWatcher final : public Watcher {
public:
    /// The store must outlive this.
    explicit StoredWatcher(store::Store& store);
    ~StoredWatcher() override;

    void watch(const std::string& member, Target target) override;
    void forget(const std::string& member) override;
    void report_to(OnHealth on_health) override;
    void report_addresses_to(OnAddresses on_addresses) override;

private:
    void report(const std::string& member, const store::Record* record) const;

    store::Store& store_;
    OnHealth on_health_;
    OnAddresses on_addresses_;
    std::set<std::string> watched_;
    std::shared_ptr<void> observed_;
};

} // namespace orrery::gslb
