#pragma once

#include "store/sqlite/database.h"
#include "store/store.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The file: an append-only log of changes and a few words about itself.
///
///   log(seq INTEGER PRIMARY KEY, key, value, created, version, lease, sum)   value NULL: a removal
///   lease(id INTEGER PRIMARY KEY, ttl_ms)
///   meta(name PRIMARY KEY, value)                                            format, identity, compacted, moved_to
///
/// There is no index on the key: every read is answered from memory, so a write touches the end of one tree, however many keys
/// there are.
namespace orrery::store {

constexpr std::int64_t file_format = 1;
constexpr std::uint32_t file_application = 0x6f727279; // "orry", in SQLite's header

/// A row's place: its revision, then its place in the transaction.
constexpr int seq_bits = 16;
constexpr std::int64_t max_rows_per_revision = 1 << seq_bits;
constexpr std::int64_t seq_of(Revision revision, std::size_t position) {
    return (revision << seq_bits) + static_cast<std::int64_t>(position);
}
constexpr Revision revision_of(std::int64_t seq) { return seq >> seq_bits; }

/// A record of this engine, which remembers its row.
struct StoredRecord : Record {
    std::int64_t seq = 0;
};
inline std::int64_t seq_of(const Record& record) { return static_cast<const StoredRecord&>(record).seq; }

/// Over all of a row. Any change within one aligned group of eight bytes is always noticed, others but for one in 2^64.
std::int64_t row_sum(std::int64_t seq, std::string_view key, const std::string_view* value, std::int64_t created,
                     std::int64_t version, std::int64_t lease);

/// What a file says about itself in its first hundred bytes, read without SQLite so that nothing is touched. An error where it is
/// not a store of ours or of a newer format; nothing where there is no file, or an empty one.
enum class FileState { absent, present };
Result<FileState> look_at(const std::string& path);

/// Makes an empty store at `path`, whole or not at all.
Result<Unit> create_file(const std::string& path, std::string_view identity);

/// Renames and makes it last.
Result<Unit> rename_durably(const std::string& from, const std::string& to);

struct StoredLease {
    LeaseId id = 0;
    std::int64_t ttl_ms = 0;
};

struct Meta {
    std::string identity;
    Revision compacted = 0;
    std::optional<std::string> moved_to;
};
Result<Meta> read_meta(Database& database);

/// All that is in a file, checked.
struct FileContents {
    Meta meta;
    Revision revision = 0;
    std::vector<RecordPtr> records; ///< as of `meta.compacted`, in the order of their keys
    std::vector<Event> changes;     ///< after it, in their order; a change's place in its revision is its place in the log
    std::vector<StoredLease> leases;
    std::vector<std::int64_t> garbage; ///< rows that nothing needs any more
};
enum class Tidy {
    no, ///< somebody else may use the file at this moment
    yes ///< removes the side files that reading made
};
/// Reads everything without changing anything. `internal` with a remedy where the file is damaged.
Result<FileContents> read_contents(const std::string& path, Tidy tidy);

Error damaged_file(const std::string& path, std::string_view how);

/// Held as long as a server runs on a store: no second one may.
class FileLock {
public:
    /// `conflict` when another process (or another store of this one) has it.
    static Result<FileLock> take(const std::string& path);
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
