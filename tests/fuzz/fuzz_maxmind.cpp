// MaxMind DB files: for any bytes, opening, lookups and the classification of clients end.
#include "gslb/clients/geo_classes.h"

#include <cstdint>
#include <string>
#include <tuple>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace orrery;
    const auto database = gslb::MaxmindDatabase::read(std::string(reinterpret_cast<const char*>(data), size));
    if (!database.ok()) return 0;
    for (const auto* address : {"192.0.2.1", "10.0.0.1", "2001:db8::1", "::1", "255.255.255.255"})
        std::ignore = database->find(boost::asio::ip::make_address(address));
    const gslb::GeoQuery question{.rules = {{.country = "NL", .label = "nl", .pools = {"a"}},
                                            {.continent = "EU", .subdivision = "NH", .label = "north", .pools = {"a"}},
                                            {.asn = 64500, .label = "asn", .pools = {"b"}}},
                                  .near = {{"a", {52, 5}}, {"b", {40, -74}}}};
    const gslb::MaxmindDatabase* databases[] = {&*database, &*database};
    const auto made = gslb::geo_classes(question, databases);
    std::ignore = made.clients.find(boost::asio::ip::make_address("192.0.2.1"));
    return 0;
}
