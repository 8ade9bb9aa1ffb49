#pragma once

#include "core/task.h"
#include "dns/authority.h"
#include "gslb/ports.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <memory>
#include <string>
#include <string_view>

namespace orrery::gslb {

/// Answers for names with this server's own authority: zones as the kind Zone has them, and in them whatever is decided. A name
/// that cannot be answered here (no Zone holds it, the Zone has records at it) is said to be so, and all others are answered. Loop
/// thread only.
class NameService final : public NameSink {
public:
    /// All must outlive this.
    NameService(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership, Clock& clock,
                std::shared_ptr<dns::Authority> authority);
    ~NameService() override;

    void serve(std::vector<Change> changes) override;
    json::array standing(const std::string& fqdn) const override;
    void report_to(OnStanding on_standing) override;

    /// Writes the status of Zones while this server leads, and makes signatures before they run out. Works until it is cancelled.
    asio::awaitable<void> run(Context ctx);

    std::size_t zones() const;
    std::size_t names() const; ///< that are answered

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
