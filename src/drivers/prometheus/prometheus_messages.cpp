#include "drivers/prometheus/prometheus_messages.h"

#include "drivers/rest/rest.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace orrery::drivers {

namespace {

constexpr std::size_t max_samples = 100'000;

Error not_prometheus() { return {Code::unavailable, "the answer of Prometheus is not the result of an instant query"}; }

/// [1700000000.1, "0.5"]
std::optional<double> value_in(const json::value* pair) {
    if (pair == nullptr || !pair->is_array() || pair->get_array().size() != 2 || !pair->get_array()[1].is_string())
        return std::nullopt;
    const std::string text(std::string_view(pair->get_array()[1].get_string()));
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
    if (text == "+Inf") return HUGE_VAL;
    if (text == "-Inf") return -HUGE_VAL;
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || end != text.c_str() + text.size()) return std::nullopt;
    return value;
}

/// The address of "192.0.2.1:80" or "[2001:db8::1]:80"; an address without a port is returned as it is.
std::string_view host_in(std::string_view instance) {
    if (instance.starts_with('[')) {
        const auto end = instance.find(']');
        return end == std::string_view::npos ? instance : instance.substr(1, end - 1);
    }
    const auto colon = instance.find(':');
    if (colon == std::string_view::npos || instance.find(':', colon + 1) != std::string_view::npos) return instance;
    return instance.substr(0, colon);
}

} // namespace

Result<PrometheusAnswer> read_prometheus_answer(std::string_view body) {
    TRY(const auto document, read_answer("Prometheus", body));
    if (text_at(as_object(document), "status") == "error") {
        const bool bad_query = text_at(as_object(document), "errorType") == "bad_data";
        return Error{bad_query ? Code::invalid : Code::unavailable,
                     fmt::format("Prometheus: {}", one_line(text_at(as_object(document), "error")))};
    }
    const auto& data = object_at(as_object(document), "data");
    const auto type = text_at(data, "resultType");
    const auto* result = data.if_contains("result");
    PrometheusAnswer out;
    if (type == "scalar") {
        out.scalar = value_in(result);
        if (!out.scalar) return not_prometheus();
        return out;
    }
    if (type != "vector" || result == nullptr || !result->is_array()) return not_prometheus();
    if (result->get_array().size() > max_samples)
        return Error{Code::too_large, fmt::format("Prometheus answers with {} samples; at most {} are read",
                                                  result->get_array().size(), max_samples)};
    for (const auto& item : result->get_array()) {
        const auto value = value_in(as_object(item).if_contains("value"));
        const auto* metric = as_object(item).if_contains("metric");
        if (!value || metric == nullptr || !metric->is_object()) return not_prometheus();
        PrometheusAnswer::Sample sample{{}, *value};
        for (const auto& [name, label] : metric->get_object())
            if (label.is_string()) sample.labels.emplace(std::string_view(name), std::string_view(label.get_string()));
        out.samples.push_back(std::move(sample));
    }
    return out;
}

const PrometheusAnswer::Sample* prometheus_sample(const PrometheusAnswer& answer, const std::string& label,
                                                  std::string_view target) {
    const PrometheusAnswer::Sample* best = nullptr;
    int quality = 0;
    const auto host = host_in(target);
    for (const auto& sample : answer.samples) {
        const auto found = sample.labels.find(label);
        if (found == sample.labels.end()) continue;
        const int now = found->second == target ? 3 : found->second == host ? 2 : host_in(found->second) == host ? 1 : 0;
        if (now > quality) best = &sample, quality = now;
    }
    return best;
}

} // namespace orrery::drivers
