// JSON: a value that is read can be written, in every format, and reads back as the same value; resources made of it keep their
// invariants.
#include "core/text.h"
#include "resource/kinds.h"
#include "resource/object.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace orrery;

void demand(bool holds) {
    if (!holds) std::abort();
}

void check_object(const resource::Kind& kind, const json::value& document) {
    auto object = resource::read_object(kind, "", document);
    if (!object.ok()) {
        demand(!object.error().message.empty() && object.error().fields.size() <= 200);
        return;
    }
    demand(resource::is_valid_name(object->name));
    store::Record record{object->key(kind), resource::to_stored(*object), 1, 1, 1, 0};
    const auto back = resource::from_stored(record);
    demand(back.ok() && back->spec == object->spec && back->labels == object->labels);
    // What is valid stays valid: defaults and order are settled by one reading.
    const auto again = resource::read_object(kind, object->name, json::value(back->to_json()));
    demand(again.ok() && again->spec == object->spec);
    demand(resource::differences(kind, {{"spec", object->spec}}, {{"spec", again->spec}}).empty());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const resource::Kind kinds[] = {resource::node_kind(), resource::secret_kind(), resource::event_kind()};
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto value = parse_json(text);
    if (!value.ok()) return 0;
    const auto compact = to_json_text(*value);
    const auto again = parse_json(compact);
    demand(again.ok() && to_json_text(*again) == compact);
    const auto pretty = parse_json(to_pretty_json(*value));
    demand(pretty.ok() && to_json_text(*pretty) == compact);
    const auto yaml = parse_yaml(to_yaml(*value));
    demand(yaml.ok());
    demand(value->is_null() ? yaml->empty() : yaml->size() == 1 && to_json_text(yaml->front().value) == compact);
    auto patched = *value;
    resource::merge_patch(patched, *value);
    for (const auto& kind : kinds) check_object(kind, *value);
    return 0;
}
