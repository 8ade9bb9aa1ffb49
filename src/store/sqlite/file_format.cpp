#include "store/sqlite/file_format.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace orrery::store {

namespace {

struct FileHandle {
    int fd = -1;
    ~FileHandle() {
        if (fd >= 0) ::close(fd);
    }
};

std::uint32_t big_endian_at(const std::array<unsigned char, 100>& bytes, std::size_t offset) {
    return std::uint32_t{bytes[offset]} << 24 | std::uint32_t{bytes[offset + 1]} << 16 | std::uint32_t{bytes[offset + 2]} << 8 |
           bytes[offset + 3];
}

Error newer_format(const std::string& path, std::int64_t format) {
    return Error{Code::unsupported,
                 fmt::format("{} has format {}, this version supports formats up to {}", path, format, file_format),
                 "run the version of orrery that wrote it, or a newer one; the file was not changed"};
}

/// Processes eight bytes at a time. Every step is a bijection, so a difference in one step cannot be lost.
class RowChecksum {
public:
    void add(std::uint64_t word) {
        sum_ = (sum_ ^ word) * 0x9e3779b97f4a7c15ULL;
        sum_ ^= sum_ >> 29;
    }
    void add(std::string_view bytes) {
        add(std::uint64_t{bytes.size()});
        while (bytes.size() >= 8) {
            add(word_of(bytes.data(), 8));
            bytes.remove_prefix(8);
        }
        if (!bytes.empty()) add(word_of(bytes.data(), bytes.size()));
    }
    std::int64_t value() const { return static_cast<std::int64_t>(sum_); }

private:
    static std::uint64_t word_of(const char* data, std::size_t size) {
        static_assert(std::endian::native == std::endian::little, "the checksum is defined over little-endian words");
        std::uint64_t word = 0;
        std::memcpy(&word, data, size);
        return word;
    }
    std::uint64_t sum_ = 0x6f7272657279ULL;
};

} // namespace

std::int64_t row_checksum(std::int64_t seq, std::string_view key, const std::string_view* value, std::int64_t created,
                          std::int64_t version, std::int64_t lease) {
    RowChecksum sum;
    sum.add(static_cast<std::uint64_t>(seq));
    sum.add(key);
    sum.add(std::uint64_t{value != nullptr});
    if (value) sum.add(*value);
    sum.add(static_cast<std::uint64_t>(created));
    sum.add(static_cast<std::uint64_t>(version));
    sum.add(static_cast<std::uint64_t>(lease));
    return sum.value();
}

Error damaged_file(const std::string& path, std::string_view how) {
    return Error{Code::internal, fmt::format("the store {} is damaged: {}", path, how),
                 "restore a backup with \"orrery store restore\"; the file was not changed"};
}

Result<FileState> inspect_file(const std::string& path) {
    FileHandle file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (file.fd < 0 && errno == ENOENT) {
        struct stat status{};
        if (::stat((path + "-wal").c_str(), &status) == 0 && status.st_size > 0)
            return Error{Code::conflict, fmt::format("{} is missing but its log {}-wal exists", path, path),
                         "restore the missing file, or move the log away to start with an empty store"};
        return FileState::absent;
    }
    if (file.fd < 0)
        return Error{Code::unavailable, fmt::format("cannot read {}: {}", path, std::strerror(errno)),
                     "check the permissions of the file and its directory"};
    std::array<unsigned char, 100> head{};
    const auto got = ::pread(file.fd, head.data(), head.size(), 0);
    if (got < 0) return Error{Code::unavailable, fmt::format("cannot read {}: {}", path, std::strerror(errno))};
    if (got == 0) return FileState::absent;
    if (got < 100 || std::memcmp(head.data(), "SQLite format 3", 16) != 0 || big_endian_at(head, 68) != file_application)
        return Error{Code::unsupported, fmt::format("{} is not an orrery store, or its header is damaged", path),
                     "give the path of a store, or of a file that does not exist yet; the file was not changed"};
    if (const auto format = big_endian_at(head, 60); format > file_format) return newer_format(path, format);
    return FileState::present;
}

Result<Unit> rename_durably(const std::string& from, const std::string& to) {
    auto failed = [&](std::string_view what) {
        return Error{errno == ENOSPC ? Code::no_space : Code::unavailable,
                     fmt::format("cannot {} {}: {}", what, to, std::strerror(errno))};
    };
    {
        FileHandle file{::open(from.c_str(), O_RDONLY | O_CLOEXEC)};
        if (file.fd < 0 || ::fsync(file.fd) != 0) return failed("write");
    }
    if (::rename(from.c_str(), to.c_str()) != 0) return failed("rename to");
    const auto folder = std::filesystem::path(to).parent_path();
    FileHandle directory{::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (directory.fd < 0 || ::fsync(directory.fd) != 0) return failed("sync the directory of");
    return Unit{};
}

Result<Unit> create_file(const std::string& path, std::string_view identity) {
    // Created under a temporary name: a file with the final name is always complete.
    const auto unfinished = path + ".new";
    for (const auto* suffix : {"", "-journal", "-wal", "-shm"}) ::unlink((unfinished + suffix).c_str());
    // Only the owner may read the store.
    {
        FileHandle made{::open(unfinished.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)};
    }
    {
        TRY(auto database, Database::open(unfinished, Database::Mode::create));
        TRY(std::ignore,
            database.run("PRAGMA page_size=8192; PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL; PRAGMA auto_vacuum=NONE"));
        const auto schema =
            fmt::format("BEGIN;"
                        "PRAGMA application_id={};"
                        "PRAGMA user_version={};"
                        "CREATE TABLE log(seq INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB, created INTEGER NOT NULL,"
                        " version INTEGER NOT NULL, lease INTEGER NOT NULL, sum INTEGER NOT NULL);"
                        "CREATE TABLE lease(id INTEGER PRIMARY KEY, ttl_ms INTEGER NOT NULL);"
                        "CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;"
                        "INSERT INTO meta VALUES ('format', {}), ('identity', '{}'), ('compacted', 0);"
                        "COMMIT",
                        file_application, file_format, file_format, identity);
        TRY(std::ignore, database.run(schema.c_str()));
    }
    return rename_durably(unfinished, path);
}

Result<FileMetadata> read_metadata(Database& database) {
    FileMetadata meta;
    TRY(const auto format, database.number("SELECT value FROM meta WHERE name='format'"));
    if (format > file_format) return newer_format("the store", format);
    TRY(meta.identity, database.text("SELECT value FROM meta WHERE name='identity'"));
    TRY(meta.compacted, database.number("SELECT value FROM meta WHERE name='compacted'"));
    if (meta.identity.empty() || meta.compacted < 0) return Error{Code::internal, "its metadata is invalid"};
    auto migrated = database.text("SELECT value FROM meta WHERE name='moved_to'");
    if (migrated.ok())
        meta.migrated_to = std::move(*migrated);
    else if (migrated.error().code != Code::not_found)
        return std::move(migrated).error();
    return meta;
}

} // namespace orrery::store
