#pragma once

#include "core/result.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace orrery::cli {

/// "12 KiB"
std::string readable_size(std::uint64_t bytes);

/// A file that appears under its name only when it is complete and on disk: written as PATH.part, synced and renamed. Without
/// `finish` the destructor removes it.
class AtomicFile {
public:
    /// `invalid` if the file cannot be created.
    static Result<std::unique_ptr<AtomicFile>> make(const std::string& path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    /// `no_space` or `invalid`.
    Result<Unit> write(std::string_view piece);
    Result<Unit> finish();

private:
    AtomicFile(std::string path, std::string part, int fd) : path_(std::move(path)), part_(std::move(part)), fd_(fd) {}
    std::string path_, part_;
    int fd_;
    bool done_ = false;
};

} // namespace orrery::cli
