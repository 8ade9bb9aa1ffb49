// The importers. The first byte selects the format (0: gdnsd, 1: PowerDNS, 2: Route 53); a line "---" separates two files.
#include "importers/import.h"

#include <boost/json/parse.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace orrery;
namespace json = boost::json;

void use(const Result<importers::ImportResult>& imported) {
    if (!imported.ok()) return;
    for (const auto& document : imported->documents)
        if (!document.contains("kind") || !document.contains("name") || !document.contains("spec")) std::abort();
    for (const auto& warning : imported->warnings)
        if (warning.empty()) std::abort();
}

json::value parsed(std::string_view text) {
    boost::system::error_code failed;
    auto out = json::parse(text, failed);
    return failed ? json::value() : out;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    constexpr std::string_view separator = "\n---\n";
    const auto at = text.find(separator);
    const auto first = text.substr(0, at);
    const auto second = at == std::string_view::npos ? std::string_view() : text.substr(at + separator.size());
    switch (data[0] % 3) {
    case 0: use(importers::import_gdnsd(first, {{"example.test", std::string(second)}})); break;
    case 1: use(importers::import_powerdns(first, "example.test")); break;
    default: use(importers::import_route53(parsed(first), parsed(second)));
    }
    return 0;
}
