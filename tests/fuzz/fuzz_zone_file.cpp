// Zone files: a zone that is read keeps its invariants and can be served.
#include "dns/authority.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {
void demand(bool holds) {
    if (!holds) std::abort();
}
} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace orrery::dns;
    const auto origin = *Name::from_text("z");
    auto zone = parse_zone(std::string_view(reinterpret_cast<const char*>(data), size), origin);
    if (!zone.ok()) {
        demand(!zone.error().message.empty());
        return 0;
    }
    const auto count = zone->records.size();
    demand(check_zone(*zone).ok() && zone->records.size() == count);
    std::vector<std::pair<Name, std::uint16_t>> asked;
    for (const auto& record : zone->records) {
        demand(record.owner.is_within(origin) && is_well_formed(record.type, record.data));
        asked.emplace_back(record.owner, record.type);
    }
    Authority authority{{}};
    Authority::Update update{.revision = 1};
    update.zones.push_back(std::move(*zone));
    demand(authority.apply(std::move(update)).ok());
    demand(authority.zone_records(origin)->size() == count);
    std::vector<std::uint8_t> out(65535);
    for (const auto& [owner, type] : asked) {
        const auto answered = authority.respond(write_query(1, owner, type), {.transport = Client::Transport::tcp}, out);
        const auto message = read_message(Bytes(out).first(answered));
        demand(message.ok() && message->rcode != Rcode::nxdomain && message->rcode != Rcode::refused);
    }
    return 0;
}
