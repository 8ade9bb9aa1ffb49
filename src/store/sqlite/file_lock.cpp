#include "store/sqlite/file_lock.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace orrery::store {

Result<FileLock> FileLock::acquire(const std::string& path) {
    const auto name = path + ".lock";
    FileLock lock;
    lock.fd_ = ::open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (lock.fd_ < 0)
        return Error{errno == ENOSPC ? Code::no_space : Code::unavailable,
                     fmt::format("cannot create {}: {}", name, std::strerror(errno)),
                     "check that the directory exists and is writable"};
    if (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0)
        return Error{Code::conflict, fmt::format("{} is in use by another running server", path),
                     "stop that server first, or use another file"};
    return lock;
}

FileLock::~FileLock() {
    // The file is not unlinked: two other processes could then each lock a different file.
    if (fd_ >= 0) ::close(fd_);
}

} // namespace orrery::store
