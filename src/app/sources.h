#pragma once

#include "gslb/source.h"
#include "resource/resources.h"

#include <memory>

namespace orrery::app {

namespace json = boost::json;

/// Joins Sources to drivers, with credentials from Secrets. What changes of either counts with the next question. Loop thread only.
class DriverSources final : public gslb::Sources {
public:
    /// All must outlive this and what it gives.
    DriverSources(asio::any_io_executor executor, resource::Resources& resources, Clock& clock);
    ~DriverSources() override;
    std::shared_ptr<health::SourceReader> reader(const json::object& look) override;
    asio::awaitable<void> stop();

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::app
