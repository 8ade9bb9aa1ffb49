#include "drivers/puppet/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <vector>

namespace orrery::drivers {

namespace {
void put(std::array<char, 512>& header, std::size_t at, std::string_view text) {
    std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
}
} // namespace

Result<Unit> Tar::add(const std::string& name, std::string_view content, unsigned mode) {
    std::string_view last(name), prefix;
    if (last.size() > 100) {
        // The name is split at a slash: at most 155 bytes before it, at most 100 after.
        const auto slash = name.find('/', name.size() - 101);
        if (slash == std::string::npos || slash > 155)
            return Error{Code::invalid, fmt::format("the name {} is too long for an archive", name)};
        prefix = std::string_view(name).substr(0, slash);
        last = std::string_view(name).substr(slash + 1);
    }
    if (bytes_.size() + content.size() > max_size)
        return Error{Code::too_large, fmt::format("the manifest, its modules and data have more than {} MiB", max_size >> 20)};
    std::array<char, 512> header{};
    put(header, 0, last);
    put(header, 100, fmt::format("{:07o}", mode));
    put(header, 108, "0000000");
    put(header, 116, "0000000");
    put(header, 124, fmt::format("{:011o}", content.size()));
    put(header, 136, "00000000000"); // no time, so that equal contents give equal archives
    put(header, 148, "        ");
    header[156] = '0';
    put(header, 257,
        std::string_view("ustar\0"
                         "00",
                         8));
    put(header, 345, prefix);
    const auto sum = std::accumulate(header.begin(), header.end(), 0u,
                                     [](unsigned total, char c) { return total + static_cast<unsigned char>(c); });
    put(header, 148, fmt::format("{:06o}", sum));
    header[154] = '\0';
    header[155] = ' ';
    bytes_.append(header.data(), header.size());
    bytes_ += content;
    bytes_.append((512 - content.size() % 512) % 512, '\0');
    return Unit{};
}

Result<Unit> Tar::add_folder(const std::string& name, const std::filesystem::path& folder) {
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error))
        return Error{Code::not_found, fmt::format("there is no folder {} on the server", folder.string()),
                     "create the folder, or correct its name"};
    std::vector<std::filesystem::path> files;
    for (std::filesystem::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        if (at->path().filename().string().starts_with('.')) {
            if (at->is_directory(error)) at.disable_recursion_pending();
            continue;
        }
        if (at->is_regular_file(error) && !at->is_symlink(error)) files.push_back(at->path());
        if (files.size() > 20'000) return Error{Code::too_large, fmt::format("{} has more than 20,000 files", folder.string())};
    }
    if (error) return Error{Code::denied, fmt::format("{} cannot be read: {}", folder.string(), error.message())};
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
        std::ifstream stream(file, std::ios::binary);
        if (std::filesystem::file_size(file, error) > max_size)
            return Error{Code::too_large, fmt::format("{} is too large for the archive", file.string())};
        const std::string content{std::istreambuf_iterator<char>(stream), {}};
        if (!stream) return Error{Code::denied, fmt::format("{} cannot be read", file.string())};
        const bool program = (std::filesystem::status(file, error).permissions() & std::filesystem::perms::owner_exec) !=
                             std::filesystem::perms::none;
        TRY(std::ignore,
            add(name + "/" + std::filesystem::relative(file, folder, error).generic_string(), content, program ? 0755 : 0644));
    }
    return Unit{};
}

std::string Tar::finish() {
    bytes_.append(1024, '\0');
    return std::move(bytes_);
}

} // namespace orrery::drivers
