#pragma once

#include "core/task.h"
#include "gslb/runtime/engine.h"
#include "gslb/runtime/ports.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <set>
#include <string>
#include <vector>

namespace orrery::gslb {

/// Private to the module: writes the status of LoadBalancers, Pools and Members from an engine, in groups. Loop thread only.
class StatusWriter {
public:
    /// `publisher` may be null. All others must outlive this.
    StatusWriter(resource::Resources& resources, const Engine& engine, Clock& clock, const AnswerPublisher* publisher);

    void note_lb(std::string name) { lbs_.insert(std::move(name)); }
    void note_pool(std::string name) { pools_.insert(std::move(name)); }
    void clear();
    bool has_work() const { return !lbs_.empty() || !pools_.empty() || !members_.empty(); }

    /// Each writes some of the noted objects. An object that could not be written stays noted.
    Task<Unit> write_pools(Context ctx, store::Fence fence);
    /// Members, then load balancers.
    Task<Unit> write_load_balancers(Context ctx, store::Fence fence);

private:
    /// Returns the names that were written.
    Task<std::vector<std::string>> write(Context ctx, const char* kind, std::set<std::string>& from,
                                         resource::Resources::MakeStatus make, store::Fence fence);
    std::optional<json::object> status_of_lb(const resource::Object& now) const;
    std::optional<json::object> status_of_pool(const resource::Object& now) const;
    std::optional<json::object> status_of_member(const resource::Object& now) const;
    Duration publication(const std::string& fqdn) const {
        return publisher_ == nullptr ? Duration{} : publisher_->slowest_publication(fqdn);
    }

    resource::Resources& resources_;
    const Engine& engine_;
    Clock& clock_;
    const AnswerPublisher* publisher_;
    std::set<std::string> lbs_, pools_, members_;
};

json::array withheld_json(const std::vector<Withheld>& all);

} // namespace orrery::gslb
