#pragma once

#include "catalog/catalog.h"
#include "core/task.h"
#include "health/probe_spec.h"
#include "health/prober.h"
#include "health/probes/command_probe.h"
#include "health/probes/probe.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <map>
#include <memory>
#include <string>

namespace orrery::catalog {

/// Runs the checks of the catalog. On the leader it runs tcp, http and command checks, expires ttl checks, stores results (only
/// changes of status), the state of each Instance and the counts of each Service, and removes instances that were critical for
/// longer than `remove_after`. It can be stopped at any time: stored results are stale after a restart, and stay in effect until
/// they are confirmed. Loop thread only.
class Checker {
public:
    struct Options {
        std::shared_ptr<net::TlsContext> tls;      ///< for https checks; null: the certificates of the system
        health::CommandRunner* commands = nullptr; ///< null: command checks give no evidence
        health::SecretReader secrets;              ///< null: checks that use a secret cannot run
        std::size_t at_once = 512;
        net::OutboundRulesPtr outbound = nullptr; ///< for tcp and http checks; null: all addresses are permitted
    };
    Checker(asio::any_io_executor executor, resource::Resources& resources, Catalog& catalog, store::Leadership& leadership,
            Clock& clock, Options options);
    ~Checker();

    /// Runs until it is cancelled.
    asio::awaitable<void> run(Context ctx);

    /// Records the result of a ttl or external check that a client reports, on any server; the leader reads it from the store.
    /// Reports that only renew a ttl are stored a few times per ttl. Errors: `not_found`: no such resource or check; `invalid`: the
    /// server runs this check itself.
    Task<Unit> report(Context ctx, std::string resource_key, std::string check, CheckStatus status, std::string output);
    /// Several checks of one resource.
    Task<Unit> report(Context ctx, std::string resource_key, std::map<std::string, std::pair<CheckStatus, std::string>> reports);

    health::Prober::Counts counts() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::catalog
