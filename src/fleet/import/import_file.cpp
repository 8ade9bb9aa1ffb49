#include "fleet/import/import_file.h"

#include "core/truncate.h"
#include "fleet/import/import_errors.h"
#include "fleet/mac.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace orrery::fleet {

namespace {

/// Types that were dropped by the services that knew them.
constexpr std::array<std::string_view, 4> dropped_types = {"pxe_ucs", "pxe_iboot", "pxe_wol", "pxe_ssh"};

/// Registers the position of a value; reports a value that another entry has.
void check_unique(std::map<std::string, std::string>& seen, const std::string& value, const std::string& position,
                  std::string_view label, ImportErrors& errors) {
    if (value.empty()) return;
    const auto [known, inserted] = seen.emplace(value, position);
    if (!inserted) errors.add(position, fmt::format("{} {} is also that of {}", label, value, known->second));
}

/// The number in a position such as "nodes[12]" or "line 7".
std::size_t number_in_position(std::string_view position) {
    std::size_t number = 0;
    const auto digits = position.find_first_of("0123456789");
    if (digits != std::string_view::npos) std::from_chars(position.data() + digits, position.data() + position.size(), number);
    return number;
}

} // namespace

Error ImportErrors::error() && {
    // Entries are read first and then compared with each other; users correct a file from its top.
    std::vector<std::pair<std::size_t, std::size_t>> order;
    for (const auto& field : fields_) order.emplace_back(number_in_position(field.path), order.size());
    std::sort(order.begin(), order.end());
    std::vector<FieldError> sorted;
    for (const auto& [number, at] : order) sorted.push_back(std::move(fields_[at]));
    Error out{Code::invalid, fmt::format("the import file has {} {}", count_, count_ == 1 ? "error" : "errors"),
              "correct them and import the file again; nothing was changed"};
    out.fields = std::move(sorted);
    if (count_ > out.fields.size()) out.fields.push_back({"(file)", fmt::format("{} further errors", count_ - out.fields.size())});
    return out;
}

std::string driver_of_pm_type(std::string_view pm_type) {
    if (pm_type.find("ipmi") != std::string_view::npos) return "ipmi";
    if (pm_type.find("redfish") != std::string_view::npos) return "redfish";
    if (pm_type == "pxe_drac" || pm_type == "idrac") return "idrac";
    if (pm_type == "pxe_ilo" || pm_type == "ilo") return "ilo";
    if (pm_type.ends_with("_irmc") || pm_type == "irmc") return "irmc";
    if (pm_type == "fake_pxe" || pm_type == "fake" || pm_type == "fake-hardware") return "fake";
    return {};
}

Result<std::map<std::string, std::string>> parse_capabilities(std::string_view text) {
    std::map<std::string, std::string> out;
    while (!text.empty()) {
        const auto comma = std::min(text.find(','), text.size());
        const auto part = text.substr(0, comma);
        text.remove_prefix(std::min(text.size(), comma + 1));
        const auto colon = part.find(':');
        if (colon == std::string_view::npos || colon == 0)
            return Error{Code::invalid, fmt::format("\"{}\" is not a capability", truncate(part, 64)),
                         "write profile:control,boot_option:local"};
        out[std::string(part.substr(0, colon))] = part.substr(colon + 1);
    }
    return out;
}

void set_bmc(ImportEntry& entry, std::string_view pm_type, std::string_view pm_addr, ImportErrors& errors) {
    entry.bmc.driver = driver_of_pm_type(pm_type);
    entry.bmc.address = pm_addr;
    if (entry.bmc.driver.empty() && pm_type.empty())
        errors.add(entry.position, "pm_type is missing");
    else if (entry.bmc.driver.empty() && std::find(dropped_types.begin(), dropped_types.end(), pm_type) != dropped_types.end())
        errors.add(entry.position, fmt::format("pm_type {} is served by no driver any more; use ipmi or redfish", pm_type));
    else if (entry.bmc.driver.empty())
        errors.add(entry.position,
                   fmt::format("pm_type \"{}\" is not known; use ipmi, redfish, idrac, ilo, irmc or fake", truncate(pm_type, 64)));
}

void add_mac(ImportEntry& entry, std::string_view text, ImportErrors& errors) {
    auto mac = normalized_mac(text);
    if (mac.empty())
        errors.add(entry.position, fmt::format("\"{}\" is not a MAC address such as 52:54:00:4e:3d:30", truncate(text, 64)));
    else
        entry.macs.push_back(std::move(mac));
}

void check_entries(const std::vector<ImportEntry>& entries, ImportErrors& errors) {
    std::map<std::string, std::string> names, bmcs, macs;
    for (const auto& entry : entries) {
        const auto* driver = find_bmc_driver(entry.bmc.driver);
        if (driver != nullptr && driver->has_bmc) {
            if (entry.bmc.address.empty()) errors.add(entry.position, "pm_addr is missing");
            if (entry.username.empty()) errors.add(entry.position, "pm_user is missing");
            if (entry.password.empty()) errors.add(entry.position, "pm_password is missing");
        } else if (driver != nullptr && entry.macs.empty()) {
            errors.add(entry.position,
                       fmt::format("mac is missing: driver {} has no BMC that identifies the machine", driver->name));
        }
        if (!entry.bmc.address.empty() && !resource::check_format(resource::Format::host, entry.bmc.address).empty() &&
            (entry.bmc.driver != "redfish" || !resource::check_format(resource::Format::url, entry.bmc.address).empty()))
            errors.add(entry.position,
                       fmt::format("pm_addr \"{}\" is neither an IP address nor a host name", truncate(entry.bmc.address, 64)));
        if (!entry.name.empty() && !resource::is_valid_name(entry.name))
            errors.add(entry.position,
                       fmt::format("name \"{}\" must have a-z, 0-9, - and . only, and begin and end with a letter or digit",
                                   truncate(entry.name, 64)));
        check_unique(names, entry.name, entry.position, "name", errors);
        check_unique(bmcs, entry.bmc.identity(), entry.position, "BMC", errors);
        for (const auto& mac : entry.macs) check_unique(macs, mac, entry.position, "MAC address", errors);
    }
}

Result<std::vector<ImportEntry>> parse_import(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos)
        return Error{Code::invalid, "the import file is empty", "give a list of machines as JSON or CSV"};
    if (text[first] == '{' || text[first] == '[') return parse_instackenv(text);
    return parse_import_csv(text);
}

} // namespace orrery::fleet
