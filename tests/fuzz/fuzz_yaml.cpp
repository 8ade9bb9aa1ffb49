// YAML: no input crashes the reader or takes long, and a value that is read reads back from the text that is written of it.
#include "core/text.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace orrery;

void demand(bool holds) {
    if (!holds) std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto documents = parse_yaml(text);
    if (!documents.ok()) {
        demand(!documents.error().message.empty());
        return 0;
    }
    int line = 0;
    for (const auto& document : *documents) {
        demand(!document.value.is_null() && document.line >= line);
        line = document.line;
        const auto compact = to_json_text(document.value);
        const auto again = parse_yaml(to_yaml(document.value));
        demand(again.ok() && again->size() == 1 && to_json_text(again->front().value) == compact);
        const auto as_json = parse_json(compact);
        demand(as_json.ok() && to_json_text(*as_json) == compact);
    }
    return 0;
}
