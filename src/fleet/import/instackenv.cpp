#include "core/nearest.h"
#include "core/text.h"
#include "core/truncate.h"
#include "fleet/import/import_errors.h"
#include "fleet/import/import_file.h"

#include <boost/json/object.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

/// instackenv.json.
namespace orrery::fleet {

namespace {

constexpr std::array<std::string_view, 23> instackenv_keys = {"name",
                                                              "pm_type",
                                                              "pm_addr",
                                                              "pm_user",
                                                              "pm_password",
                                                              "pm_port",
                                                              "mac",
                                                              "cpu",
                                                              "memory",
                                                              "disk",
                                                              "arch",
                                                              "capabilities",
                                                              "kernel_id",
                                                              "ramdisk_id",
                                                              "pm_system_id",
                                                              "ipmi_bridging",
                                                              "ipmi_transit_address",
                                                              "ipmi_transit_channel",
                                                              "ipmi_target_address",
                                                              "ipmi_target_channel",
                                                              "ipmi_local_address",
                                                              "ports",
                                                              "_comment"};

/// One node of the file.
class InstackenvNode {
public:
    InstackenvNode(const json::object& node, ImportEntry& entry, ImportErrors& errors)
        : node_(node), entry_(entry), errors_(errors) {}

    void read() {
        for (const auto& [key, value] : node_) check_key(key);
        entry_.name = text("name");
        set_bmc(entry_, text("pm_type"), text("pm_addr"), errors_);
        entry_.username = text("pm_user");
        entry_.password = text("pm_password");
        entry_.bmc.port = number("pm_port", 65535).value_or(0);
        entry_.properties.cpus = number("cpu", 1'000'000);
        entry_.properties.memory_mb = number("memory", 1'000'000'000);
        entry_.properties.local_gb = number("disk", 1'000'000'000);
        entry_.properties.cpu_arch = text("arch");
        entry_.kernel = text("kernel_id");
        entry_.ramdisk = text("ramdisk_id");
        read_capabilities();
        read_macs("mac");
        read_ports();
        for (const auto name :
             {"bridging", "transit_address", "transit_channel", "target_address", "target_channel", "local_address"})
            if (auto value = text(fmt::format("ipmi_{}", name)); !value.empty() && entry_.bmc.driver == "ipmi")
                entry_.bmc_options[name] = std::move(value);
        if (auto value = text("pm_system_id"); !value.empty() && entry_.bmc.driver == "redfish") {
            entry_.bmc.system_id = value;
            entry_.bmc_options["system_id"] = std::move(value);
        }
    }

private:
    void check_key(std::string_view key) {
        if (std::find(instackenv_keys.begin(), instackenv_keys.end(), key) != instackenv_keys.end()) return;
        const auto near = nearest(key, instackenv_keys.data(), instackenv_keys.data() + instackenv_keys.size());
        errors_.add(entry_.position, near.empty()
                                         ? fmt::format("field \"{}\" is not known", truncate(key, 64))
                                         : fmt::format("field \"{}\" is not known; did you mean {}?", truncate(key, 64), near));
    }
    /// A text, or a number as text. Nothing of the value is repeated in an error: it may be a password.
    std::string text(std::string_view key) {
        const auto* value = node_.if_contains(key);
        if (value == nullptr || value->is_null()) return {};
        if (value->is_string() && value->get_string().size() <= 1024) return std::string(std::string_view(value->get_string()));
        if (value->is_int64()) return fmt::format("{}", value->get_int64());
        errors_.add(entry_.position, fmt::format("{} must be a text of at most 1024 characters", key));
        return {};
    }
    std::optional<std::int64_t> number(std::string_view key, std::int64_t max) {
        const auto given = text(key);
        if (given.empty()) return {};
        std::int64_t out = 0;
        const auto* end = given.data() + given.size();
        const auto [stopped, failed] = std::from_chars(given.data(), end, out);
        if (failed == std::errc{} && stopped == end && out >= 1 && out <= max) return out;
        errors_.add(entry_.position, fmt::format("{} must be a whole number from 1 to {}", key, max));
        return {};
    }
    void read_capabilities() {
        auto read = parse_capabilities(text("capabilities"));
        if (read.ok())
            entry_.capabilities = std::move(*read);
        else
            errors_.add(entry_.position, fmt::format("capabilities: {}", read.error().message));
    }
    void read_macs(std::string_view key) {
        const auto* macs = node_.if_contains(key);
        if (macs == nullptr || macs->is_null()) return;
        if (macs->is_string()) return add_mac(entry_, std::string_view(macs->get_string()), errors_);
        if (!macs->is_array()) return errors_.add(entry_.position, fmt::format("{} must be a list of MAC addresses", key));
        for (const auto& one : macs->get_array())
            if (one.is_string())
                add_mac(entry_, std::string_view(one.get_string()), errors_);
            else
                errors_.add(entry_.position, fmt::format("{} must be a list of texts", key));
    }
    /// The later form: "ports": [{"address": "52:54:00:..."}].
    void read_ports() {
        const auto* ports = node_.if_contains("ports");
        if (ports == nullptr || ports->is_null()) return;
        if (!ports->is_array()) return errors_.add(entry_.position, "ports must be a list of objects with address");
        for (const auto& one : ports->get_array()) {
            const auto* address = one.is_object() ? one.get_object().if_contains("address") : nullptr;
            if (address != nullptr && address->is_string())
                add_mac(entry_, std::string_view(address->get_string()), errors_);
            else
                errors_.add(entry_.position, "ports must be a list of objects with address");
        }
    }

    const json::object& node_;
    ImportEntry& entry_;
    ImportErrors& errors_;
};

} // namespace

Result<std::vector<ImportEntry>> parse_instackenv(std::string_view text) {
    TRY(const auto document, parse_json(text));
    const auto* nodes = document.if_array();
    std::string prefix;
    if (const auto* object = document.if_object()) {
        const auto* found = object->if_contains("nodes");
        nodes = found == nullptr ? nullptr : found->if_array();
        prefix = "nodes";
    }
    if (nodes == nullptr)
        return Error{Code::invalid, "the import file has no list of nodes", R"(write {"nodes": [...]} or a list)"};
    if (nodes->size() > max_import_entries)
        return Error{Code::too_large,
                     fmt::format("the import file has {} machines; at most {} are read", nodes->size(), max_import_entries),
                     "divide the file"};
    ImportErrors errors;
    std::vector<ImportEntry> out;
    out.reserve(nodes->size());
    for (std::size_t i = 0; i < nodes->size(); ++i) {
        auto& entry = out.emplace_back();
        entry.position = fmt::format("{}[{}]", prefix, i);
        if (const auto* node = (*nodes)[i].if_object())
            InstackenvNode(*node, entry, errors).read();
        else
            errors.add(entry.position, "must be an object");
    }
    check_entries(out, errors);
    if (errors.count() > 0) return std::move(errors).error();
    return out;
}

} // namespace orrery::fleet
