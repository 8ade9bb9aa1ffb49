#include "app/publishers.h"

#include "app/service_spec.h"
#include "drivers/designate/designate.h"
#include "drivers/externaldns/externaldns.h"
#include "drivers/powerdns/powerdns.h"
#include "drivers/rfc2136/rfc2136.h"
#include "net/http_client.h"

#include <fmt/format.h>

#include <utility>

namespace orrery::app {

namespace {

std::shared_ptr<gslb::Publisher> shared(std::unique_ptr<gslb::Publisher> publisher) { return publisher; }

} // namespace

struct DriverPublishers::State {
    State(asio::any_io_executor executor, const resource::Resources& resources_, Clock& clock_)
        : resources(resources_), clock(clock_), client(std::move(executor), {}) {}
    const resource::Resources& resources;
    Clock& clock;
    net::HttpClient client;

    Result<std::shared_ptr<gslb::Publisher>> designate(const std::string& name, const ServiceSpec& service) {
        TRY(auto login, service.openstack_login());
        TRY(auto session, drivers::OpenstackSession::make(client, clock, fmt::format("Publisher {}", name), std::move(login)));
        TRY(auto made, drivers::designate_publisher(std::move(session), {.endpoint = service.text("url")}));
        return shared(std::move(made));
    }

    Result<std::shared_ptr<gslb::Publisher>> rfc2136(const json::object& spec, const ServiceSpec& service) {
        drivers::Rfc2136Options options{.server = service.text("server")};
        if (spec.contains("tsig")) {
            TRY(const auto base64, service.secret("secret"));
            const auto& tsig = part_of(spec, "tsig");
            TRY(options.key, drivers::tsig_key(text_in(tsig, "key"), text_in(tsig, "algorithm"), base64));
        }
        TRY(auto made, drivers::rfc2136_publisher(clock, std::move(options)));
        return shared(std::move(made));
    }
};

DriverPublishers::DriverPublishers(asio::any_io_executor executor, const resource::Resources& resources, Clock& clock)
    : state_(std::make_unique<State>(std::move(executor), resources, clock)) {}
DriverPublishers::~DriverPublishers() = default;

Result<std::shared_ptr<gslb::Publisher>> DriverPublishers::make(const std::string& name, const json::object& spec) {
    const ServiceSpec service(state_->resources, spec);
    const auto driver = service.text("driver");
    if (driver == "designate") return state_->designate(name, service);
    if (driver == "rfc2136") return state_->rfc2136(spec, service);
    const auto url = service.text("url");
    const bool plain = service.allows_plaintext();
    if (driver == "externaldns") {
        TRY(auto made, drivers::externaldns_publisher(state_->client, {.url = url, .allow_plaintext = plain}));
        return shared(std::move(made));
    }
    TRY(auto key, service.secret("key"));
    TRY(auto made, drivers::powerdns_publisher(state_->client, {.url = url, .allow_plaintext = plain, .key = std::move(key)}));
    return shared(std::move(made));
}

asio::awaitable<void> DriverPublishers::stop() { co_await state_->client.stop(); }

} // namespace orrery::app
