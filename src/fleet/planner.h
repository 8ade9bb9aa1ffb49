#pragma once

#include "fleet/inventory.h"
#include "fleet/preview.h"
#include "resource/explain.h"
#include "resource/resources.h"

#include <boost/json/object.hpp>

#include <string>

namespace orrery::fleet {

/// Answers questions about plans and the inventory from the stored resources. Records are collected on the loop thread and
/// evaluated on the pool. Loop thread only; `resources` and `pool` must outlive it.
class Planner {
public:
    Planner(const resource::Resources& resources, Pool& pool) : resources_(resources), pool_(pool) {}

    /// The preview of a plan as JSON (Preview::to_json). `not_found` where there is no such plan.
    Task<json::object> preview(Context ctx, std::string plan);
    /// {"flavors": [{"name", "spec", "machines"}], "not_introspected": [...]}.
    Task<json::object> suggest_flavors(Context ctx);
    /// {"machines": [{"machine", "verdict", "message", "evidence"}], "measured", "compared"}: those that are not normal.
    Task<json::object> outliers(Context ctx);

    /// Why a machine has its role or none, in every plan.
    Result<json::object> explain_machine(const resource::ExplainRequest& request);
    /// Why a plan is feasible or not.
    Result<json::object> explain_plan(const resource::ExplainRequest& request);

private:
    const resource::Resources& resources_;
    Pool& pool_;
    InventoryReader reader_;
};

/// Explains Machines and Plans. The planner must outlive the explainers.
void add_explainers(resource::Explainers& explainers, Planner& planner);

} // namespace orrery::fleet
