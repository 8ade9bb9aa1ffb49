#pragma once

#include "api/api.h"
#include "app/store_choice.h"
#include "core/config.h"
#include "store/gate.h"

#include <functional>
#include <memory>

namespace orrery::app {

/// The API's port for the store as a whole, on the engine that runs. `moved` is called after a migration: the server must then
/// start again on the new store.
std::unique_ptr<api::StoreAdmin> make_store_admin(asio::any_io_executor executor, const Config& config, StorePlace place,
                                                  store::Gate& store, std::function<void()> moved);

} // namespace orrery::app
