#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "jobs/templates/job_template.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <memory>
#include <string>

namespace orrery::jobs {

/// Starts runs of JobTemplates: on any server when a user asks for one, on the leader when a schedule is due. The name of a
/// scheduled run follows from its template, schedule and due time, and the run is created before it is recorded as started: killed
/// at any instant and restarted, here or on another server, the controller starts each due run once. Loop thread only.
class TemplateController {
public:
    TemplateController(resource::Resources& resources, store::Leadership& leadership, Clock& clock);
    ~TemplateController();

    /// While this server leads: starts due runs, updates the status of templates and deletes old runs. Runs until it is cancelled.
    asio::awaitable<void> run(Context ctx);

    /// On any server: the Job of a run, not created yet. `invalid` where parameters are wrong.
    Result<resource::Object> make(const std::string& job_template, json::object parameters) const;
    /// On any server: creates that Job.
    Task<resource::Outcome> start(Context ctx, std::string job_template, json::object parameters, resource::WriteOptions options);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::jobs
