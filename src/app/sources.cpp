#include "app/sources.h"

#include "drivers/keystone/session.h"
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

namespace {

std::string source_text(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}
std::optional<double> source_number(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_number() ? std::optional(value->to_number<double>()) : std::nullopt;
}

} // namespace

struct DriverSources::State {
    State(asio::any_io_executor executor_, resource::Resources& resources_, Clock& clock_)
        : executor(executor_), resources(resources_), clock(clock_), client(std::move(executor_), {}) {}

    /// What is behind a reader: the driver that the Source is now.
    class Named final : public health::StatusSource {
    public:
        Named(State& state, json::object look) : state_(state), look_(std::move(look)), source_(source_text(look_, "source")) {}
        /// With what it is asked: looks of one name are one look.
        std::string name() const override {
            auto out = fmt::format("Source {}", source_);
            if (const auto query = source_text(look_, "query"); !query.empty()) out += ": " + query;
            if (const auto least = source_number(look_, "least")) out += fmt::format(" >= {}", *least);
            if (const auto most = source_number(look_, "most")) out += fmt::format(" <= {}", *most);
            if (const auto label = source_text(look_, "label"); !label.empty()) out += " by " + label;
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

    Result<std::string> secret(const json::object& spec, std::string_view value) const {
        const auto name = source_text(spec, "credentials");
        auto out = resources.reveal(*resources.registry().find("Secret"), name, fmt::format("spec.values.{}", value));
        if (!out.ok()) return Error{Code::not_found, fmt::format("Secret {} has no value \"{}\"", name, value), "add it"};
        return out;
    }

    Result<std::shared_ptr<health::StatusSource>> make(const std::string& name, const json::object& look) {
        const auto& kind = *resources.registry().find("Source");
        TRY(const auto object, resources.get(kind, name));
        const auto& spec = object.spec;
        const auto* flag = spec.if_contains("allow_plaintext");
        const bool plain = flag != nullptr && flag->is_bool() && flag->get_bool();
        if (source_text(spec, "driver") != source_text(look, "kind"))
            return Error{Code::invalid, fmt::format("Source {} is of driver {}", name, source_text(spec, "driver"))};
        if (source_text(spec, "driver") == "prometheus") {
            drivers::PrometheusOptions options{.url = source_text(spec, "url"), .allow_plaintext = plain};
            if (spec.contains("credentials")) {
                TRY(options.token, secret(spec, "token"));
            }
            drivers::PrometheusRule rule{
                .query = source_text(look, "query"), .least = source_number(look, "least"), .most = source_number(look, "most")};
            if (auto label = source_text(look, "label"); !label.empty()) rule.label = std::move(label);
            return drivers::prometheus_source(client, std::move(options), std::move(rule));
        }
        static const json::object none;
        const auto* given = spec.if_contains("keystone");
        const auto& keystone = given != nullptr && given->is_object() ? given->get_object() : none;
        drivers::OpenstackLogin login;
        login.url = source_text(keystone, "url");
        login.allow_plaintext = plain;
        login.user = source_text(keystone, "user");
        login.user_domain = source_text(keystone, "user_domain");
        login.project = source_text(keystone, "project");
        login.project_domain = source_text(keystone, "project_domain");
        login.credential = source_text(keystone, "credential");
        login.region = source_text(keystone, "region");
        if (login.credential.empty()) {
            TRY(login.password, secret(spec, "password"));
        } else {
            TRY(login.credential_secret, secret(spec, "credential_secret"));
        }
        TRY(auto session, drivers::OpenstackSession::make(client, clock, fmt::format("Source {}", name), std::move(login)));
        drivers::OctaviaOptions options{.endpoint = source_text(spec, "url")};
        if (auto service = source_text(spec, "service"); !service.empty()) options.service = std::move(service);
        if (const auto least = source_number(spec, "min_members")) options.least_members = static_cast<int>(*least);
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
