#include "drivers/powerdns/powerdns.h"

#include "drivers/powerdns/powerdns_messages.h"
#include "drivers/publish_bisecting.h"
#include "drivers/rest/rest.h"

#include <fmt/format.h>

#include <utility>

namespace orrery::drivers {

namespace {

constexpr std::size_t max_zone_size = 64U << 20U;
// Up to this number of names are read one by one; for more, reading the whole zone is less work for both sides.
constexpr std::size_t names_one_by_one = 8;

class PowerdnsPublisher final : public gslb::DnsProvider {
public:
    PowerdnsPublisher(net::HttpClient& client, net::Url zones, PowerdnsOptions options)
        : client_(client), zones_(std::move(zones)), options_(std::move(options)) {}

    std::string description() const override { return fmt::format("PowerDNS at {}", zones_.origin()); }

    Task<std::vector<gslb::ProviderRecords>> read(Context ctx, std::string zone, std::vector<std::string> names) override {
        std::map<std::string, gslb::RecordSets> found;
        if (names.size() > names_one_by_one) {
            CO_TRY(found, co_await zone_part(ctx, zone, {}));
        } else {
            for (const auto& name : names) {
                CO_TRY(auto part, co_await zone_part(ctx, zone, name));
                found.merge(part);
            }
        }
        std::vector<gslb::ProviderRecords> out;
        for (auto& name : names) {
            auto sets = found.find(name);
            out.push_back({name, sets == found.end() ? gslb::RecordSets{} : sets->second, true, {}});
        }
        co_return out;
    }

    Task<std::vector<Result<gslb::Accepted>>> publish(Context ctx, std::string zone, std::vector<gslb::Change> changes) override {
        // PowerDNS applies all changes or none, and answers 422 where one of them is wrong.
        co_return co_await publish_bisecting(
            std::move(changes), [&](std::span<const gslb::Change> some) { return patch(ctx, zone, some); },
            [](const Error& error) { return error.code == Code::invalid; });
    }

private:
    net::ClientRequest request(std::string method, const std::string& zone, const std::string& query) const {
        net::ClientRequest out;
        out.method = std::move(method);
        out.url = zones_;
        out.url.target += "/" + net::percent_encode(zone) + query;
        out.headers = {{"X-API-Key", options_.key}, {"Accept", "application/json"}};
        out.max_answer = max_zone_size;
        return out;
    }

    /// The sets of one name; of the whole zone where `name` is empty.
    Task<std::map<std::string, gslb::RecordSets>> zone_part(Context ctx, std::string zone, std::string name) {
        const auto query = name.empty() ? std::string() : "?rrset_name=" + net::percent_encode(name);
        CO_TRY(const auto answer, co_await client_.send(ctx, request("GET", zone, query)));
        if (answer.status != 200) co_return refused(zone, answer);
        co_return read_powerdns_zone(answer.body);
    }

    Task<Unit> patch(Context ctx, std::string zone, std::span<const gslb::Change> changes) {
        auto sent = request("PATCH", zone, "");
        sent.headers.set("Content-Type", "application/json");
        sent.body = powerdns_patch(changes);
        CO_TRY(const auto answer, co_await client_.send(ctx, std::move(sent)));
        if (answer.status != 204 && answer.status != 200) co_return refused(zone, answer);
        co_return Unit{};
    }

    Error refused(const std::string& zone, const net::ClientResponse& answer) const {
        // The body of a 422 is JSON; other bodies are plain text.
        std::string message = answer.body;
        if (auto document = read_answer("PowerDNS", answer.body); document.ok() && !text_at(as_object(*document), "error").empty())
            message = text_at(as_object(*document), "error");
        auto error = refusal("PowerDNS", answer.status, message);
        if (error.code == Code::unauthenticated)
            error.remedy = "compare the key with PowerDNS's api-key, and check webserver-allow-from";
        if (error.code == Code::not_found) error.remedy = fmt::format("create the zone {} in PowerDNS, or correct its name", zone);
        return error;
    }

    net::HttpClient& client_;
    net::Url zones_;
    PowerdnsOptions options_;
};

} // namespace

Result<std::unique_ptr<gslb::DnsProvider>> powerdns_publisher(net::HttpClient& client, PowerdnsOptions options) {
    TRY(auto base, api_base("powerdns.url", options.url, options.allow_plaintext));
    Error error{Code::invalid, ""};
    if (!is_header_token(options.key))
        error.fields.push_back({"powerdns.key", "must be a key of printable characters without spaces"});
    if (options.server.empty())
        error.fields.push_back({"powerdns.server", "must not be empty; PowerDNS calls itself \"localhost\""});
    if (!error.fields.empty()) {
        error.message = fmt::format("{} {}", error.fields.front().path, error.fields.front().message);
        return error;
    }
    if (!base.target.ends_with("/api/v1")) base.target += "/api/v1";
    base.target += fmt::format("/servers/{}/zones", net::percent_encode(options.server));
    return std::unique_ptr<gslb::DnsProvider>(std::make_unique<PowerdnsPublisher>(client, std::move(base), std::move(options)));
}

} // namespace orrery::drivers
