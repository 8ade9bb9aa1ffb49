#pragma once

#include "jobs/scheduler/scheduler.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::jobs {

/// The journal of a job in the store: entries with the new content of task records, in order. An entry has the whole record, so
/// that the newest entry counts and older ones can be removed. The format is binary and positional, with a version in the first
/// byte: field names of this program do not occur in it. Pure: it makes and parses entries, the engine stores them.
///
///     jobs.log/<uid>/<16 hexadecimal digits>     an entry: the records that one cycle changed
///     jobs.plan/<uid>/<3 digits>                 the placement (placement_text), in pieces
class Journal {
public:
    Journal(std::string uid, std::uint32_t tasks) : uid_(std::move(uid)), records_at_(tasks, 0) {}

    static std::string log_prefix(std::string_view uid) { return "jobs.log/" + std::string(uid) + "/"; }
    static std::string plan_prefix(std::string_view uid) { return "jobs.plan/" + std::string(uid) + "/"; }

    /// Key and value.
    using Entry = std::pair<std::string, std::string>;
    /// The entries of one cycle, each well below the store's limit for a value. `cleaned`: tasks whose attempts left nothing
    /// behind.
    std::vector<Entry> record(Scheduler& scheduler, const std::vector<std::uint32_t>& dirty, bool job,
                              const std::vector<std::uint32_t>& cleaned = {});
    /// Applies a stored entry: sets records of `scheduler`. `internal` where it cannot be parsed.
    Result<Unit> replay(Scheduler& scheduler, std::string_view key, std::string_view value);

    /// Where old entries are mostly superseded: their current content in new entries, and the keys to remove. To be stored in one
    /// transaction. No keys: nothing to do.
    struct Compaction {
        std::vector<Entry> entries;
        std::vector<std::string> remove;
    };
    Compaction compact(Scheduler& scheduler);
    std::size_t bytes() const { return bytes_; }
    std::size_t records() const { return sizes_.size(); }

private:
    Entry seal(std::string body);
    void add_record(const Scheduler& scheduler, std::uint32_t task, std::string& body);

    std::string uid_;
    std::uint64_t next_ = 1;
    std::size_t bytes_ = 0;
    std::map<std::uint64_t, std::size_t> sizes_;
    std::vector<std::uint64_t> records_at_; ///< the entry with the newest state of a task; 0: none
    std::map<std::uint32_t, std::uint64_t> inputs_at_, values_at_, servers_at_;
    std::uint64_t job_at_ = 0;
};

} // namespace orrery::jobs
