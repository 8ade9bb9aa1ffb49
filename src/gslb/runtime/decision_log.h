#pragma once

#include "core/task.h"
#include "gslb/decide/decision_record.h"
#include "gslb/runtime/engine.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::gslb {

/// Private to the module: writes decision records and removes old ones. All servers decide, and only the leader writes. Followers
/// keep their records for a while, because the leader may die before it has written its own. When a term begins, followers hand
/// over the records that the store does not have (`hand_over`), and the leader merges them with its own (`take_over`): each
/// decision once, in order of time. The records of a load balancer are numbered without a gap as they are written. Loop thread
/// only.
class DecisionLog {
public:
    /// The key prefix under which followers store the records that they hand over.
    static constexpr std::string_view handover_prefix = "sys/gslb/handover/";

    /// All must outlive this.
    DecisionLog(resource::Resources& resources, Engine& engine, Clock& clock);

    /// This server is the leader: the record is to be written.
    void add(RecordDraft draft, WallTime at);
    /// This server is a follower: keep the record until the (next) leader has written it.
    void keep(RecordDraft draft, WallTime at);
    /// This server is no longer the leader: keep the records that it has not written.
    void step_down();
    /// This server is the leader from now on: the kept and handed-over records that the store does not have are to be written.
    void take_over();
    /// Another server is the leader from now on, with this fence: stores the kept records that are not written, for that leader.
    Task<Unit> hand_over(Context ctx, store::Fence fence, std::string server);
    /// Another server is the leader: drops records that it had enough time to write.
    void forget_old();

    bool has_work() const { return !waiting_.empty() || !taken_.empty(); }
    std::size_t waiting() const { return waiting_.size(); }
    std::uint64_t lost() const { return lost_; }

    /// Writes some of the waiting records. A record that could not be written waits on.
    Task<Unit> write_some(Context ctx, store::Fence fence);
    /// Removes records that are older than `keep` or exceed `max`, but never the newest one of a load balancer: `why` needs it.
    Task<Unit> sweep(Context ctx, store::Fence fence, Duration keep, std::size_t max);

    /// The record of the decision that was in effect at that time.
    Result<json::object> record_at(std::string_view name, WallTime at) const;
    /// The newest record by number, whatever its time: a clock may have been ahead.
    Result<json::object> last_record(std::string_view name) const;

private:
    struct Waiting {
        RecordDraft draft;
        WallTime at;
        std::string id; ///< ids never decrease
    };
    struct Kept {
        RecordDraft draft;
        WallTime at;
        SteadyTime since;
    };
    /// A record that is in the store or is to be written.
    struct Merged {
        RecordDraft draft;
        WallTime at;
        bool stored = false;
        std::string matched_by; ///< the last source that had the same decision
        /// The leader's own record of it, not written yet: replaces `draft` when the store already has a later record.
        RecordDraft pending{};
        WallTime pending_at{};
    };
    using ByLb = std::map<std::string, std::vector<Merged>>;
    void put(Waiting one);
    std::vector<resource::Object> newest_of(const std::string& name, std::size_t count) const;
    std::vector<Merged>& merged_records(ByLb& all, const std::string& name) const;
    Merged& merge(ByLb& all, const std::string& source, RecordDraft draft, WallTime at) const;
    static std::multimap<WallTime, RecordDraft> unwritten(ByLb& all);
    std::int64_t last_number(const std::string& name);
    bool is_newest(const resource::Kind& kind, const store::Record& record) const;

    resource::Resources& resources_;
    Engine& engine_;
    Clock& clock_;
    std::deque<Waiting> waiting_;
    std::deque<Kept> kept_;                    ///< from the time as a follower
    std::vector<std::string> taken_;           ///< keys of merged hand-over records, to be removed
    std::map<std::string, std::int64_t> last_; ///< number of the newest record of each load balancer, in this term
    std::uint64_t lost_ = 0;
};

} // namespace orrery::gslb
