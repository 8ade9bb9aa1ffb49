#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "lab/etcd/etcd_cluster.h"

namespace orrery::testing {

/// Kills one member after the other and starts it again, until `ended`. Leaves all of them running.
inline asio::awaitable<void> kill_in_turn(EtcdCluster& cluster, Duration between, Duration down, int& kills, const bool& ended) {
    for (std::size_t next = 0;; next = (next + 1) % cluster.size()) {
        for (Duration waited{}; waited < between && !ended; waited += std::chrono::milliseconds(50))
            std::ignore = co_await real_clock().sleep(std::chrono::milliseconds(50));
        if (ended) co_return;
        cluster.kill(next);
        ++kills;
        std::ignore = co_await real_clock().sleep(down);
        auto restarted = cluster.restart(next);
        if (!restarted.ok()) ADD_FAILURE() << restarted.error().text();
    }
}

} // namespace orrery::testing
