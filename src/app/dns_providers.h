#pragma once

#include "gslb/publish/publication_controller.h"
#include "net/outbound.h"
#include "resource/resources.h"

#include <memory>

namespace orrery::app {

namespace json = boost::json;

/// Creates the DNS providers of Publishers: drivers, with credentials from Secrets. Loop thread only.
class DriverDnsProviders final : public gslb::DnsProviderFactory {
public:
    /// All must outlive the factory and its providers.
    DriverDnsProviders(asio::any_io_executor executor, const resource::Resources& resources, Clock& clock,
                       net::OutboundRulesPtr outbound);
    ~DriverDnsProviders() override;
    Result<std::shared_ptr<gslb::DnsProvider>> make(const std::string& name, const json::object& spec) override;
    asio::awaitable<void> stop();

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::app
