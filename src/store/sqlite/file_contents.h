#pragma once

#include "store/sqlite/file_format.h"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::store {

/// The verified contents of a store file.
struct FileContents {
    FileMetadata meta;
    Revision revision = 0;
    std::vector<RecordPtr> records; ///< as of `meta.compacted`, sorted by key
    std::vector<Event> changes;     ///< after `meta.compacted`, in log order
    std::vector<StoredLease> leases;
    std::vector<std::int64_t> superseded_rows; ///< rows that can be deleted
};
/// What happens to SQLite's side files after a read.
enum class SideFiles {
    keep,  ///< another process may be using the file
    remove ///< remove the -wal and -shm files that the read created
};
/// Reads and verifies a whole file without changing it. `internal` with a remedy if the file is damaged.
Result<FileContents> read_contents(const std::string& path, SideFiles side_files);

} // namespace orrery::store
