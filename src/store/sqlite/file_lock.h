#pragma once

#include "core/result.h"

#include <string>
#include <utility>

namespace orrery::store {

/// An exclusive lock on a store, held by the server that uses it ("<path>.lock").
class FileLock {
public:
    /// `conflict` if another process, or another store object of this process, holds the lock.
    static Result<FileLock> acquire(const std::string& path);
    FileLock() = default;
    FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    FileLock& operator=(FileLock&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~FileLock();

private:
    int fd_ = -1;
};

} // namespace orrery::store
