#include "app/store_component.h"

#include "app/data_folder.h"
#include "app/sealing_key.h"
#include "app/store_admin.h"
#include "catalog/kinds.h"
#include "fleet/kinds.h"
#include "gslb/model/kinds.h"
#include "identity/identity.h"
#include "resource/kinds.h"
#include "resource/migration.h"

namespace orrery::app {

StoreComponent::StoreComponent(ServerEnvironment& environment, std::function<void(resource::Registry&)> add_kinds,
                               std::function<void()> migrated)
    : environment_(environment), add_kinds_(std::move(add_kinds)), migrated_(std::move(migrated)) {}
StoreComponent::~StoreComponent() = default;

void StoreComponent::register_kinds() {
    registry_.add(resource::node_kind());
    registry_.add(resource::secret_kind());
    registry_.add(resource::event_kind());
    registry_.add(identity::user_kind());
    registry_.add(identity::token_kind(environment_.clock));
    catalog::add_kinds(registry_);
    add_kinds_(registry_);
    gslb::add_kinds(registry_);
    fleet::add_kinds(registry_);
}

Task<Unit> StoreComponent::start(Context ctx) {
    const auto& config = environment_.config;
    CO_TRY(std::ignore, make_data_folder(config.path("data.folder")));
    CO_TRY(location_, choose_store(config));
    CO_TRY(auto engine, co_await open_store(ctx, environment_.executor, config, location_));
    store_ = std::make_unique<store::FreezableStore>(environment_.executor, std::move(engine));
    CO_TRY(sealer_, co_await open_sealer(ctx, *store_, config.path("secrets.key_file")));
    register_kinds();
    CO_TRY(std::ignore, registry_.check());
    CO_TRY(std::ignore, co_await resource::migrate_stored_fields(ctx, *store_, registry_));
    resources_ = std::make_unique<resource::Resources>(*store_, registry_, *sealer_, environment_.clock);
    admin_ = make_store_admin(environment_.executor, config, location_, *store_, migrated_);
    co_return Unit{};
}

asio::awaitable<void> StoreComponent::stop() {
    admin_.reset();
    resources_.reset();
    if (store_) co_await store_->stop();
    store_.reset();
}

} // namespace orrery::app
