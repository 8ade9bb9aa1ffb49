#pragma once

#include "gslb/runtime/controller.h"
#include "jobs/executor.h"
#include "resource/resources.h"

#include <memory>

namespace orrery::gslb {

/// The executor of tasks that drain the members on a node before work on it, and undrain them afterwards:
///
///     run: {gslb: {drain: new kernel}}         waits until no resolver has the addresses in its cache
///     run: {gslb: {undrain: true}}             only members that this job drained and whose override did not change since
///
/// The members are those of the Node and of Instances on it. The task fails if the remaining members lack the capacity, unless it
/// sets `even_if_unsafe`. All it does is set the `override` of members, so it is visible, recorded and undone like any override.
/// All arguments must outlive the executor.
std::unique_ptr<jobs::Executor> drain_executor(asio::any_io_executor executor, resource::Resources& resources,
                                               const Controller& controller, Clock& clock);

} // namespace orrery::gslb
