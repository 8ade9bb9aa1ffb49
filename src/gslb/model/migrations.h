#pragma once

#include <boost/json/object.hpp>

/// Rewrites stored objects of earlier versions where `Field::renamed_from` is not enough. Current objects
/// are left unchanged. See resource/migration.h.
namespace orrery::gslb {

namespace json = boost::json;

/// The status of a LoadBalancer: messages of withheld changes, publication targets and client classes.
void migrate_load_balancer_status(json::object& status);
/// The status of a Pool: messages of withheld changes.
void migrate_pool_status(json::object& status);
/// The spec of a Decision, with its trigger and inputs. Also renames `because`, for records that the store does not hold yet.
void migrate_decision(json::object& spec);
/// The `inputs` of a Decision.
void migrate_inputs(json::object& inputs);
/// The tasks of a Job or JobTemplate: `run: {names: {drain, return}}` became `run: {gslb: {drain, undrain}}`. For app, which joins
/// it to the kinds of jobs.
void migrate_tasks(json::object& spec);

} // namespace orrery::gslb
