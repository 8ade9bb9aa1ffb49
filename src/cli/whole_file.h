#pragma once

#include "core/result.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace orrery::cli {

/// "12 KiB"
std::string readable_size(std::uint64_t bytes);

/// A file that appears under its name only when it is whole and on disk.
class WholeFile {
public:
    static Result<std::unique_ptr<WholeFile>> make(const std::string& path);
    ~WholeFile();
    WholeFile(const WholeFile&) = delete;
    WholeFile& operator=(const WholeFile&) = delete;

    Result<Unit> write(std::string_view piece);
    Result<Unit> finish();

private:
    WholeFile(std::string path, std::string part, int fd) : path_(std::move(path)), part_(std::move(part)), fd_(fd) {}
    std::string path_, part_;
    int fd_;
    bool done_ = false;
};

} // namespace orrery::cli
