#include "drivers/prometheus/prometheus.h"

#include "drivers/prometheus/prometheus_messages.h"
#include "drivers/rest/rest.h"
#include "net/http.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace orrery::drivers {

namespace {

constexpr std::size_t max_answer_size = 32U << 20U;

class PrometheusSource final : public health::StatusSource {
public:
    PrometheusSource(net::HttpClient& client, net::Url base, PrometheusOptions options, PrometheusRule rule)
        : client_(client), base_(std::move(base)), options_(std::move(options)), rule_(std::move(rule)) {}

    std::string name() const override { return fmt::format("Prometheus at {}", base_.origin()); }

    Task<std::map<std::string, Reading>> read(Context ctx, std::vector<std::string> ids) override {
        net::ClientRequest request;
        request.method = "GET";
        request.url = base_;
        request.url.target += "/api/v1/query?query=" + net::percent_encode(rule_.query);
        request.headers = {{"Accept", "application/json"}};
        if (!options_.token.empty()) request.headers.set("Authorization", "Bearer " + options_.token);
        request.max_answer = max_answer_size;
        CO_TRY(const auto answer, co_await client_.send(std::move(ctx), std::move(request)));
        // The body of a 400 or 422 has the error of the query.
        if (answer.status != 200 && answer.status != 400 && answer.status != 422)
            co_return refusal("Prometheus", answer.status, answer.body);
        CO_TRY(const auto result, read_prometheus_answer(answer.body));
        std::map<std::string, Reading> out;
        for (auto& id : ids) {
            const auto* sample = prometheus_sample(result, rule_.label, id);
            if (sample == nullptr && !result.scalar) continue;
            out.emplace(std::move(id), evaluate(sample != nullptr ? sample->value : *result.scalar));
        }
        co_return out;
    }

private:
    Reading evaluate(double value) const {
        Reading out;
        out.text = fmt::format("{}", value);
        if (std::isnan(value)) {
            out.outcome = health::Outcome::local_error;
        } else if (rule_.min && value < *rule_.min) {
            out.outcome = health::Outcome::failed;
            out.text += fmt::format(", must be at least {}", *rule_.min);
        } else if (rule_.max && value > *rule_.max) {
            out.outcome = health::Outcome::failed;
            out.text += fmt::format(", must be at most {}", *rule_.max);
        } else {
            out.outcome = health::Outcome::ok;
        }
        return out;
    }

    net::HttpClient& client_;
    net::Url base_;
    PrometheusOptions options_;
    PrometheusRule rule_;
};

} // namespace

Result<std::shared_ptr<health::StatusSource>> prometheus_source(net::HttpClient& client, PrometheusOptions options,
                                                                PrometheusRule rule) {
    TRY(auto base, api_base("url", options.url, options.allow_plaintext));
    if (!options.token.empty() && !is_header_token(options.token))
        return Error{Code::invalid, "the token cannot be sent in a header", "use a token of printable characters without spaces"};
    if (!base.target.empty() && base.target.back() == '/') base.target.pop_back();
    return std::make_shared<PrometheusSource>(client, std::move(base), std::move(options), std::move(rule));
}

} // namespace orrery::drivers
