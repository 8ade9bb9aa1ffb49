#include "app/sources.h"

#include "app/service_spec.h"
#include "drivers/octavia/octavia.h"
#include "drivers/prometheus/prometheus.h"
#include "net/http_client.h"
#include "resource/object.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <map>
#include <utility>
#include <vector>

namespace orrery::app {

struct DriverSources::State {
    State(asio::any_io_executor executor_, resource::Resources& resources_, Clock& clock_)
        : executor(executor_), resources(resources_), clock(clock_), client(std::move(executor_), {}) {}

    /// What is behind a reader: the driver that the Source is now.
    class Named final : public health::StatusSource {
    public:
        Named(State& state, json::object look) : state_(state), look_(std::move(look)), source_(text_in(look_, "source")) {}
        /// With what it is asked: looks of one name are one look.
        std::string name() const override {
            auto out = fmt::format("Source {}", source_);
            if (const auto query = text_in(look_, "query"); !query.empty()) out += ": " + query;
            if (const auto least = number_in(look_, "least")) out += fmt::format(" >= {}", *least);
            if (const auto most = number_in(look_, "most")) out += fmt::format(" <= {}", *most);
            if (const auto label = text_in(look_, "label"); !label.empty()) out += " by " + label;
            return out;
        }
        Task<std::map<std::string, Reading>> read(Context ctx, std::vector<std::string> ids) override {
            if (!driver_ || made_at_ != state_.changes) {
                CO_TRY(driver_, state_.make(source_, look_));
                made_at_ = state_.changes;
            }
            const auto driver = driver_; // it may be another before the answer is there
            co_return co_await driver->read(std::move(ctx), std::move(ids));
        }

    private:
        State& state_;
        json::object look_;
        std::string source_;
        std::shared_ptr<health::StatusSource> driver_;
        std::uint64_t made_at_ = 0;
    };

    Result<std::shared_ptr<health::StatusSource>> make(const std::string& name, const json::object& look) {
        const auto& kind = *resources.registry().find("Source");
        TRY(const auto object, resources.get(kind, name));
        const auto& spec = object.spec;
        const ServiceSpec service(resources, spec);
        const auto driver = service.text("driver");
        if (driver != text_in(look, "kind")) return Error{Code::invalid, fmt::format("Source {} is of driver {}", name, driver)};
        if (driver == "prometheus") {
            drivers::PrometheusOptions options{.url = service.text("url"), .allow_plaintext = service.allows_plaintext()};
            if (spec.contains("credentials")) {
                TRY(options.token, service.secret("token"));
            }
            drivers::PrometheusRule rule{
                .query = text_in(look, "query"), .least = number_in(look, "least"), .most = number_in(look, "most")};
            if (auto label = text_in(look, "label"); !label.empty()) rule.label = std::move(label);
            return drivers::prometheus_source(client, std::move(options), std::move(rule));
        }
        TRY(auto login, service.openstack_login());
        TRY(auto session, drivers::OpenstackSession::make(client, clock, fmt::format("Source {}", name), std::move(login)));
        drivers::OctaviaOptions options{.endpoint = service.text("url")};
        if (auto type = service.text("service"); !type.empty()) options.service = std::move(type);
        if (const auto least = number_in(spec, "min_members")) options.least_members = static_cast<int>(*least);
        return drivers::octavia_source(std::move(session), std::move(options));
    }

    asio::any_io_executor executor;
    resource::Resources& resources;
    Clock& clock;
    net::HttpClient client;
    std::map<std::string, std::weak_ptr<health::SourceReader>> readers;
    std::uint64_t changes = 1; ///< of Sources and Secrets: what was made before is made anew
    std::vector<std::shared_ptr<void>> observed;
};

DriverSources::DriverSources(asio::any_io_executor executor, resource::Resources& resources, Clock& clock)
    : state_(std::make_shared<State>(std::move(executor), resources, clock)) {
    auto* state = state_.get();
    for (const auto* prefix : {"sources/", "secrets/"})
        state->observed.push_back(resources.store().observe(prefix, [state](const store::Event&) { ++state->changes; }));
}

DriverSources::~DriverSources() { state_->observed.clear(); }

std::shared_ptr<health::SourceReader> DriverSources::reader(const json::object& look) {
    // Looks that differ only in whom they ask about share their calls.
    auto asked = look;
    asked.erase("for");
    asked.erase("id");
    const auto key = json::serialize(asked);
    std::erase_if(state_->readers, [](const auto& one) { return one.second.expired(); });
    auto& kept = state_->readers[key];
    if (auto known = kept.lock()) return known;
    auto made = std::make_shared<health::SourceReader>(state_->executor, std::make_shared<State::Named>(*state_, std::move(asked)),
                                                       state_->clock);
    kept = made;
    return made;
}

asio::awaitable<void> DriverSources::stop() {
    for (const auto& [key, reader] : state_->readers)
        if (const auto known = reader.lock()) co_await known->stop();
    co_await state_->client.stop();
}

} // namespace orrery::app
