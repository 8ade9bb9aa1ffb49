#pragma once

#include "core/result.h"

#include <filesystem>

namespace orrery::app {

/// Creates the folder of the files of this server if it does not exist, accessible to this user only.
Result<Unit> make_data_folder(const std::filesystem::path& folder);

} // namespace orrery::app
