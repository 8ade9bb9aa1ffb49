#pragma once

#include "gslb/controller.h"
#include "jobs/executor.h"
#include "resource/resources.h"

#include <memory>

namespace orrery::gslb {

/// Tasks of jobs that take a machine's members out of names before somebody works on it, and put them back:
///
///     run: {names: {drain: new kernel}}        waits until resolvers have forgotten them
///     run: {names: {return: true}}             only what this job drained, and only where nobody said something else since
///
/// The members are those of the Node and of Instances on it. Draining what the rest could not carry is refused, unless the task
/// says `even_if_unsafe`. Everything it does is the members' `override`, so that it is seen, recorded and undone like a person's
/// word. All must outlive it.
std::unique_ptr<jobs::Executor> drain_executor(asio::any_io_executor executor, resource::Resources& resources,
                                               const Controller& controller, Clock& clock);

} // namespace orrery::gslb
