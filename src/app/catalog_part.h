#pragma once

#include "catalog/catalog.h"
#include "catalog/checker.h"
#include "core/config.h"
#include "core/task.h"
#include "identity/identity.h"
#include "net/tls.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::app {

/// The catalog with all that belongs to it: its checks, and the Consul-compatible doors where the configuration opens them. Made
/// after the leadership, stopped before it.
class CatalogPart {
public:
    CatalogPart(asio::any_io_executor executor, const Config& config, resource::Resources& resources, identity::Identity& identity,
                store::Leadership& leadership, Clock& clock, std::string version);
    ~CatalogPart();

    struct Runs {
        bool checks = true, doors = true;
    };
    /// `unavailable` where a port cannot be opened. `commands` may be null; else it must outlive this.
    Result<Unit> start(Context ctx, TaskGroup& group, std::shared_ptr<net::TlsContext> tls, health::CommandRunner* commands,
                       Runs runs);
    /// Closes the doors. The group that `start` was given is stopped after it, and only then may this go.
    asio::awaitable<void> stop(Duration grace);

    /// Who is there: the built-in catalog, or a Consul where the configuration names one.
    catalog::Membership& membership();
    std::vector<std::pair<std::string, double>> gauges() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::app
