#pragma once

#include "api/api.h"
#include "app/server_component.h"
#include "app/store_choice.h"
#include "resource/resources.h"
#include "store/freezable_store.h"

#include <functional>
#include <memory>

namespace orrery::app {

/// The store with its kinds: opens it, unseals its secrets, migrates stored fields, and gives typed access to resources.
class StoreComponent final : public ServerComponent {
public:
    /// `add_kinds` registers kinds of other components. `migrated` is called after a migration to another store: the server must
    /// then start again.
    StoreComponent(ServerEnvironment& environment, std::function<void(resource::Registry&)> add_kinds,
                   std::function<void()> migrated);
    ~StoreComponent() override;

    std::string_view name() const override { return "store"; }
    Task<Unit> start(Context ctx) override;
    asio::awaitable<void> stop() override;

    bool is_started() const { return resources_ != nullptr; }
    const StoreLocation& location() const { return location_; }
    bool is_shared() const { return location_.engine != StoreLocation::Engine::sqlite; } ///< other servers may use the store
    store::Store& store() { return *store_; }
    resource::Resources& resources() { return *resources_; }
    api::StoreAdmin& admin() { return *admin_; }

private:
    void register_kinds();

    ServerEnvironment& environment_;
    std::function<void(resource::Registry&)> add_kinds_;
    std::function<void()> migrated_;
    StoreLocation location_;
    std::unique_ptr<store::FreezableStore> store_;
    std::unique_ptr<resource::Sealer> sealer_;
    resource::Registry registry_;
    std::unique_ptr<resource::Resources> resources_;
    std::unique_ptr<api::StoreAdmin> admin_;
};

} // namespace orrery::app
