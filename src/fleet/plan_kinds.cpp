#include "core/json_fields.h"
#include "fleet/assignment/assignment.h"
#include "fleet/benchmark/hardware_class.h"
#include "fleet/facts/match_spec.h"
#include "fleet/kinds.h"
#include "fleet/model.h"
#include "resource/object.h"
#include "resource/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

/// Kinds that describe the wanted machines.
namespace orrery::fleet {

using namespace resource;

namespace {

Task<Unit> prepare_flavor(Context, Draft& draft) {
    std::vector<FieldError> errors;
    if (const auto text = text_at(draft.after.spec, "match"); !text.empty())
        if (const auto spec = MatchSpec::parse(text); !spec.ok()) {
            for (const auto& field : spec.error().fields)
                errors.push_back({"spec.match", fmt::format("{}: {}", field.path, field.message)});
            if (spec.error().fields.empty()) errors.push_back({"spec.match", spec.error().message});
        }
    co_return verdict(*draft.resources->registry().find("Flavor"), draft.after.name, std::move(errors));
}

bool is_hexadecimal(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

/// "sha256:" and 64 digits, "sha512:" and 128.
bool is_checksum(std::string_view text) {
    const auto colon = text.find(':');
    if (colon == std::string_view::npos) return false;
    const auto algorithm = text.substr(0, colon), digits = text.substr(colon + 1);
    return is_hexadecimal(digits) &&
           ((algorithm == "sha256" && digits.size() == 64) || (algorithm == "sha512" && digits.size() == 128));
}

Task<Unit> prepare_image(Context, Draft& draft) {
    std::vector<FieldError> errors;
    const auto url = text_at(draft.after.spec, "url"), glance = text_at(draft.after.spec, "glance");
    const auto checksum = text_at(draft.after.spec, "checksum");
    if (url.empty() == glance.empty()) errors.push_back({"spec", "needs url or glance, and not both"});
    if (!url.empty() && checksum.empty())
        errors.push_back({"spec.checksum", "is required with url: an image is verified before it is used"});
    if (!checksum.empty() && !is_checksum(checksum))
        errors.push_back({"spec.checksum", "must be sha256: with 64 or sha512: with 128 hexadecimal digits in lower case"});
    co_return verdict(*draft.resources->registry().find("Image"), draft.after.name, std::move(errors));
}

/// Each change of the spec is a new version; plans can name the version that was reviewed.
Task<Unit> prepare_role(Context, Draft& draft) {
    std::int64_t version = 1;
    if (draft.before != nullptr) {
        version = integer_at(draft.before->status, "version", 1);
        if (draft.before->spec != draft.after.spec) ++version;
    }
    draft.after.status["version"] = version;
    co_return Unit{};
}

void check_plan_roles(const PlanSpec& plan, std::vector<FieldError>& errors) {
    std::set<std::string> seen;
    std::int64_t total = 0;
    for (std::size_t i = 0; i < plan.roles.size(); ++i) {
        if (!seen.insert(plan.roles[i].role).second)
            errors.push_back({fmt::format("spec.roles[{}].role", i), fmt::format("role {} occurs twice", plan.roles[i].role)});
        total += plan.roles[i].count;
    }
    if (total > max_demand)
        errors.push_back({"spec.roles", fmt::format("ask for {} machines; at most {} can be planned", total, max_demand)});
}

void check_plan_pins(const json::object& spec, const PlanSpec& plan, std::vector<FieldError>& errors) {
    std::set<std::string> pinned;
    std::size_t i = 0;
    for (const auto& one : array_at(spec, "pins")) {
        const auto path = fmt::format("spec.pins[{}]", i++);
        if (!one.is_object()) continue;
        const auto machine = text_at(one.get_object(), "machine"), role = text_at(one.get_object(), "role");
        if (!pinned.insert(machine).second)
            errors.push_back({path + ".machine", fmt::format("Machine {} is pinned twice", machine)});
        if (plan.excluded.contains(machine))
            errors.push_back({path + ".machine", fmt::format("Machine {} is in exclude too", machine)});
        const bool known =
            std::any_of(plan.roles.begin(), plan.roles.end(), [&](const PlannedRole& of) { return of.role == role; });
        if (!known) errors.push_back({path + ".role", fmt::format("role {} is not among the roles of the plan", role)});
    }
    for (const auto& role : plan.roles) {
        const auto pins =
            std::count_if(plan.pins.begin(), plan.pins.end(), [&](const auto& pin) { return pin.second == role.role; });
        if (pins > role.count)
            errors.push_back(
                {"spec.pins", fmt::format("{} machines are pinned to role {}, whose count is {}", pins, role.role, role.count)});
    }
}

Task<Unit> prepare_plan(Context, Draft& draft) {
    std::vector<FieldError> errors;
    const auto plan = PlanSpec::from(draft.after);
    check_plan_roles(plan, errors);
    check_plan_pins(draft.after.spec, plan, errors);
    co_return verdict(*draft.resources->registry().find("Plan"), draft.after.name, std::move(errors));
}

std::vector<std::string> category_names() {
    const auto& all = hardware_categories();
    return {all.begin(), all.end()};
}

} // namespace

Kind flavor_kind() {
    Kind flavor("Flavor", "flavors", "A requirement on machines: a filter, not a size to allocate.");
    flavor
        .spec(
            text("mode",
                 "any: every machine fits. at-least: cpus, memory_mb and local_gb are as large or larger, cpu_arch is equal, and "
                 "all "
                 "capabilities and traits are present. exact: the sizes and cpu_arch are equal, and so is the capability profile.")
                .one_of({"any", "at-least", "exact"})
                .default_value("at-least"))
        .spec(integer("cpus", "Logical CPUs.").between(1, 1'000'000))
        .spec(integer("memory_mb", "Memory in MiB.").between(1, 1'000'000'000))
        .spec(integer("local_gb", "Disk in GiB.").between(1, 1'000'000'000))
        .spec(text("cpu_arch", "The architecture, as in x86_64.").format(Format::one_line).between(1, 32))
        .spec(map("capabilities", "Capabilities that a machine must have.",
                  text("value", "A value.").format(Format::one_line).between(0, 128))
                  .between(0, 64))
        .spec(list("traits", "Traits that a machine must have.", text("trait", "A trait.").format(Format::one_line).between(1, 255))
                  .between(0, 64))
        .spec(text("resource_class", "The resource class that a machine must have.").format(Format::one_line).between(1, 80))
        .spec(text("match", "A match spec over the facts of a machine, in the language of ahc-match.")
                  .between(1, static_cast<std::int64_t>(MatchSpec::max_text)))
        .column("NAME", "name")
        .column("MODE", "spec.mode")
        .column("CPUS", "spec.cpus")
        .column("MEMORY_MB", "spec.memory_mb")
        .column("LOCAL_GB", "spec.local_gb")
        .column("ARCH", "spec.cpu_arch")
        .column("AGE", "age")
        .wide_column("CAPABILITIES", "spec.capabilities")
        .wide_column("TRAITS", "spec.traits")
        .prepare([](Context ctx, Draft& draft) { return prepare_flavor(std::move(ctx), draft); })
        .example(R"(kind: Flavor
name: control
spec:
  mode: at-least
  cpus: 16
  memory_mb: 65536
  local_gb: 200
  cpu_arch: x86_64
  match: |
    [ ('disk', '$d1', 'size', 'ge(400)'),
      ('disk', '$d2', 'size', 'ge(400)') ]
)");
    return flavor;
}

Kind image_kind() {
    Kind image("Image", "images", "An operating system image that machines are provisioned with.");
    image.spec(text("url", "Where it is fetched from.").format(Format::url).between(1, 2048))
        .spec(text("glance", "Its name or id in Glance, in place of url.").format(Format::one_line).between(1, 255))
        .spec(text("format", "The format of its contents.").one_of({"raw", "qcow2"}).default_value("qcow2"))
        .spec(text("checksum", "sha256:DIGITS or sha512:DIGITS; required with url.").format(Format::one_line).between(1, 140))
        .column("NAME", "name")
        .column("FORMAT", "spec.format")
        .column("URL", "spec.url")
        .column("GLANCE", "spec.glance")
        .column("AGE", "age")
        .prepare([](Context ctx, Draft& draft) { return prepare_image(std::move(ctx), draft); })
        .example(R"(kind: Image
name: debian-12
spec:
  url: https://images.example.org/debian-12.qcow2
  format: qcow2
  checksum: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
)");
    return image;
}

Kind role_kind() {
    Kind role("Role", "roles",
              "Machines with the same duty: the image and the flavor they need. Every change of it is a new version.");
    role.spec(text("description", "What it is for.").format(Format::one_line).between(0, 256))
        .spec(text("flavor", "The Flavor that its machines must satisfy.").required().refers_to("Flavor"))
        .spec(text("image", "The Image that its machines are provisioned with.").refers_to("Image"))
        .spec(list("allowed_counts",
                   "The counts that make sense, such as 1 and 3 for a role with a quorum; any where none is given.",
                   integer("count", "A count.").between(0, max_demand))
                  .between(0, 32))
        .status(integer("version", "Counts the changes of the spec, from 1."))
        .column("NAME", "name")
        .column("FLAVOR", "spec.flavor")
        .column("IMAGE", "spec.image")
        .column("VERSION", "status.version")
        .column("AGE", "age")
        .prepare([](Context ctx, Draft& draft) { return prepare_role(std::move(ctx), draft); })
        .example(R"(kind: Role
name: control
spec:
  description: API services and the database
  flavor: control
  image: debian-12
  allowed_counts: [1, 3]
)");
    return role;
}

Kind plan_kind() {
    Kind plan("Plan", "plans", "Roles with counts: which machines are wanted.");
    plan.spec(text("description", "What it is for.").format(Format::one_line).between(0, 256))
        .spec(list("roles", "The roles, each once.",
                   object("entry", "A role of the plan.")
                       .with(text("role", "The Role.").required().refers_to("Role"))
                       .with(integer("count", "How many machines.").between(0, max_demand).default_value(1))
                       .with(integer("priority", "Roles with a higher priority get machines first when there are too few.")
                                 .between(-1000, 1000)
                                 .default_value(0))
                       .with(text("spread", "Over failure domains. soft: as evenly as possible. hard: never more than the fair "
                                            "share in one of them. none: "
                                            "without regard to them.")
                                 .one_of({"none", "soft", "hard"})
                                 .default_value("soft"))
                       .with(integer("version", "The version of the Role that was reviewed: the preview refuses another.")
                                 .between(1, 1'000'000'000)))
                  .required()
                  .between(1, static_cast<std::int64_t>(max_roles)))
        .spec(list("pins", "Machines whose role is fixed.",
                   object("pin", "A machine and its role.")
                       .with(text("machine", "The Machine.").required().refers_to("Machine"))
                       .with(text("role", "The Role, one of the plan's.").required()))
                  .between(0, 5000))
        .spec(list("exclude", "Machines that this plan must not use.", text("machine", "The Machine.").refers_to("Machine"))
                  .between(0, 5000))
        .spec(object("benchmarks", "What the benchmarks of machines mean for the plan.")
                  .with(text("policy", "For machines that are slower than identical ones. warn: use them last. exclude: do not use "
                                       "them. block: the plan is "
                                       "infeasible while there are any.")
                            .one_of({"warn", "exclude", "block"})
                            .default_value("exclude"))
                  .with(list("ignore_categories", "Categories of facts in which identical machines may differ.",
                             text("category", "A category.").one_of(category_names()))
                            .between(0, 16)))
        .column("NAME", "name")
        .column("DESCRIPTION", "spec.description")
        .column("AGE", "age")
        .prepare([](Context ctx, Draft& draft) { return prepare_plan(std::move(ctx), draft); })
        .example(R"(kind: Plan
name: cloud
spec:
  roles:
    - {role: control, count: 3, priority: 10, spread: hard}
    - {role: compute, count: 40}
  pins:
    - {machine: ctl-0, role: control}
  benchmarks: {policy: exclude}
)");
    return plan;
}

std::vector<Kind> all_kinds() {
    std::vector<Kind> out;
    for (const auto make : {machine_kind, facts_kind, benchmark_kind, flavor_kind, image_kind, role_kind, plan_kind})
        out.push_back(make());
    return out;
}

void add_kinds(Registry& registry) {
    for (auto& kind : all_kinds()) registry.add(std::move(kind));
}

} // namespace orrery::fleet
