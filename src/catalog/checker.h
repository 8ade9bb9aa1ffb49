#pragma once

#include "catalog/catalog.h"
#include "core/task.h"
#include "health/probe.h"
#include "health/prober.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <map>
#include <memory>
#include <string>

namespace orrery::catalog {

/// Keeps what is known of checks true: while this server leads it runs tcp, http and command checks, lets ttl checks expire, writes
/// results (only when a status changes), the state of each Instance and the counts of each Service, and removes instances that were
/// critical for longer than they may. Everything can be ended at any instant: what was found before is stale, and stands, until it
/// is found again. Loop thread only.
class Checker {
public:
    struct Options {
        std::shared_ptr<net::TlsContext> tls;      ///< for https checks; null: the system's authorities
        health::CommandRunner* commands = nullptr; ///< null: command checks find nothing, which is evidence of nothing
        std::size_t at_once = 512;
    };
    Checker(asio::any_io_executor executor, resource::Resources& resources, Catalog& catalog, store::Leadership& leadership,
            Clock& clock, Options options);
    ~Checker();

    /// Works until it is cancelled.
    asio::awaitable<void> run(Context ctx);

    /// What somebody says of a ttl or external check. On any server; the leader learns of it from the store. Words that only renew
    /// a ttl are written down a few times in each ttl, not every time. `not_found`: no such resource or check. `invalid`: the
    /// server runs that check itself.
    Task<Unit> report(Context ctx, std::string resource_key, std::string check, CheckStatus status, std::string output);
    /// Several at once, of one resource.
    Task<Unit> report(Context ctx, std::string resource_key, std::map<std::string, std::pair<CheckStatus, std::string>> said);

    health::Prober::Counts counts() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::catalog
