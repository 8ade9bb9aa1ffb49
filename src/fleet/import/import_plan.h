#pragma once

#include "fleet/import/import_file.h"

#include <boost/json/object.hpp>

#include <string>
#include <vector>

/// Compares an import file with the inventory. Pure.
namespace orrery::fleet {

/// A machine of the inventory.
struct InventoryEntry {
    std::string name;
    json::object spec;
};

struct ImportAction {
    enum class Op { create, update, unchanged };
    Op op = Op::create;
    std::string machine;
    std::string position; ///< in the file
    std::string name_in_file;
    json::object spec;  ///< of the Machine, as it is to be
    std::string secret; ///< its credentials; empty: none
    std::string username, password;
};
std::string_view name_of(ImportAction::Op op);

struct ImportPlan {
    std::vector<ImportAction> actions;
    std::vector<std::string> absent; ///< machines of the inventory that the file does not have
};

/// A machine is known by the address and port of its BMC, or, without a BMC, by any of its MAC addresses. Fields that the file
/// gives replace those of the inventory, capabilities one by one; all others stay. `invalid` with all conflicts at once.
Result<ImportPlan> plan_import(const std::vector<ImportEntry>& entries, const std::vector<InventoryEntry>& inventory);

} // namespace orrery::fleet
