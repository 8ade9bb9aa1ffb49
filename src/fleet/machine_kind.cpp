#include "core/json_fields.h"
#include "fleet/facts/fact.h"
#include "fleet/kinds.h"
#include "fleet/mac.h"
#include "fleet/model.h"
#include "resource/object.h"
#include "resource/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace orrery::fleet {

using namespace resource;

namespace {

/// Options of one driver, by the name that Ironic gives them without the driver's prefix.
struct DriverOption {
    std::string_view driver, name;
};
constexpr std::array<DriverOption, 13> driver_options = {{{"ipmi", "bridging"},
                                                          {"ipmi", "transit_address"},
                                                          {"ipmi", "transit_channel"},
                                                          {"ipmi", "target_address"},
                                                          {"ipmi", "target_channel"},
                                                          {"ipmi", "local_address"},
                                                          {"redfish", "system_id"},
                                                          {"redfish", "verify_ca"},
                                                          {"redfish", "auth_type"},
                                                          {"irmc", "auth_method"},
                                                          {"irmc", "client_timeout"},
                                                          {"irmc", "sensor_method"},
                                                          {"irmc", "deploy_iso"}}};

std::vector<std::string> driver_names() {
    std::vector<std::string> out;
    for (const auto& driver : bmc_drivers()) out.emplace_back(driver.name);
    return out;
}

void check_bmc(const json::object& spec, std::vector<FieldError>& errors) {
    const auto& bmc = object_at(spec, "bmc");
    const auto driver = text_at(bmc, "driver");
    const auto* known = find_bmc_driver(driver);
    if (known == nullptr) return; // the declaration has refused it
    const auto address = text_at(bmc, "address");
    if (known->has_bmc && address.empty())
        errors.push_back({"spec.bmc.address", fmt::format("is required with driver {}", driver)});
    if (!known->has_bmc && texts_at(spec, "macs").empty())
        errors.push_back(
            {"spec.macs", fmt::format("need one address at least: driver {} has no BMC that identifies the machine", driver)});
    if (!address.empty() && !check_format(Format::host, address).empty() &&
        (driver != "redfish" || !check_format(Format::url, address).empty()))
        errors.push_back({"spec.bmc.address", driver == "redfish" ? "must be an IP address, a host name or a URL of http or https"
                                                                  : "must be an IP address or a host name"});
    for (const auto& [name, value] : object_at(bmc, "options")) {
        const bool fits = std::any_of(driver_options.begin(), driver_options.end(), [&, &option = name](const DriverOption& one) {
            return one.driver == driver && one.name == std::string_view(option);
        });
        if (!fits)
            errors.push_back(
                {fmt::format("spec.bmc.options.{}", std::string_view(name)), fmt::format("is not an option of driver {}", driver)});
    }
}

/// Addresses are compared as text everywhere else, so they are stored in one form.
void normalize_macs(json::object& spec, std::vector<FieldError>& errors) {
    auto* macs = spec.if_contains("macs");
    if (macs == nullptr || !macs->is_array()) return;
    std::vector<std::string> seen;
    for (std::size_t i = 0; i < macs->get_array().size(); ++i) {
        auto& one = macs->get_array()[i];
        const auto mac = one.is_string() ? normalized_mac(std::string_view(one.get_string())) : std::string();
        const auto path = fmt::format("spec.macs[{}]", i);
        if (mac.empty())
            errors.push_back({path, "must be a MAC address such as 52:54:00:4e:3d:30"});
        else if (std::find(seen.begin(), seen.end(), mac) != seen.end())
            errors.push_back({path, "occurs twice"});
        seen.push_back(mac);
        if (!mac.empty()) one = mac;
    }
}

Task<Unit> prepare_machine(Context, Draft& draft) {
    std::vector<FieldError> errors;
    check_bmc(draft.after.spec, errors);
    normalize_macs(draft.after.spec, errors);
    co_return verdict(*draft.resources->registry().find("Machine"), draft.after.name, std::move(errors));
}

/// A machine that a deployment uses is released first.
Result<Unit> check_machine_removal(Removal& removal) {
    const auto machine = MachineSpec::from(removal.object);
    if (machine.deployed.empty() && !machine.protection.enabled) return Unit{};
    if (machine.protection.enabled)
        return Error{Code::conflict,
                     fmt::format("Machine {} is protected{}{}", machine.name, machine.protection.reason.empty() ? "" : ": ",
                                 machine.protection.reason),
                     "set spec.protected.enabled to false first"};
    return Error{
        Code::conflict,
        fmt::format("Machine {} is deployed with role {} of plan {}", machine.name, machine.deployed.role, machine.deployed.plan),
        "release it from the plan first"};
}

Field flag_with_reason(std::string name, std::string doc, std::string meaning) {
    return object(std::move(name), std::move(doc))
        .with(boolean("enabled", std::move(meaning)).default_value(false))
        .with(text("reason", "The reason, for colleagues.").format(Format::one_line).between(0, 256));
}

Field bmc_field() {
    return object("bmc", "The baseboard management controller that powers the machine.")
        .required()
        .with(text("driver", "The protocol: ipmi, redfish, a vendor's own (idrac, ilo, irmc), or fake for a machine without a BMC.")
                  .required()
                  .one_of(driver_names()))
        .with(text("address", "An IP address or a host name; with redfish also a URL.").format(Format::one_line).between(1, 512))
        .with(integer("port", "The port; the driver's own where none is given.").between(1, 65535))
        .with(text("credentials", "The Secret with the values \"username\" and \"password\".").refers_to("Secret"))
        .with(map("options",
                  "Options of the driver: bridging, transit_address, transit_channel, target_address, target_channel and "
                  "local_address of ipmi; system_id, verify_ca and auth_type of redfish; auth_method, client_timeout, "
                  "sensor_method and deploy_iso of irmc.",
                  text("value", "A value.").format(Format::one_line).between(1, 256))
                  .between(0, 16));
}

} // namespace

