// What plugins print, what gRPC servers answer, what was remembered, what checkers are told and tell: read within bounds, whatever
// it is.
#include "core/text.h"
#include "health/forced.h"
#include "health/lookout.h"
#include "health/more_probes.h"
#include "health/plugin.h"

#include <boost/asio/io_context.hpp>

#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace {

void demand(bool holds) {
    if (!holds) std::abort();
}

/// A server that looks at one target and hears what checkers say.
void tell_checkers_word(const orrery::json::value& word) {
    using namespace orrery;
    static asio::io_context loop(1);
    static VirtualClock clock;
    static health::Lookout lookout(loop.get_executor(), clock, {}, {});
    static const auto set = lookout.set("a", {.look = json::object{{"kind", "tcp"}}, .address = "192.0.2.1", .port = 80});
    demand(set.ok());
    std::ignore = lookout.take(word);
    demand(lookout.vantages().size() <= 65);
    if (!word.is_object()) return;
    if (const auto wanted = health::Wanted::from_json(word.get_object()); wanted.ok()) {
        const auto again = health::Wanted::from_json(wanted->to_json());
        demand(again.ok() && *again == *wanted);
    }
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
        tell_checkers_word(*parsed);
    }
    return 0;
}
