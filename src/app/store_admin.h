#pragma once

#include "api/api.h"
#include "app/store_choice.h"
#include "core/config.h"
#include "store/freezable_store.h"

#include <functional>
#include <memory>

namespace orrery::app {

/// Implements the port of the API for administration of the store. `migrated` is called after a migration: the server must then
/// start again on the new store.
std::unique_ptr<api::StoreAdmin> make_store_admin(asio::any_io_executor executor, const Config& config, StoreLocation location,
                                                  store::FreezableStore& store, std::function<void()> migrated);

} // namespace orrery::app
