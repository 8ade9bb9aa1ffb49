// Shell scripts of jobs: no script crashes the reader or takes long; a refusal names a line and a remedy; in a script that is
// accepted no reference is left, and each variable is used.
#include "jobs/script_text.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {
void demand(bool holds) {
    if (!holds) std::abort();
}
} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view script(reinterpret_cast<const char*>(data), size);
    const auto bound = orrery::jobs::bind_script_text(script);
    if (!bound.ok()) {
        demand(bound.error().message.starts_with("line ") && !bound.error().remedy.empty());
        return 0;
    }
    demand(std::count(bound->text.begin(), bound->text.end(), '\n') <= std::count(script.begin(), script.end(), '\n'));
    for (const auto& variable : bound->variables)
        demand(variable.line >= 1 && bound->text.find("${" + variable.name + "}") != std::string::npos);
    return 0;
}
