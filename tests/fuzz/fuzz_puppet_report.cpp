// A node's Puppet report: no bytes crash the reader, and a report never improves on the exit code.
#include "drivers/puppet/report.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace orrery;
    const auto report = drivers::read_puppet_report(std::string_view(reinterpret_cast<const char*>(data), size));
    if (!report.ok() && report.error().message.empty()) std::abort();
    for (const int code : {0, 1, 2, 4, 6, 127}) {
        const auto outcome = drivers::puppet_outcome(report, code, "");
        const bool good = outcome.ended == jobs::Outcome::Ended::succeeded;
        if (good && code != 0 && code != 2) std::abort();
        if (good != (outcome.error == jobs::ErrorClass::none)) std::abort();
    }
    return 0;
}
