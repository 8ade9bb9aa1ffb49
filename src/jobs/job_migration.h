#pragma once

#include <boost/json/object.hpp>

namespace orrery::jobs {

/// Renames the fields of a job's spec that an earlier version wrote: `retries: {first, longest}` of a task became
/// `{delay, max_delay}`. For `Kind::migrate` of Job and JobTemplate, whose tasks are free-form.
void migrate_job_spec(boost::json::object& spec);

} // namespace orrery::jobs
