// What plugins print, what gRPC servers answer and what was remembered: read within bounds, whatever it is.
#include "core/text.h"
#include "health/forced.h"
#include "health/more_probes.h"
#include "health/plugin.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace {

void demand(bool holds) {
    if (!holds) std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace orrery;
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const auto said = health::read_plugin_output(bytes);
    demand(said.line.size() <= health::longest_text && said.more.size() <= health::longest_text && said.measures.size() <= 256);
    for (const auto& one : said.measures)
        demand(!one.name.empty() && one.name.size() <= 256 && one.unit.size() <= 16 && std::isfinite(one.value));
    demand(said.line.find('\n') == std::string::npos);
    std::ignore = health::read_grpc_health(bytes);
    if (const auto parsed = parse_json(bytes); parsed.ok()) {
        const auto memory = health::Memory::from_json(*parsed);
        const auto again = health::Memory::from_json(memory.to_json());
        demand(again.standing == memory.standing && again.last == memory.last && again.text == memory.text);
        std::ignore = health::Forced::from_json(*parsed);
    }
    return 0;
}
