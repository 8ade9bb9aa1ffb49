#pragma once

#include "gslb/publishing.h"
#include "resource/resources.h"

#include <memory>

namespace orrery::app {

namespace json = boost::json;

/// Joins Publishers to drivers, with credentials from Secrets. Loop thread only.
class DriverPublishers final : public gslb::PublisherMaker {
public:
    /// All must outlive this and what it makes.
    DriverPublishers(asio::any_io_executor executor, const resource::Resources& resources, Clock& clock);
    ~DriverPublishers() override;
    Result<std::shared_ptr<gslb::Publisher>> make(const std::string& name, const json::object& spec) override;
    asio::awaitable<void> stop();

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::app
