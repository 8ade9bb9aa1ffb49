// Events of a playbook, as the callback plugin or any other program on its standard output prints them: no line crashes the reader,
// and an outcome always has a message.
#include "drivers/ansible/playbook_outcome.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace orrery;
    std::string_view rest(reinterpret_cast<const char*>(data), size);
    drivers::AnsibleEvents events;
    std::size_t steps = 0, text = 0;
    events.on_step = [&steps](jobs::Step step) { steps += step.host.size() <= 253 ? 1 : 1000; };
    events.on_text = [&text](std::string_view piece) { text += piece.size(); };
    while (!rest.empty()) {
        const auto line = rest.substr(0, rest.find('\n'));
        events.line(line);
        rest.remove_prefix(line.size() < rest.size() ? line.size() + 1 : rest.size());
    }
    if (steps > size || text > 100 * size + 1000) std::abort();
    for (const int code : {0, 1, 2, 4, 250}) {
        const auto outcome = drivers::playbook_outcome(events, code, 1, "");
        const bool good = outcome.ended == jobs::Outcome::Ended::succeeded;
        if (good != (outcome.error == jobs::ErrorClass::none) || (!good && outcome.message.empty()) || (good && code != 0))
            std::abort();
    }
    return 0;
}
