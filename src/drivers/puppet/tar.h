#pragma once

#include "core/result.h"

#include <filesystem>
#include <string>
#include <string_view>

namespace orrery::drivers {

/// A tar archive in memory (POSIX ustar). The same contents give the same bytes.
class Tar {
public:
    /// Adds a file. Returns `invalid` where the name is too long for the format, `too_large` beyond `max_size`.
    Result<Unit> add(const std::string& name, std::string_view content, unsigned mode = 0644);
    /// Adds all regular files below `folder` as `name`/...; links and hidden files are left out. Blocks.
    Result<Unit> add_folder(const std::string& name, const std::filesystem::path& folder);
    /// The archive; the object is empty afterwards.
    std::string finish();

    static constexpr std::size_t max_size = 16u << 20;

private:
    std::string bytes_;
};

} // namespace orrery::drivers
