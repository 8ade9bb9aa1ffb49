#include "app/publishers.h"

#include "drivers/designate/designate.h"
#include "drivers/externaldns/externaldns.h"
#include "drivers/powerdns/powerdns.h"
#include "drivers/rfc2136/rfc2136.h"
#include "net/http_client.h"

#include <fmt/format.h>

#include <utility>

namespace orrery::app {

namespace {

std::string text_in(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}
const json::object& part_of(const json::object& object, std::string_view key) {
    static const json::object none;
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_object() ? value->get_object() : none;
}

std::shared_ptr<gslb::Publisher> shared(std::unique_ptr<gslb::Publisher> publisher) { return publisher; }

} // namespace

struct DriverPublishers::State {
    State(asio::any_io_executor executor, const resource::Resources& resources_, Clock& clock_)
        : resources(resources_), clock(clock_), client(std::move(executor), {}) {}
    const resource::Resources& resources;
    Clock& clock;
    net::HttpClient client;

    /// `not_found` names the Secret and what it lacks.
    Result<std::string> secret(const json::object& spec, std::string_view value) const {
        const auto name = text_in(spec, "credentials");
        auto out = resources.reveal(*resources.registry().find("Secret"), name, fmt::format("spec.values.{}", value));
        if (!out.ok()) return Error{Code::not_found, fmt::format("Secret {} has no value \"{}\"", name, value), "add it"};
        return out;
    }

    Result<std::shared_ptr<gslb::Publisher>> designate(const std::string& name, const json::object& spec, bool plain) {
        const auto& keystone = part_of(spec, "keystone");
        drivers::OpenstackLogin login;
        login.url = text_in(keystone, "url");
        login.allow_plaintext = plain;
        login.user = text_in(keystone, "user");
        login.user_domain = text_in(keystone, "user_domain");
        login.project = text_in(keystone, "project");
        login.project_domain = text_in(keystone, "project_domain");
        login.credential = text_in(keystone, "credential");
        login.region = text_in(keystone, "region");
        if (login.credential.empty()) {
            TRY(login.password, secret(spec, "password"));
        } else {
            TRY(login.credential_secret, secret(spec, "credential_secret"));
        }
        TRY(auto session, drivers::OpenstackSession::make(client, clock, fmt::format("Publisher {}", name), std::move(login)));
        TRY(auto made, drivers::designate_publisher(std::move(session), {.endpoint = text_in(spec, "url")}));
        return shared(std::move(made));
    }

    Result<std::shared_ptr<gslb::Publisher>> rfc2136(const json::object& spec) {
        drivers::Rfc2136Options options{.server = text_in(spec, "server")};
        if (spec.contains("tsig")) {
            TRY(const auto base64, secret(spec, "secret"));
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
    const auto driver = text_in(spec, "driver");
    const auto* flag = spec.if_contains("allow_plaintext");
    const bool plain = flag != nullptr && flag->is_bool() && flag->get_bool();
    if (driver == "designate") return state_->designate(name, spec, plain);
    if (driver == "rfc2136") return state_->rfc2136(spec);
    if (driver == "externaldns") {
        TRY(auto made, drivers::externaldns_publisher(state_->client, {.url = text_in(spec, "url"), .allow_plaintext = plain}));
        return shared(std::move(made));
    }
    TRY(auto key, state_->secret(spec, "key"));
    TRY(auto made, drivers::powerdns_publisher(state_->client,
                                               {.url = text_in(spec, "url"), .allow_plaintext = plain, .key = std::move(key)}));
    return shared(std::move(made));
}

asio::awaitable<void> DriverPublishers::stop() { co_await state_->client.stop(); }

} // namespace orrery::app
