#pragma once

#include "core/task.h"
#include "gslb/engine.h"
#include "gslb/ports.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <set>
#include <string>
#include <vector>

namespace orrery::gslb {

/// Private to the module: writes what an engine knows into the status of LoadBalancers, Pools and Members, in groups. Loop thread
/// only.
class Statuses {
public:
    /// `sink` may be null. All others must outlive this.
    Statuses(resource::Resources& resources, const Engine& engine, Clock& clock, const NameSink* sink);

    void note_name(std::string name) { names_.insert(std::move(name)); }
    void note_pool(std::string name) { pools_.insert(std::move(name)); }
    void clear();
    bool has_work() const { return !names_.empty() || !pools_.empty() || !members_.empty(); }

    /// Each writes some of those that were noted. What could not be written stays noted.
    Task<Unit> write_pools(Context ctx, store::Fence fence);
    /// And members.
    Task<Unit> write_names(Context ctx, store::Fence fence);

private:
    /// Those that were written.
    Task<std::vector<std::string>> write(Context ctx, const char* kind, std::set<std::string>& from,
                                         resource::Resources::MakeStatus make, store::Fence fence);
    std::optional<json::object> status_of_name(const resource::Object& now) const;
    std::optional<json::object> status_of_pool(const resource::Object& now) const;
    std::optional<json::object> status_of_member(const resource::Object& now) const;
    Duration publication(const std::string& fqdn) const { return sink_ == nullptr ? Duration{} : sink_->slowest_publication(fqdn); }

    resource::Resources& resources_;
    const Engine& engine_;
    Clock& clock_;
    const NameSink* sink_;
    std::set<std::string> names_, pools_, members_;
};

json::array held_json(const std::vector<Withheld>& all);

} // namespace orrery::gslb
