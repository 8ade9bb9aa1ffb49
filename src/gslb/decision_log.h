#pragma once

#include "core/task.h"
#include "gslb/decision_record.h"
#include "gslb/engine.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace orrery::gslb {

/// Private to the module: the records of decisions, from the draft to the store and until they are too old. All servers decide,
/// and only the one that leads writes; the others keep theirs for a while, for the one that leads may have died before it could
/// write its own. Who leads next writes those that nobody has written. Loop thread only.
class DecisionLog {
public:
    /// All must outlive this.
    DecisionLog(resource::Resources& resources, const Engine& engine, Clock& clock);

    /// This server leads: to be written.
    void add(RecordDraft draft, WallTime at);
    /// It does not: to be written by who does, or does next, which may be this one.
    void keep(RecordDraft draft, WallTime at);
    /// This server leads no more: what it did not come to write is kept.
    void step_down();
    /// This server leads from now on: what is kept and nobody has written is to be written.
    void take_over();
    /// Another leads, and has had the time to write what is kept longest.
    void forget_old();

    bool has_work() const { return !waiting_.empty(); }
    std::size_t waiting() const { return waiting_.size(); }
    std::uint64_t lost() const { return lost_; }

    /// Writes some of those that wait. What could not be written waits on.
    Task<Unit> write_some(Context ctx, store::Fence fence);
    /// Removes those that are old or too many, but never the newest of a name: it says why the name answers as it does.
    Task<Unit> sweep(Context ctx, store::Fence fence, Duration keep, std::size_t most);

    /// The record of the last decision about a name at that time.
    Result<json::object> record_at(std::string_view name, WallTime at) const;

private:
    struct Waiting {
        RecordDraft draft;
        WallTime at;
        std::string id;       ///< names of records never go back
        std::int64_t seq = 0; ///< 0: as the draft has it
    };
    struct Kept {
        RecordDraft draft;
        WallTime at;
        SteadyTime since;
    };
    void put(Waiting one);
    bool is_newest(const resource::Kind& kind, const store::Record& record) const;

    resource::Resources& resources_;
    const Engine& engine_;
    Clock& clock_;
    std::deque<Waiting> waiting_;
    std::deque<Kept> kept_; ///< of times in which this server did not lead
    std::uint64_t lost_ = 0;
};

} // namespace orrery::gslb
