#include "store/sqlite/format.h"

#include <boost/unordered/unordered_flat_map.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unistd.h>

namespace orrery::store {

namespace {

/// Leaves no side files of its own making behind, so that a file that is refused stands there as it stood.
class SideFiles {
public:
    SideFiles(const std::string& path, Tidy tidy) {
        if (tidy == Tidy::no) return;
        for (const auto* suffix : {"-wal", "-shm"})
            if (!std::filesystem::exists(path + suffix)) made_here_.push_back(path + suffix);
    }
    ~SideFiles() {
        for (const auto& file : made_here_) ::unlink(file.c_str());
    }

private:
    std::vector<std::string> made_here_;
};

/// Puts the rows of the log together.
class LogReader {
public:
    explicit LogReader(FileContents& contents) : contents_(contents) {}

    /// A sentence where the row cannot be right.
    Result<Unit> add(const Statement& row) {
        const auto seq = row.number(0);
        const auto revision = revision_of(seq);
        const auto key = row.bytes(1);
        const bool removal = row.is_null(2);
        const auto value = row.bytes(2);
        const auto created = row.number(3), version = row.number(4), lease = row.number(5);
        if (row_sum(seq, key, removal ? nullptr : &value, created, version, lease) != row.number(6))
            return wrong(fmt::format("the sum of row {} does not match", seq));
        if (revision <= 0 || key.empty() || (!removal && (created <= 0 || created > revision || version <= 0)))
            return wrong(fmt::format("row {} makes no sense", seq));
        if (revision > contents_.meta.compacted && revision != contents_.revision && revision != contents_.revision + 1)
            return wrong(fmt::format("revision {} is followed by {}", contents_.revision, revision));
        contents_.revision = std::max(contents_.revision, revision);

        std::shared_ptr<StoredRecord> record;
        if (!removal) {
            record = std::make_shared<StoredRecord>();
            record->key = key;
            record->value = value;
            record->created = created;
            record->modified = revision;
            record->version = version;
            record->lease = lease;
            record->seq = seq;
        }
        if (revision > contents_.meta.compacted) {
            contents_.changes.emplace_back(seq, Event{revision, std::string(key), std::move(record), nullptr});
            return Unit{};
        }
        // Older than what is kept for watches: only the newest of each key counts.
        auto newest = newest_.find(key);
        if (newest != newest_.end()) {
            auto& slot = contents_.records[newest->second];
            contents_.garbage.push_back(seq_of(*slot));
            newest_.erase(newest); // its name lies in the record that goes away
            if (removal) {
                slot = nullptr;
            } else {
                slot = record;
                newest_.emplace(std::string_view(slot->key), static_cast<std::size_t>(&slot - contents_.records.data()));
            }
        } else if (!removal) {
            contents_.records.push_back(record);
            newest_.emplace(std::string_view(record->key), contents_.records.size() - 1);
        }
        if (removal) contents_.garbage.push_back(seq);
        return Unit{};
    }

    void finish() {
        newest_.clear();
        std::erase(contents_.records, nullptr);
        auto by_key = [](const RecordPtr& left, const RecordPtr& right) { return left->key < right->key; };
        if (!std::is_sorted(contents_.records.begin(), contents_.records.end(), by_key))
            std::sort(contents_.records.begin(), contents_.records.end(), by_key);
    }

private:
    static Error wrong(std::string how) { return Error{Code::internal, std::move(how)}; }
    FileContents& contents_;
    boost::unordered_flat_map<std::string_view, std::size_t> newest_;
};

Result<FileContents> read_all(Database& database) {
    FileContents contents;
    TRY(std::ignore, database.run("PRAGMA mmap_size=1073741824"));
    TRY(std::ignore, database.run("BEGIN"));
    // The rows' own sums would not show that a page has lost some.
    TRY(const auto structure, database.text("PRAGMA quick_check(1)"));
    if (structure != "ok") return Error{Code::internal, structure};
    TRY(contents.meta, read_meta(database));
    contents.revision = contents.meta.compacted;
    TRY(auto rows, database.prepare("SELECT seq, key, value, created, version, lease, sum FROM log ORDER BY seq"));
    LogReader reader(contents);
    for (;;) {
        TRY(const bool row, rows.step());
        if (!row) break;
        TRY(std::ignore, reader.add(rows));
    }
    reader.finish();
    TRY(auto leases, database.prepare("SELECT id, ttl_ms FROM lease"));
    for (;;) {
        TRY(const bool row, leases.step());
        if (!row) break;
        contents.leases.push_back({leases.number(0), leases.number(1)});
        if (contents.leases.back().id <= 0 || contents.leases.back().ttl_ms <= 0)
            return Error{Code::internal, "a lease makes no sense"};
    }
    return contents;
}

} // namespace

Result<FileContents> read_contents(const std::string& path, Tidy tidy) {
    SideFiles side_files(path, tidy);
    TRY(auto database, Database::open(path, Database::Mode::read_only));
    auto contents = read_all(database);
    if (contents.ok()) return contents;
    // A lack of memory, rights or a working disk is not damage; everything else that stops us from reading it is.
    const auto& error = contents.error();
    if (error.code == Code::unsupported || error.code == Code::unavailable || error.code == Code::no_space)
        return std::move(contents).error();
    return damaged_file(path, error.message);
}

} // namespace orrery::store
