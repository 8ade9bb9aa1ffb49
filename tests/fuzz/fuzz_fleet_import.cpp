// An import file as any tool may write it: no input crashes the readers or keeps them long; what is refused has a position and a
// message; what is accepted gives the same inventory when it is imported again.
#include "fleet/import/import_plan.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

using namespace orrery;

void demand(bool holds) {
    if (!holds) std::abort();
}

void check(const Result<std::vector<fleet::ImportEntry>>& parsed) {
    if (!parsed.ok()) {
        demand(!parsed.error().message.empty());
        for (const auto& field : parsed.error().fields) demand(!field.path.empty() && !field.message.empty());
        return;
    }
    const auto first = fleet::plan_import(*parsed, {});
    if (!first.ok()) return; // two entries without a name for one BMC
    demand(first->actions.size() == parsed->size());
    std::vector<fleet::InventoryEntry> inventory;
    for (const auto& action : first->actions) inventory.push_back({action.machine, action.spec});
    const auto second = fleet::plan_import(*parsed, inventory);
    demand(second.ok() && second->absent.empty());
    for (const auto& action : second->actions) demand(action.op == fleet::ImportAction::Op::unchanged);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    check(fleet::parse_import(text));
    check(fleet::parse_import_csv(text));
    return 0;
}
