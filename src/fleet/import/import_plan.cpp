#include "fleet/import/import_plan.h"

#include "core/json_fields.h"
#include "fleet/import/import_errors.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

namespace orrery::fleet {

namespace {

/// An address as a part of a resource name.
std::string name_part(std::string_view text) {
    std::string out;
    for (char c : text) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
        const bool allowed = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
        out += allowed ? c : '-';
    }
    while (!out.empty() && (out.front() == '-' || out.front() == '.')) out.erase(0, 1);
    while (!out.empty() && (out.back() == '-' || out.back() == '.')) out.pop_back();
    return out;
}

std::string default_name(const ImportEntry& entry) {
    if (!entry.name.empty()) return entry.name;
    if (entry.bmc.identity().empty()) return "machine-" + name_part(entry.macs.front());
    std::string_view host = entry.bmc.address; // of a URL the host
    if (const auto scheme = host.find("://"); scheme != std::string_view::npos) host.remove_prefix(scheme + 3);
    const auto name = "machine-" + name_part(host.substr(0, host.find('/')));
    return entry.bmc.port == 0 ? name : fmt::format("{}-{}", name, entry.bmc.port);
}

MachineSpec machine_of(const InventoryEntry& entry) {
    resource::Object object;
    object.name = entry.name;
    object.spec = entry.spec;
    return MachineSpec::from(object);
}

json::object& object_in(json::object& holder, std::string_view key) {
    auto& value = holder[key];
    if (!value.is_object()) value = json::object{};
    return value.get_object();
}

void set_if_given(json::object& holder, std::string_view key, const std::string& value) {
    if (!value.empty()) holder[key] = value;
}

void set_if_given(json::object& holder, std::string_view key, const std::optional<std::int64_t>& value) {
    if (value) holder[key] = *value;
}

/// The spec after the import: `before` with what the file gives.
json::object merged_spec(json::object spec, const ImportEntry& entry, const std::string& secret) {
    auto& bmc = object_in(spec, "bmc");
    bmc["driver"] = entry.bmc.driver;
    set_if_given(bmc, "address", entry.bmc.address);
    if (entry.bmc.port != 0) bmc["port"] = entry.bmc.port;
    set_if_given(bmc, "credentials", secret);
    for (const auto& [name, value] : entry.bmc_options) object_in(bmc, "options")[name] = value;
    if (!entry.macs.empty()) {
        auto macs = texts_at(spec, "macs");
        for (const auto& mac : entry.macs)
            if (std::find(macs.begin(), macs.end(), mac) == macs.end()) macs.push_back(mac);
        spec["macs"] = to_array(macs);
    }
    if (entry.properties != HardwareProperties{}) {
        auto& properties = object_in(spec, "properties");
        set_if_given(properties, "cpus", entry.properties.cpus);
        set_if_given(properties, "memory_mb", entry.properties.memory_mb);
        set_if_given(properties, "local_gb", entry.properties.local_gb);
        set_if_given(properties, "cpu_arch", entry.properties.cpu_arch);
    }
    for (const auto& [name, value] : entry.capabilities) object_in(spec, "capabilities")[name] = value;
    if (!entry.kernel.empty()) object_in(spec, "boot_image")["kernel"] = entry.kernel;
    if (!entry.ramdisk.empty()) object_in(spec, "boot_image")["ramdisk"] = entry.ramdisk;
    return spec;
}

/// The inventory by what identifies a machine.
class InventoryIndex {
public:
    explicit InventoryIndex(const std::vector<InventoryEntry>& inventory) {
        for (std::size_t i = 0; i < inventory.size(); ++i) {
            const auto machine = machine_of(inventory[i]);
            by_name_.emplace(machine.name, i);
            if (const auto identity = machine.bmc.identity(); !identity.empty())
                by_bmc_.emplace(identity, i);
            else
                for (const auto& mac : machine.macs) by_mac_.emplace(mac, i);
        }
    }
    std::optional<std::size_t> find(const ImportEntry& entry) const {
        if (const auto identity = entry.bmc.identity(); !identity.empty()) return at(by_bmc_, identity);
        for (const auto& mac : entry.macs)
            if (const auto found = at(by_mac_, mac)) return found;
        return {};
    }
    std::optional<std::size_t> named(const std::string& name) const { return at(by_name_, name); }

private:
    using Index = std::unordered_map<std::string, std::size_t>;
    static std::optional<std::size_t> at(const Index& index, const std::string& key) {
        const auto found = index.find(key);
        if (found == index.end()) return {};
        return found->second;
    }
    Index by_name_, by_bmc_, by_mac_;
};

} // namespace

std::string_view name_of(ImportAction::Op op) {
    return op == ImportAction::Op::create ? "created" : op == ImportAction::Op::update ? "updated" : "unchanged";
}

Result<ImportPlan> plan_import(const std::vector<ImportEntry>& entries, const std::vector<InventoryEntry>& inventory) {
    const InventoryIndex index(inventory);
    ImportErrors errors;
    ImportPlan out;
    std::set<std::string> used, new_names;
    for (const auto& entry : entries) {
        ImportAction action{
            .position = entry.position, .name_in_file = entry.name, .username = entry.username, .password = entry.password};
        const auto known = index.find(entry);
        action.machine = known ? inventory[*known].name : default_name(entry);
        if (!known && index.named(action.machine))
            errors.add(
                entry.position,
                fmt::format("Machine {} exists with another BMC; change its spec.bmc first, or use another name", action.machine));
        else if (!known && !new_names.insert(action.machine).second)
            errors.add(entry.position, fmt::format("Machine {} would be created twice; give the entries names", action.machine));
        if (known && !used.insert(action.machine).second)
            errors.add(entry.position, fmt::format("several entries are Machine {} of the inventory", action.machine));
        const auto before = known ? inventory[*known].spec : json::object{};
        if (!entry.password.empty()) {
            action.secret = text_at(object_at(before, "bmc"), "credentials");
            if (action.secret.empty()) action.secret = "bmc-" + action.machine;
        }
        action.spec = merged_spec(before, entry, action.secret);
        if (known) action.op = action.spec == before ? ImportAction::Op::unchanged : ImportAction::Op::update;
        out.actions.push_back(std::move(action));
    }
    if (errors.count() > 0) return std::move(errors).error();
    for (const auto& machine : inventory)
        if (!used.contains(machine.name)) out.absent.push_back(machine.name);
    std::sort(out.absent.begin(), out.absent.end());
    return out;
}

} // namespace orrery::fleet
