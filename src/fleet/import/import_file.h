#pragma once

#include "core/result.h"
#include "fleet/model.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

/// Reads lists of machines as older deployment tools write them. Pure functions over text.
namespace orrery::fleet {

/// One machine of an import file. Fields that the file leaves out are empty, and leave the inventory as it is.
struct ImportEntry {
    std::string position; ///< "nodes[3]" or "line 4", for messages
    std::string name;
    BmcSpec bmc;
    std::map<std::string, std::string> bmc_options;
    std::string username, password;
    std::vector<std::string> macs;
    HardwareProperties properties;
    std::map<std::string, std::string> capabilities;
    std::string kernel, ramdisk;
};

constexpr std::size_t max_import_entries = 20'000;
/// Errors beyond these are counted only.
constexpr std::size_t max_import_errors = 200;

/// instackenv JSON ({"nodes": [...]} or a bare list) where the text begins with { or [, else CSV. All errors at once, each with its
/// index or line; no error repeats a password.
Result<std::vector<ImportEntry>> parse_import(std::string_view text);

/// {"nodes":[{"pm_type","pm_addr","pm_user","pm_password","mac":[...],"cpu","memory","disk","arch","capabilities",...}]}.
Result<std::vector<ImportEntry>> parse_instackenv(std::string_view text);
/// pm_type,pm_addr,pm_user,pm_password,mac without a header; several MAC addresses are separated by spaces. Fields may be quoted.
Result<std::vector<ImportEntry>> parse_import_csv(std::string_view text);

/// The driver of a pm_type: "pxe_ipmitool" is ipmi. Empty for a type that no driver serves today.
std::string driver_of_pm_type(std::string_view pm_type);

/// "profile:control,boot_option:local" as a map. `invalid` for a part without a colon.
Result<std::map<std::string, std::string>> parse_capabilities(std::string_view text);

} // namespace orrery::fleet
