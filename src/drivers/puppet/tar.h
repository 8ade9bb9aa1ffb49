#pragma once

#include "core/result.h"

#include <filesystem>
#include <string>
#include <string_view>

namespace orrery::drivers {

/// A tar archive in memory (POSIX ustar): the same contents give the same bytes.
class Tar {
public:
    /// `invalid` for a name that the format cannot hold, `too_large` beyond the limit.
    Result<Unit> add(const std::string& name, std::string_view content, unsigned mode = 0644);
    /// All regular files below `folder`, as `name`/...; links and hidden files are left out. Blocks.
    Result<Unit> add_folder(const std::string& name, const std::filesystem::path& folder);
    std::string finish();

    static constexpr std::size_t most = 16u << 20;

private:
    std::string bytes_;
};

} // namespace orrery::drivers
