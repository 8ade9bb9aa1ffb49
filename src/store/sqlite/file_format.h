#pragma once

#include "store/sqlite/database.h"
#include "store/store.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The file format: an append-only log of changes, a lease table and metadata.
///
///   log(seq INTEGER PRIMARY KEY, key, value, created, version, lease, sum)   value NULL: a removal
///   lease(id INTEGER PRIMARY KEY, ttl_ms)
///   meta(name PRIMARY KEY, value)                                            format, identity, compacted, moved_to (the migration
///   marker)
///
/// There is no index on the key, because the mirror answers all reads. A write therefore touches only the end of one B-tree, for
/// any number of keys.
namespace orrery::store {

constexpr std::int64_t file_format = 1;
constexpr std::uint32_t file_application = 0x6f727279; // "orry", the application id in the SQLite header

/// The sequence number of a row: its revision, then its position in the transaction.
constexpr int seq_bits = 16;
constexpr std::int64_t max_rows_per_revision = 1 << seq_bits;
constexpr std::int64_t seq_of(Revision revision, std::size_t position) {
    return (revision << seq_bits) + static_cast<std::int64_t>(position);
}
constexpr Revision revision_of(std::int64_t seq) { return seq >> seq_bits; }

/// A record with the sequence number of its row.
struct StoredRecord : Record {
    std::int64_t seq = 0;
};
inline std::int64_t seq_of(const Record& record) { return static_cast<const StoredRecord&>(record).seq; }

/// A checksum over all columns of a row. It detects every change within one aligned group of eight bytes, and any other change with
/// a probability of 1 - 2^-64.
std::int64_t row_checksum(std::int64_t seq, std::string_view key, const std::string_view* value, std::int64_t created,
                          std::int64_t version, std::int64_t lease);

/// Checks the first hundred bytes of a file without SQLite, so that nothing is changed. `absent`: no file, or an empty one.
/// `unsupported`: not an orrery store, or a newer format.
enum class FileState { absent, present };
Result<FileState> inspect_file(const std::string& path);

/// Creates an empty store at `path` atomically.
Result<Unit> create_file(const std::string& path, std::string_view identity);

/// Syncs the file, renames it and syncs the directory.
Result<Unit> rename_durably(const std::string& from, const std::string& to);

struct StoredLease {
    LeaseId id = 0;
    std::int64_t ttl_ms = 0;
};

struct FileMetadata {
    std::string identity;
    Revision compacted = 0;
    std::optional<std::string> migrated_to;
};
Result<FileMetadata> read_metadata(Database& database);

Error damaged_file(const std::string& path, std::string_view how);

} // namespace orrery::store