Kind machine_kind() {
    Kind machine("Machine", "machines", "A piece of hardware with a BMC: an entry of the inventory.");
    machine.spec(bmc_field())
        .spec(list("macs", "MAC addresses of its network interfaces.",
                   text("mac", "A MAC address.").format(Format::one_line).between(12, 17))
                  .between(0, 64))
        .spec(object("properties", "Its size as declared. Facts of the machine count more.")
                  .with(integer("cpus", "Logical CPUs.").between(1, 1'000'000))
                  .with(integer("memory_mb", "Memory in MiB.").between(1, 1'000'000'000))
                  .with(integer("local_gb", "Disk in GiB.").between(1, 1'000'000'000))
                  .with(text("cpu_arch", "The architecture, as in x86_64.").format(Format::one_line).between(1, 32)))
        .spec(map("capabilities", "Capabilities by name, such as profile or boot_option.",
                  text("value", "A value.").format(Format::one_line).between(0, 128))
                  .between(0, 64))
        .spec(list("traits", "Traits, such as CUSTOM_GPU.", text("trait", "A trait.").format(Format::one_line).between(1, 255))
                  .between(0, 64))
        .spec(text("resource_class", "The class of machines that it belongs to.").format(Format::one_line).between(1, 80))
        .spec(text("failure_domain", "What fails together with it: a rack, a room, a power feed.")
                  .format(Format::one_line)
                  .between(1, 128))
        .spec(object("boot_image", "The kernel and ramdisk that the provisioner boots, by their names in its image service.")
                  .with(text("kernel", "The kernel.").format(Format::one_line).between(1, 255))
                  .with(text("ramdisk", "The ramdisk.").format(Format::one_line).between(1, 255)))
        .spec(flag_with_reason("maintenance", "Whether people work on it.", "In maintenance: no plan assigns it."))
        .spec(flag_with_reason("retired", "Whether it leaves the inventory.", "Retired: no plan assigns it again."))
        .spec(flag_with_reason("protected", "Whether its deployment must stay.",
                               "Protected: no plan releases or moves it, and it cannot be deleted."))
        .status(object("deployment", "The role that it was deployed with.")
                    .with(text("plan", "The Plan."))
                    .with(text("role", "The Role.")))
        .column("NAME", "name")
        .column("DRIVER", "spec.bmc.driver")
        .column("BMC", "spec.bmc.address")
        .column("DOMAIN", "spec.failure_domain")
        .column("ROLE", "status.deployment.role")
        .column("MAINTENANCE", "spec.maintenance.enabled")
        .column("AGE", "age")
        .wide_column("PLAN", "status.deployment.plan")
        .wide_column("MACS", "spec.macs")
        .wide_column("CAPABILITIES", "spec.capabilities")
        .wide_column("LABELS", "labels")
        .prepare([](Context ctx, Draft& draft) { return prepare_machine(std::move(ctx), draft); })
        .before_remove(check_machine_removal)
        .example(R"(kind: Machine
name: ctl-0
spec:
  bmc:
    driver: ipmi
    address: 10.0.0.8
    credentials: bmc-ctl-0
  macs: ["52:54:00:4e:3d:30"]
  properties: {cpus: 32, memory_mb: 65536, local_gb: 398, cpu_arch: x86_64}
  capabilities: {profile: control, boot_option: local}
  failure_domain: rack-1
)");
    return machine;
}

} // namespace orrery::fleet
