#pragma once

#include "core/task.h"
#include "gslb/publish/zone_publisher.h"
#include "gslb/runtime/ports.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <memory>
#include <string>

namespace orrery::gslb {

/// Port: creates the DNS provider of a Publisher. Implemented in app, which knows the drivers.
class DnsProviderFactory {
public:
    virtual ~DnsProviderFactory() = default;
    /// `invalid` or `not_found` with a message without secrets.
    virtual Result<std::shared_ptr<DnsProvider>> make(const std::string& name, const json::object& spec) = 0;
};

/// What a decision means to an external DNS service: all members of the default client class. Weights are lost.
Desired desired_of(const Decision& decision, std::int64_t number);

/// Publishes decisions to every Publisher of their zone while this server is the leader, with one ZonePublisher for each Publisher
/// and zone, and writes the status of Publishers. The records of a removed Publisher stay; those of a removed LoadBalancer are
/// removed. Loop thread only.
class PublicationController final : public AnswerPublisher {
public:
    /// `servers` may be null. All must outlive this.
    PublicationController(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership,
                          Clock& clock, DnsProviderFactory& factory, NameServers* servers);
    ~PublicationController() override;

    void serve(std::vector<Change> changes) override;
    json::array publication_status(const std::string& fqdn) const override;
    Duration slowest_publication(const std::string& fqdn) const override;
    void report_to(OnStatusChange on_status_change) override;

    /// Runs until it is cancelled.
    asio::awaitable<void> run(Context ctx);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::gslb
