#pragma once

#include "health/check_spec.h"
#include "health/probe_spec.h"
#include "health/vantages/self_diagnosis.h"
#include "net/http_client.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace orrery::health {

/// The agent behind `orrery checker`: a vantage that fetches its checks from a server, probes, and submits reports. It stores
/// nothing: after a restart of the server both sides start over from the server's checks. Loop thread only.
class RemoteChecker {
public:
    struct Options {
        net::Url server;
        std::string token, name;
        ProbeDeps deps;
        VantageRule rule;
        std::vector<CheckSpec> canaries;
        std::shared_ptr<net::TlsContext> tls;             ///< for the server; null: the authorities of the system
        Duration refresh = std::chrono::seconds(20);      ///< between submissions of all reports
        Duration heartbeat = std::chrono::seconds(2);     ///< between submissions; the server ignores a checker that misses three
        Duration gather = std::chrono::milliseconds(50);  ///< results within this time are submitted together
        Duration poll_timeout = std::chrono::seconds(25); ///< how long the server may hold a request for assignments
        Duration max_backoff = std::chrono::seconds(30);  ///< between attempts
    };
    RemoteChecker(asio::any_io_executor executor, Clock& clock, Options options);
    ~RemoteChecker();

    /// Runs until cancelled. Fails only if the server rejects the checker for good: `unauthenticated`, `denied`, `unsupported`,
    /// `invalid`.
    Task<Unit> run(Context ctx);

    struct Counts {
        std::size_t targets = 0, waiting = 0;
        std::uint64_t sent = 0, failures = 0;
        bool trusted = true;
    };
    Counts counts() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::health
