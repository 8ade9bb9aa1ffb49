// MaxMind DB files: whatever their bytes are, reading ends, and asking does.
#include "gslb/geo.h"

#include <cstdint>
#include <string>
#include <tuple>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace orrery;
    const auto database = gslb::GeoDatabase::read(std::string(reinterpret_cast<const char*>(data), size));
    if (!database.ok()) return 0;
    for (const auto* address : {"192.0.2.1", "10.0.0.1", "2001:db8::1", "::1", "255.255.255.255"})
        std::ignore = database->find(boost::asio::ip::make_address(address));
    std::size_t visited = 0;
    database->each([&](const dns::Prefix&, std::uint32_t entry) {
        if (++visited <= 200) std::ignore = database->place(entry);
    });
    return 0;
}
