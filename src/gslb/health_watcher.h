#pragma once

#include "gslb/ports.h"
#include "gslb/source.h"
#include "health/lookout.h"

#include <memory>
#include <string>

namespace orrery::gslb {

/// Looks at members from wherever somebody looks for this server: the server itself, by the name given, and what else its lookout
/// has; asks those who know, and listens to what they say. Loop thread only.
class HealthWatcher final : public Watcher {
public:
    /// `sources` may be null: then nobody can be asked.
    HealthWatcher(asio::any_io_executor executor, Clock& clock, std::string vantage, std::shared_ptr<net::TlsContext> tls,
                  Sources* sources = nullptr);
    ~HealthWatcher() override;

    void watch(const std::string& member, Target target) override;
    void forget(const std::string& member) override;
    void report_to(OnSignal on_signal) override;
    void report_places_to(OnPlace on_place) override;

    /// Works until it is cancelled.
    asio::awaitable<void> run(Context ctx);
    health::Prober::Counts counts() const;
    /// Who looks: for checkers that join, and for nodes that look, too.
    health::Lookout& lookout();
    /// What others say, by `board_key`.
    health::PushBoard& board();

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::gslb
