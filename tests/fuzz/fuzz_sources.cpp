// Answers of external health sources: Octavia's lists, balancers and trees, a Prometheus' query results, and pushed statuses. The
// first byte selects the reader.
#include "core/text.h"
#include "drivers/octavia/octavia_messages.h"
#include "drivers/prometheus/prometheus_messages.h"
#include "gslb/observe/health_source.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <tuple>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace orrery;
    if (size == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    const auto sound = [](const health::BalancerState& state) {
        const auto reading = health::judge(state, 1);
        if (reading.share && (*reading.share < 0 || *reading.share > 1)) std::abort();
    };
    switch (data[0] % 5) {
    case 0:
        if (const auto list = drivers::read_octavia_list(text); list.ok())
            for (const auto& one : *list) sound(one.state);
        break;
    case 1:
        if (const auto one = drivers::read_octavia_balancer(text); one.ok()) sound(one->state);
        break;
    case 2:
        if (const auto tree = drivers::read_octavia_tree(text); tree.ok()) sound(*tree);
        break;
    case 3:
        if (const auto answer = drivers::read_prometheus_answer(text); answer.ok())
            for (const auto* target : {"192.0.2.1:80", "192.0.2.1", "[2001:db8::1]:80"})
                std::ignore = drivers::prometheus_sample(*answer, "instance", target);
        break;
    default:
        if (const auto body = parse_json(text); body.ok())
            if (const auto said = gslb::parse_pushed_status(*body, std::chrono::minutes(1)); said.ok())
                if (said->ttl < std::chrono::seconds(1)) std::abort();
    }
    return 0;
}
