#include "app/leadership_component.h"

#include "app/garbage_collection.h"
#include "core/log.h"

namespace orrery::app {

LeadershipComponent::LeadershipComponent(ServerEnvironment& environment, StoreComponent& store, IdentityComponent& identity)
    : environment_(environment), store_(store), identity_(identity) {}
LeadershipComponent::~LeadershipComponent() = default;

Task<Unit> LeadershipComponent::start(Context ctx) {
    auto& store = store_.store();
    leadership_ = std::make_unique<store::Leadership>(
        environment_.executor, store,
        store::Leadership::Options{.server = environment_.server_name, .exclusive = !store_.is_shared()});
    if (!environment_.runs_controllers) co_return Unit{};
    if (store_.is_shared()) {
        leader_lease_ = std::make_unique<LeaderLease>(environment_.config.path("data.folder"));
        const auto released = co_await leader_lease_->release_previous(ctx, store);
        if (!released.ok())
            log::warn(ctx, "previous leader lease not revoked; it expires by itself: error={}", released.error().text());
        environment_.tasks.spawn(leader_lease_->run(ctx, store, *leadership_, environment_.pool));
    }
    environment_.tasks.spawn(leadership_->run(ctx));
    environment_.supervisor.start("garbage_collection", [this, ctx](TaskGroup& group) {
        const auto& config = environment_.config;
        group.spawn(run_garbage_collection(ctx, store_.resources(), identity_.identity(), *leadership_, environment_.clock,
                                           {.max_event_age = config.duration("events.keep"),
                                            .max_events = static_cast<std::size_t>(config.integer("events.keep_at_most"))}));
    });
    co_return Unit{};
}

asio::awaitable<void> LeadershipComponent::stop() {
    leadership_.reset();
    co_return;
}

} // namespace orrery::app
