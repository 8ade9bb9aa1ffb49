// Output of plugins, responses of gRPC servers, assignments and reports of checkers: parsed within bounds, whatever the bytes are.
#include "core/text.h"
#include "health/check_spec.h"
#include "health/probes/grpc_probe.h"
#include "health/probes/plugin_probe.h"
#include "health/vantages/health_aggregator.h"

#include <boost/asio/io_context.hpp>

#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace {

void demand(bool holds) {
    if (!holds) std::abort();
}

/// Feeds reports of checkers to an aggregator with one target, and assignments to the parser of checkers.
void feed_reports(const orrery::json::value& body) {
    using namespace orrery;
    static asio::io_context loop(1);
    static VirtualClock clock;
    static health::HealthAggregator aggregator(loop.get_executor(), clock, {}, {});
    static const auto set = aggregator.set("a", {.probe = json::object{{"kind", "tcp"}}, .address = "192.0.2.1", .port = 80});
    demand(set.ok());
    std::ignore = aggregator.receive_reports(body);
    demand(aggregator.vantages().size() <= 65);
    if (!body.is_object()) return;
    if (const auto spec = health::CheckSpec::from_json(body.get_object()); spec.ok()) {
        const auto again = health::CheckSpec::from_json(spec->to_json());
        demand(again.ok() && *again == *spec);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace orrery;
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const auto output = health::read_plugin_output(bytes);
    demand(output.line.size() <= health::max_text && output.more.size() <= health::max_text && output.measures.size() <= 256);
    for (const auto& one : output.measures)
        demand(!one.name.empty() && one.name.size() <= 256 && one.unit.size() <= 16 && std::isfinite(one.value));
    demand(output.line.find('\n') == std::string::npos);
    std::ignore = health::read_grpc_health(bytes);
    if (const auto parsed = parse_json(bytes); parsed.ok()) {
        feed_reports(*parsed);
    }
    return 0;
}
