#pragma once

#include "jobs/scheduler.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::jobs {

/// A job's journal in the store: records of what its rows became, in order. Each says all that is known of a row, so that the
/// newest counts and older ones can go. Pure: it makes and reads texts, others store them.
///
///     jobs.log/<uid>/<16 hexadecimal digits>     a record: many rows, as one round changed them
///     jobs.plan/<uid>/<3 digits>                 which machines (placement_text), in pieces
class Journal {
public:
    Journal(std::string uid, std::uint32_t tasks) : uid_(std::move(uid)), rows_at_(tasks, 0) {}

    static std::string log_prefix(std::string_view uid) { return "jobs.log/" + std::string(uid) + "/"; }
    static std::string plan_prefix(std::string_view uid) { return "jobs.plan/" + std::string(uid) + "/"; }

    /// Key and value.
    using Entry = std::pair<std::string, std::string>;
    /// Records of one round, each well below the store's limit for a value.
    /// `cleaned`: tasks whose machines are rid of their attempts.
    std::vector<Entry> record(Scheduler& scheduler, const std::vector<std::uint32_t>& dirty, bool head,
                              const std::vector<std::uint32_t>& cleaned = {});
    /// Takes a stored record in: sets rows and head of `scheduler`. `internal` where it cannot be read.
    Result<Unit> replay(Scheduler& scheduler, std::string_view key, std::string_view value);

    /// When old records hold little that is still true: what is, written anew, and the keys that can go with it. To be stored in
    /// one transaction. Empty keys: there is nothing to do.
    struct Compaction {
        std::vector<Entry> entries;
        std::vector<std::string> remove;
    };
    Compaction compact(Scheduler& scheduler);
    std::size_t bytes() const { return bytes_; }
    std::size_t records() const { return sizes_.size(); }

private:
    Entry seal(std::string body);
    void add_row(const Scheduler& scheduler, std::uint32_t task, std::string& body);

    std::string uid_;
    std::uint64_t next_ = 1;
    std::size_t bytes_ = 0;
    std::map<std::uint64_t, std::size_t> sizes_;
    std::vector<std::uint64_t> rows_at_; ///< the record that has the row's newest state; 0: none
    std::map<std::uint32_t, std::uint64_t> inputs_at_, values_at_, servers_at_;
    std::uint64_t head_at_ = 0;
};

} // namespace orrery::jobs
