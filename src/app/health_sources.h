#pragma once

#include "gslb/observe/health_source.h"
#include "net/outbound.h"
#include "resource/resources.h"

#include <memory>

namespace orrery::app {

namespace json = boost::json;

/// Creates the readers of Sources: drivers, with credentials from Secrets. Changes of either apply to the next query. Loop thread
/// only.
class DriverHealthSources final : public gslb::Sources {
public:
    /// All must outlive the factory and its readers.
    DriverHealthSources(asio::any_io_executor executor, resource::Resources& resources, Clock& clock,
                        net::OutboundRulesPtr outbound);
    ~DriverHealthSources() override;
    std::shared_ptr<health::SourceReader> reader(const json::object& check) override;
    asio::awaitable<void> stop();

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::app
