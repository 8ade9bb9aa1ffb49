#include "app/health_sources.h"

#include "app/service_spec.h"
#include "core/json_fields.h"
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

struct DriverHealthSources::State {
    State(asio::any_io_executor executor_, resource::Resources& resources_, Clock& clock_, net::OutboundRulesPtr outbound)
        : executor(executor_),
          resources(resources_),
          clock(clock_),
          client(std::move(executor_), {.outbound = std::move(outbound)}) {}

    /// A source by name: delegates to the driver of the current Source.
    class Named final : public health::StatusSource {
    public:
        Named(State& state, json::object spec) : state_(state), spec_(std::move(spec)), source_(text_at(spec_, "source")) {}
        /// Contains the query parameters: checks with the same name share one reader.
        std::string name() const override {
            auto out = fmt::format("Source {}", source_);
            if (const auto query = text_at(spec_, "query"); !query.empty()) out += ": " + query;
            if (const auto min = number_in(spec_, "min")) out += fmt::format(" >= {}", *min);
            if (const auto max = number_in(spec_, "max")) out += fmt::format(" <= {}", *max);
            if (const auto label = text_at(spec_, "label"); !label.empty()) out += " by " + label;
            return out;
        }
        Task<std::map<std::string, Reading>> read(Context ctx, std::vector<std::string> ids) override {
            if (!driver_ || made_at_ != state_.changes) {
                CO_TRY(driver_, state_.make(source_, spec_));
                made_at_ = state_.changes;
            }
            const auto driver = driver_; // it may be replaced while the query is in progress
            co_return co_await driver->read(std::move(ctx), std::move(ids));
        }

    private:
        State& state_;
        json::object spec_;
        std::string source_;
        std::shared_ptr<health::StatusSource> driver_;
        std::uint64_t made_at_ = 0;
    };

    Result<std::shared_ptr<health::StatusSource>> make(const std::string& name, const json::object& check) {
        const auto& kind = *resources.registry().find("Source");
        TRY(const auto object, resources.get(kind, name));
        const auto& spec = object.spec;
        const ServiceSpec service(resources, spec);
        const auto driver = service.text("driver");
        if (driver != text_at(check, "kind")) return Error{Code::invalid, fmt::format("Source {} is of driver {}", name, driver)};
        if (driver == "prometheus") {
            drivers::PrometheusOptions options{.url = service.text("url"), .allow_plaintext = service.allows_plaintext()};
            if (spec.contains("credentials")) {
                TRY(options.token, service.secret("token"));
            }
            drivers::PrometheusRule rule{
                .query = text_at(check, "query"), .min = number_in(check, "min"), .max = number_in(check, "max")};
            if (auto label = text_at(check, "label"); !label.empty()) rule.label = std::move(label);
            return drivers::prometheus_source(client, std::move(options), std::move(rule));
        }
        TRY(auto login, service.openstack_login());
        TRY(auto session, drivers::OpenstackSession::make(client, clock, fmt::format("Source {}", name), std::move(login)));
        drivers::OctaviaOptions options{.endpoint = service.text("url")};
        if (auto type = service.text("service"); !type.empty()) options.service = std::move(type);
        if (const auto min = number_in(spec, "min_members")) options.min_members = static_cast<int>(*min);
        return drivers::octavia_source(std::move(session), std::move(options));
    }

    asio::any_io_executor executor;
    resource::Resources& resources;
    Clock& clock;
    net::HttpClient client;
    std::map<std::string, std::weak_ptr<health::SourceReader>> readers;
    std::uint64_t changes = 1; ///< number of changes of Sources and Secrets; drivers from before a change are created again
    std::vector<std::shared_ptr<void>> observed;
};

DriverHealthSources::DriverHealthSources(asio::any_io_executor executor, resource::Resources& resources, Clock& clock,
                                         net::OutboundRulesPtr outbound)
    : state_(std::make_shared<State>(std::move(executor), resources, clock, std::move(outbound))) {
    auto* state = state_.get();
    for (const auto* prefix : {"sources/", "secrets/"})
        state->observed.push_back(resources.store().observe(prefix, [state](const store::Event&) { ++state->changes; }));
}

DriverHealthSources::~DriverHealthSources() { state_->observed.clear(); }

std::shared_ptr<health::SourceReader> DriverHealthSources::reader(const json::object& check) {
    // Checks that differ only in their target share a reader.
    auto query = check;
    query.erase("for");
    query.erase("id");
    const auto key = json::serialize(query);
    std::erase_if(state_->readers, [](const auto& one) { return one.second.expired(); });
    auto& kept = state_->readers[key];
    if (auto known = kept.lock()) return known;
    auto made = std::make_shared<health::SourceReader>(state_->executor, std::make_shared<State::Named>(*state_, std::move(query)),
                                                       state_->clock);
    kept = made;
    return made;
}

asio::awaitable<void> DriverHealthSources::stop() {
    for (const auto& [key, reader] : state_->readers)
        if (const auto known = reader.lock()) co_await known->stop();
    co_await state_->client.stop();
}

} // namespace orrery::app
