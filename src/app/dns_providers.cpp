#include "app/dns_providers.h"

#include "app/service_spec.h"
#include "core/json_fields.h"
#include "drivers/designate/designate.h"
#include "drivers/dns/exchange.h"
#include "drivers/externaldns/externaldns.h"
#include "drivers/powerdns/powerdns.h"
#include "drivers/rfc2136/rfc2136.h"
#include "net/http_client.h"

#include <fmt/format.h>

#include <utility>

namespace orrery::app {

namespace {

std::shared_ptr<gslb::DnsProvider> shared(std::unique_ptr<gslb::DnsProvider> publisher) { return publisher; }

} // namespace

struct DriverDnsProviders::State {
    State(asio::any_io_executor executor, const resource::Resources& resources_, Clock& clock_, net::OutboundRulesPtr outbound_)
        : outbound(std::move(outbound_)),
          resources(resources_),
          clock(clock_),
          client(std::move(executor), {.outbound = outbound}) {}
    net::OutboundRulesPtr outbound;
    const resource::Resources& resources;
    Clock& clock;
    net::HttpClient client;

    Result<std::shared_ptr<gslb::DnsProvider>> designate(const std::string& name, const ServiceSpec& service) {
        TRY(auto login, service.openstack_login());
        TRY(auto session, drivers::OpenstackSession::make(client, clock, fmt::format("Publisher {}", name), std::move(login)));
        TRY(auto made, drivers::designate_publisher(std::move(session), {.endpoint = service.text("url")}));
        return shared(std::move(made));
    }

    Result<std::shared_ptr<gslb::DnsProvider>> rfc2136(const json::object& spec, const ServiceSpec& service) {
        drivers::Rfc2136Options options{.server = service.text("server")};
        TRY(const auto server, drivers::parse_dns_server(options.server)); // an address, not a name
        TRY(std::ignore, outbound->check(server.address(), server.port()));
        if (spec.contains("tsig")) {
            TRY(const auto base64, service.secret("secret"));
            const auto& tsig = object_at(spec, "tsig");
            TRY(options.key, drivers::tsig_key(text_at(tsig, "key"), text_at(tsig, "algorithm"), base64));
        }
        TRY(auto made, drivers::rfc2136_publisher(clock, std::move(options)));
        return shared(std::move(made));
    }
};

DriverDnsProviders::DriverDnsProviders(asio::any_io_executor executor, const resource::Resources& resources, Clock& clock,
                                       net::OutboundRulesPtr outbound)
    : state_(std::make_unique<State>(std::move(executor), resources, clock, std::move(outbound))) {}
DriverDnsProviders::~DriverDnsProviders() = default;

Result<std::shared_ptr<gslb::DnsProvider>> DriverDnsProviders::make(const std::string& name, const json::object& spec) {
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

asio::awaitable<void> DriverDnsProviders::stop() { co_await state_->client.stop(); }

} // namespace orrery::app
