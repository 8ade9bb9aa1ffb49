#include "store/sqlite/file_contents.h"

#include <boost/unordered/unordered_flat_set.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <unistd.h>

namespace orrery::store {

namespace {

/// Removes the side files that the read created, so that a refused file is left unchanged.
class SideFileRemover {
public:
    SideFileRemover(const std::string& path, SideFiles side_files) {
        if (side_files == SideFiles::keep) return;
        for (const auto* suffix : {"-wal", "-shm"})
            if (!std::filesystem::exists(path + suffix)) created_here_.push_back(path + suffix);
    }
    ~SideFileRemover() {
        for (const auto& file : created_here_) ::unlink(file.c_str());
    }

private:
    std::vector<std::string> created_here_;
};

struct TextHash {
    using is_transparent = void;
    using is_avalanching = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

/// A record with the first 16 bytes of its key, so that a sort rarely has to read the key from memory.
struct Sortable {
    std::uint64_t first, second;
    RecordPtr record;

    explicit Sortable(RecordPtr record_) : record(std::move(record_)) {
        unsigned char head[16] = {};
        std::memcpy(head, record->key.data(), std::min<std::size_t>(16, record->key.size()));
        std::memcpy(&first, head, 8);
        std::memcpy(&second, head + 8, 8);
        first = __builtin_bswap64(first);
        second = __builtin_bswap64(second);
    }
    bool operator<(const Sortable& other) const {
        if (first != other.first) return first < other.first;
        if (second != other.second) return second < other.second;
        return record->key < other.record->key;
    }
};

/// Builds the contents from the rows of the log.
class LogReader {
public:
    explicit LogReader(FileContents& contents) : contents_(contents) {}

    /// Adds a compacted row. Rows come newest first, and the first row of each key is its value.
    Result<Unit> add_old(const Statement& row) {
        TRY(const auto checked, check(row));
        if (const auto [seq, revision, key, removal] = checked; seen_keys_.contains(key)) {
            contents_.superseded_rows.push_back(seq);
        } else if (removal) {
            contents_.superseded_rows.push_back(seq);
            removed_keys_.emplace_back(key);
            seen_keys_.emplace(removed_keys_.back());
        } else {
            contents_.records.push_back(record_of(row));
            seen_keys_.emplace(contents_.records.back()->key);
        }
        return Unit{};
    }

    /// Adds a row of the history. Rows come oldest first, and none may be missing.
    Result<Unit> add_recent(const Statement& row) {
        TRY(const auto checked, check(row));
        const auto [seq, revision, key, removal] = checked;
        if (revision == contents_.revision + 1)
            position_ = 0;
        else if (revision != contents_.revision)
            return corrupt(fmt::format("revision {} is followed by {}", contents_.revision, revision));
        if (seq != seq_of(revision, position_++)) return corrupt(fmt::format("a change of revision {} is missing", revision));
        contents_.revision = revision;
        contents_.changes.push_back(Event{revision, std::string(key), removal ? nullptr : record_of(row), nullptr});
        return Unit{};
    }

    void finish() {
        seen_keys_.clear();
        std::vector<Sortable> order;
        order.reserve(contents_.records.size());
        for (auto& record : contents_.records) order.emplace_back(std::move(record));
        std::sort(order.begin(), order.end());
        contents_.records.clear();
        for (auto& each : order) contents_.records.push_back(std::move(each.record));
    }

private:
    struct Checked {
        std::int64_t seq;
        Revision revision;
        std::string_view key;
        bool removal;
    };
    static Result<Checked> check(const Statement& row) {
        const auto seq = row.number(0);
        const Checked checked{seq, revision_of(seq), row.bytes(1), row.is_null(2)};
        const auto value = row.bytes(2);
        const auto created = row.number(3), version = row.number(4);
        if (row_checksum(seq, checked.key, checked.removal ? nullptr : &value, created, version, row.number(5)) != row.number(6))
            return corrupt(fmt::format("the checksum of row {} does not match", seq));
        if (checked.revision <= 0 || checked.key.empty() ||
            (!checked.removal && (created <= 0 || created > checked.revision || version <= 0)))
            return corrupt(fmt::format("row {} is invalid", seq));
        return checked;
    }
    static std::shared_ptr<const StoredRecord> record_of(const Statement& row) {
        auto record = std::make_shared<StoredRecord>();
        record->seq = row.number(0);
        record->key = row.bytes(1);
        record->value = row.bytes(2);
        record->created = row.number(3);
        record->modified = revision_of(record->seq);
        record->version = row.number(4);
        record->lease = row.number(5);
        return record;
    }
    static Error corrupt(std::string how) { return Error{Code::internal, std::move(how)}; }

    FileContents& contents_;
    boost::unordered_flat_set<std::string_view, TextHash, std::equal_to<>>
        seen_keys_; // views into the records, or into removed_keys_
    std::deque<std::string> removed_keys_;
    std::size_t position_ = 0;
};

Result<FileContents> read_all(Database& database) {
    FileContents contents;
    TRY(std::ignore, database.run("PRAGMA mmap_size=1073741824"));
    TRY(std::ignore, database.run("BEGIN"));
    // Row checksums do not detect missing rows in a damaged page.
    TRY(const auto structure, database.text("PRAGMA quick_check(1)"));
    if (structure != "ok") return Error{Code::internal, structure};
    TRY(contents.meta, read_metadata(database));
    contents.revision = contents.meta.compacted;
    constexpr std::string_view columns = "SELECT seq, key, value, created, version, lease, sum FROM log WHERE seq ";
    const auto end_of_old = seq_of(contents.meta.compacted + 1, 0);
    LogReader reader(contents);
    TRY(auto old, database.prepare(fmt::format("{} < {} ORDER BY seq DESC", columns, end_of_old)));
    for (;;) {
        TRY(const bool row, old.step());
        if (!row) break;
        TRY(std::ignore, reader.add_old(old));
    }
    TRY(auto recent, database.prepare(fmt::format("{} >= {} ORDER BY seq", columns, end_of_old)));
    for (;;) {
        TRY(const bool row, recent.step());
        if (!row) break;
        TRY(std::ignore, reader.add_recent(recent));
    }
    reader.finish();
    TRY(auto leases, database.prepare("SELECT id, ttl_ms FROM lease"));
    for (;;) {
        TRY(const bool row, leases.step());
        if (!row) break;
        contents.leases.push_back({leases.number(0), leases.number(1)});
        if (contents.leases.back().id <= 0 || contents.leases.back().ttl_ms <= 0)
            return Error{Code::internal, "a lease is invalid"};
    }
    return contents;
}

} // namespace

Result<FileContents> read_contents(const std::string& path, SideFiles side_files) {
    SideFileRemover remover(path, side_files);
    TRY(auto database, Database::open(path, Database::Mode::read_only));
    auto contents = read_all(database);
    if (contents.ok()) return contents;
    // A lack of memory or permissions or a failing disk is not corruption; every other read error is.
    const auto& error = contents.error();
    if (error.code == Code::unsupported || error.code == Code::unavailable || error.code == Code::no_space)
        return std::move(contents).error();
    return damaged_file(path, error.message);
}

} // namespace orrery::store
