#pragma once

#include "core/task.h"
#include "dns/authority.h"
#include "dns/notify.h"
#include "gslb/runtime/ports.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <memory>
#include <string>
#include <string_view>

namespace orrery::gslb {

/// Serves answers with this server's own DNS authority: the zones of kind Zone, and in them the names of load balancers. A name
/// that cannot be served (without a Zone, or with static records at the name) has an error in its status; all others are served.
/// Loop thread only.
class NameService final : public AnswerPublisher {
public:
    /// All must outlive this.
    NameService(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership, Clock& clock,
                std::shared_ptr<dns::Authority> authority);
    ~NameService() override;

    void serve(std::vector<Change> changes) override;
    json::array publication_status(const std::string& fqdn) const override;
    void report_to(OnStatusChange on_status_change) override;

    /// Writes the status of Zones while this server is the leader, and renews signatures before they expire. Runs until it is
    /// cancelled.
    asio::awaitable<void> run(Context ctx);

    /// The minimum serial of the next change, for zones without an offset.
    std::uint64_t upcoming_serial() const;
    /// Sets the secondaries that do not transfer because their serial is later than ours, for the status of Zones.
    void set_secondaries_ahead(std::vector<dns::SecondaryAhead> ahead);

    std::size_t zones() const;
    std::size_t names() const; ///< that are served

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
