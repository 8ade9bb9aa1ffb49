#include "drivers/externaldns/externaldns.h"

#include "drivers/externaldns/externaldns_messages.h"
#include "drivers/publish_bisecting.h"
#include "drivers/rest/rest.h"

#include <fmt/format.h>

#include <utility>

namespace orrery::drivers {

namespace {

constexpr std::size_t max_answer_size = 64U << 20U;

class ExternaldnsPublisher final : public gslb::DnsProvider {
public:
    ExternaldnsPublisher(net::HttpClient& client, net::Url base) : client_(client), base_(std::move(base)) {}

    // Only the origin: a path may hold a token.
    std::string description() const override { return fmt::format("the ExternalDNS adapter at {}", base_.origin()); }

    Task<std::vector<gslb::ProviderRecords>> read(Context ctx, std::string zone, std::vector<std::string> names) override {
        CO_TRY(const auto negotiated, co_await call(ctx, "GET", "/", {}));
        CO_TRY(const auto filters, read_externaldns_filters(negotiated));
        if (!externaldns_serves(filters, zone))
            co_return Error{Code::not_found, fmt::format("{} does not serve {}", description(), zone),
                            "add the zone to the adapter's domain filter"};
        CO_TRY(const auto body, co_await call(ctx, "GET", "/records", {}));
        CO_TRY(known_, read_externaldns_records(body));
        std::vector<gslb::ProviderRecords> out;
        for (const auto& name : names) out.push_back(externaldns_records(known_, name));
        co_return out;
    }

    Task<std::vector<gslb::ProviderRecords>> normalised(Context ctx, std::string,
                                                        std::vector<gslb::ProviderRecords> wanted) override {
        const auto body = externaldns_wanted(wanted);
        if (body == "[]") co_return wanted;
        CO_TRY(const auto answer, co_await call(ctx, "POST", "/adjustendpoints", body));
        co_return read_externaldns_adjusted(answer, std::move(wanted));
    }

    Task<std::vector<Result<gslb::Accepted>>> publish(Context ctx, std::string, std::vector<gslb::Change> changes) override {
        // An adapter answers 500 to everything, whether one record is bad or the service behind it fails. A bounded bisection
        // finds the bad record.
        co_return co_await publish_bisecting(
            std::move(changes), [&](std::span<const gslb::Change> some) { return write(ctx, some); },
            [this](const Error& error) { return error.code == Code::invalid || answered_; }, 16);
    }

private:
    Task<Unit> write(Context ctx, std::span<const gslb::Change> changes) {
        CO_TRY(std::ignore, co_await call(ctx, "POST", "/records", externaldns_changes(known_, changes)));
        co_return Unit{};
    }

    Task<std::string> call(Context ctx, std::string method, std::string path, std::string body) {
        net::ClientRequest request;
        request.method = method;
        request.url = base_;
        request.url.target += path;
        request.headers = {{"Accept", std::string(externaldns_media_type)}};
        if (method == "POST") request.headers.set("Content-Type", std::string(externaldns_media_type));
        request.body = std::move(body);
        request.max_answer = max_answer_size;
        answered_ = false;
        CO_TRY(auto answer, co_await client_.send(ctx, std::move(request)));
        answered_ = true;
        if (answer.status >= 200 && answer.status < 300) co_return std::move(answer.body);
        auto error = refusal(description(), answer.status, answer.body);
        if (answer.status == 404 || answer.status == 406 || answer.status == 415)
            error = Error{Code::unavailable, error.message,
                          "check that the URL is that of an adapter with version 1 of ExternalDNS's webhook protocol"};
        co_return error;
    }

    net::HttpClient& client_;
    net::Url base_;
    ExternaldnsEndpoints known_;
    bool answered_ = false; ///< the adapter answered the last call, even if with a refusal
};

} // namespace

Result<std::unique_ptr<gslb::DnsProvider>> externaldns_publisher(net::HttpClient& client, ExternaldnsOptions options) {
    TRY(auto base, api_base("externaldns.url", options.url, options.allow_plaintext));
    return std::unique_ptr<gslb::DnsProvider>(std::make_unique<ExternaldnsPublisher>(client, std::move(base)));
}

} // namespace orrery::drivers
