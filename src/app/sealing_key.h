#pragma once

#include "core/task.h"
#include "resource/sealer.h"
#include "store/store.h"

#include <filesystem>
#include <memory>

namespace orrery::app {

/// Reads the key of `secrets.key_file`, and creates it for an empty store. `denied` when it is not the key that the secrets in
/// this store were sealed with.
Task<std::unique_ptr<resource::Sealer>> open_sealer(Context ctx, store::Store& store, std::filesystem::path key_file);

} // namespace orrery::app
