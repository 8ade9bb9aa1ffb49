#pragma once

#include "core/config.h"
#include "core/task.h"
#include "drivers/ssh/logins.h"
#include "jobs/artefacts.h"
#include "jobs/executor.h"
#include "net/ssh.h"
#include "resource/resources.h"

#include <memory>

namespace orrery::app {

/// What tasks can run: SSH and the executors ssh, ansible, puppet, http and local. Made after the resources; stopped after whoever
/// uses its executors, and before the resources go.
class ExecutorsPart {
public:
    ExecutorsPart(asio::any_io_executor executor, const Config& config, resource::Resources& resources, Pool& pool);
    ~ExecutorsPart();

    void add_to(jobs::Executors& executors);
    net::Ssh& ssh();
    drivers::Logins& logins();
    jobs::Collector& collector();
    asio::awaitable<void> stop();

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::app
