#pragma once

#include "app/identity_component.h"
#include "app/leader_lease.h"
#include "app/server_component.h"
#include "app/store_component.h"
#include "store/leadership.h"

#include <memory>

namespace orrery::app {

/// The election of a leader, and garbage collection, which the leader runs.
class LeadershipComponent final : public ServerComponent {
public:
    /// All must outlive the component.
    LeadershipComponent(ServerEnvironment& environment, StoreComponent& store, IdentityComponent& identity);
    ~LeadershipComponent() override;

    std::string_view name() const override { return "leadership"; }
    Task<Unit> start(Context ctx) override;
    asio::awaitable<void> stop() override;

    bool is_started() const { return leadership_ != nullptr; }
    store::Leadership& leadership() { return *leadership_; }

private:
    ServerEnvironment& environment_;
    StoreComponent& store_;
    IdentityComponent& identity_;
    std::unique_ptr<store::Leadership> leadership_;
    std::unique_ptr<LeaderLease> leader_lease_;
};

} // namespace orrery::app
