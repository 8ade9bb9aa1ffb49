#include "drivers/powerdns/powerdns.h"

#include "drivers/powerdns/powerdns_messages.h"
#include "drivers/publish_in_halves.h"
#include "drivers/rest/rest.h"

#include <fmt/format.h>

#include <utility>

namespace orrery::drivers {

namespace {

constexpr std::size_t longest_zone = 64U << 20U;
// One name is asked for by itself; from so many on the whole zone is less work for both.
constexpr std::size_t names_one_by_one = 8;

class PowerdnsPublisher final : public gslb::Publisher {
public:
    PowerdnsPublisher(net::HttpClient& client, net::Url zones, PowerdnsOptions options)
        : client_(client), zones_(std::move(zones)), options_(std::move(options)) {}

    std::string description() const override { return fmt::format("PowerDNS at {}", zones_.origin()); }

    Task<std::vector<gslb::Standing>> read(Context ctx, std::string zone, std::vector<std::string> names) override {
        std::map<std::string, gslb::RecordSets> found;
        if (names.size() > names_one_by_one) {
            CO_TRY(found, co_await zone_part(ctx, zone, {}));
        } else {
            for (const auto& name : names) {
                CO_TRY(auto part, co_await zone_part(ctx, zone, name));
                found.merge(part);
            }
        }
        std::vector<gslb::Standing> out;
        for (auto& name : names) {
            auto sets = found.find(name);
            out.push_back({name, sets == found.end() ? gslb::RecordSets{} : sets->second, true, {}});
        }
        co_return out;
    }

    Task<std::vector<Result<gslb::Accepted>>> publish(Context ctx, std::string zone, std::vector<gslb::Change> changes) override {
        // It takes all or none, and says 422 where one of them is wrong.
        co_return co_await publish_in_halves(
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
        out.max_answer = longest_zone;
        return out;
    }

    /// The sets at one name, or of the whole zone.
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
        // 422 comes with JSON, others as bare text.
        std::string words = answer.body;
        if (auto document = read_answer("PowerDNS", answer.body); document.ok() && !text_at(&*document, "error").empty())
            words = text_at(&*document, "error");
        auto error = refusal("PowerDNS", answer.status, words);
        if (error.code == Code::unauthenticated) error.remedy = "check the key against its api-key, and webserver-allow-from";
        if (error.code == Code::not_found) error.remedy = fmt::format("create the zone {} there, or correct the zone", zone);
        return error;
    }

    net::HttpClient& client_;
    net::Url zones_;
    PowerdnsOptions options_;
};

} // namespace

Result<std::unique_ptr<gslb::Publisher>> powerdns_publisher(net::HttpClient& client, PowerdnsOptions options) {
    TRY(auto base, api_base("powerdns.url", options.url, options.allow_plaintext));
    Error error{Code::invalid, ""};
    if (!is_header_token(options.key)) error.fields.push_back({"powerdns.key", "gives no key that could be sent"});
    if (options.server.empty()) error.fields.push_back({"powerdns.server", "is empty; PowerDNS calls itself \"localhost\""});
    if (!error.fields.empty()) {
        error.message = fmt::format("{} {}", error.fields.front().path, error.fields.front().message);
        return error;
    }
    if (!base.target.ends_with("/api/v1")) base.target += "/api/v1";
    base.target += fmt::format("/servers/{}/zones", net::percent_encode(options.server));
    return std::unique_ptr<gslb::Publisher>(std::make_unique<PowerdnsPublisher>(client, std::move(base), std::move(options)));
}

} // namespace orrery::drivers
