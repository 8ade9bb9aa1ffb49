#pragma once

#include "health/lookout.h"
#include "net/http_client.h"

#include <memory>
#include <string>
#include <vector>

namespace orrery::health {

/// A vantage elsewhere: asks a server what there is to look at, looks, and tells what it found. Keeps nothing: a server that was
/// away finds it where it left it, and one that forgot is told everything again. Loop thread only.
class JoinedChecker {
public:
    struct Options {
        net::Url server;
        std::string token, name;
        LookTools tools;
        VantageRule rule;
        std::vector<Wanted> canaries;
        std::shared_ptr<net::TlsContext> tls;              ///< for the server; null: the system's authorities
        Duration refresh = std::chrono::seconds(20);       ///< everything is told again so often: silence is no evidence
        Duration gather = std::chrono::milliseconds(50);   ///< what is found within it goes together
        Duration patience = std::chrono::seconds(25);      ///< how long the server may keep a question open
        Duration longest_pause = std::chrono::seconds(30); ///< between attempts
    };
    JoinedChecker(asio::any_io_executor executor, Clock& clock, Options options);
    ~JoinedChecker();

    /// Works until it is cancelled. An error only where the server refuses it for good: `unauthenticated`, `denied`, `invalid`.
    Task<Unit> run(Context ctx);

    struct Counts {
        std::size_t targets = 0, waiting = 0;
        std::uint64_t told = 0, failures = 0;
        bool fit = true;
    };
    Counts counts() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::health
