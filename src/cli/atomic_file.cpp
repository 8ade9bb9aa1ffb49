#include "cli/atomic_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

namespace orrery::cli {

std::string readable_size(std::uint64_t bytes) {
    if (bytes < 10 * 1024) return fmt::format("{} B", bytes);
    if (bytes < 10 * 1024 * 1024) return fmt::format("{} KiB", bytes >> 10U);
    return fmt::format("{} MiB", bytes >> 20U);
}

Result<std::unique_ptr<AtomicFile>> AtomicFile::make(const std::string& path) {
    const auto part = path + ".part";
    const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return Error{Code::invalid, fmt::format("{} cannot be written: {}", part, std::strerror(errno))};
    return std::unique_ptr<AtomicFile>(new AtomicFile(path, part, fd));
}

AtomicFile::~AtomicFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!done_) ::unlink(part_.c_str());
}

Result<Unit> AtomicFile::write(std::string_view piece) {
    while (!piece.empty()) {
        const auto written = ::write(fd_, piece.data(), piece.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0)
            return Error{errno == ENOSPC ? Code::no_space : Code::invalid,
                         fmt::format("{} cannot be written: {}", part_, std::strerror(errno))};
        piece.remove_prefix(static_cast<std::size_t>(written));
    }
    return Unit{};
}

Result<Unit> AtomicFile::finish() {
    if (::fsync(fd_) != 0 || ::rename(part_.c_str(), path_.c_str()) != 0)
        return Error{errno == ENOSPC ? Code::no_space : Code::invalid,
                     fmt::format("{} cannot be written: {}", path_, std::strerror(errno))};
    done_ = true;
    const auto folder = std::filesystem::path(path_).parent_path();
    const int directory = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0) {
        ::fsync(directory);
        ::close(directory);
    }
    return Unit{};
}

} // namespace orrery::cli
