#include "app/data_folder.h"

#include <fmt/format.h>

namespace orrery::app {

Result<Unit> make_data_folder(const std::filesystem::path& folder) {
    std::error_code error;
    const bool existed = std::filesystem::exists(folder, error);
    std::filesystem::create_directories(folder, error);
    if (!error) std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
    if (error)
        return Error{Code::unavailable,
                     fmt::format("the folder {} cannot be {}: {}", folder.string(),
                                 existed ? "made accessible to this user only (does it belong to another user?)" : "created",
                                 error.message()),
                     "set data.folder to one that this user may write to"};
    return Unit{};
}

} // namespace orrery::app
