// Input of the Consul facade besides JSON, and answers of a Consul.
#include "api/facades/consul/facade_state.h"
#include "core/text.h"
#include "drivers/consul/consul.h"

#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace orrery;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    static const auto sample = *parse_json(
        R"({"Node":"n1","ServiceTags":["a","b"],"Meta":{"k":"v"},"Port":80,"Checks":[{"Status":"passing"}],"Empty":""})");
    if (const auto filter = api::consul::Filter::parse(text); filter.ok()) std::ignore = filter->matches(sample);
    if (const auto duration = api::consul::parse_go_duration(text)) std::ignore = api::consul::go_duration(*duration);
    std::ignore = drivers::read_health(text);
    return 0;
}
