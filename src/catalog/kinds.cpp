#include "catalog/kinds.h"

#include "catalog/check.h"
#include "catalog/membership.h"
#include "core/ascii.h"
#include "core/digest.h"
#include "core/json_fields.h"
#include "core/truncate.h"
#include "resource/object.h"
#include "resource/resources.h"

#include <fmt/format.h>
#include <sodium.h>

#include <array>
#include <charconv>

namespace orrery::catalog {

namespace {

using namespace resource;

Error bad_wanted(std::string_view given) {
    return Error{Code::invalid, fmt::format("\"{}\" is not a number of instances", given),
                 "write a number, hosts(ROLE), or a sum of these: hosts(oc)+hosts(ocdb)"};
}

Task<Unit> prepare_service(Context, Draft& draft) {
    std::vector<FieldError> errors;
    if (const auto* wanted = draft.after.spec.if_contains("wanted"))
        if (const auto parsed = Wanted::parse(*wanted); !parsed.ok())
            errors.push_back({"spec.wanted", parsed.error().message + "; " + parsed.error().remedy});
    check_checks(draft.after.spec, "spec", false, errors);
    co_return verdict(*draft.resources->registry().find("Service"), draft.after.name, std::move(errors));
}

std::string id_of(const json::object& spec) {
    auto id = text_at(spec, "id");
    return id.empty() ? text_at(spec, "service") : id;
}

/// Consul accepts any text as the name of a node, and so does the Consul facade (such an instance is in the catalog but is not a
/// member). Other fields of an object that was stored with such a name can still be changed.
void check_node_name(const Draft& draft, std::vector<FieldError>& errors) {
    const auto node = text_at(draft.after.spec, "node");
    if (draft.self_registration || is_node_name(node)) return;
    if (draft.before != nullptr && text_at(draft.before->spec, "node") == node) return;
    errors.push_back({"spec.node", fmt::format("must be a host name or an IP address, got \"{}\"", truncate(node, 80))});
}

Task<Unit> prepare_instance(Context, Draft& draft) {
    std::vector<FieldError> errors;
    check_checks(draft.after.spec, "spec", true, errors);
    check_node_name(draft, errors);
    // Consul clients define a service by registering an instance; other users must create the Service first.
    const auto service = ascii_lower(text_at(draft.after.spec, "service"));
    const bool same_service = draft.before != nullptr && ascii_lower(text_at(draft.before->spec, "service")) == service;
    if (!draft.self_registration && !same_service) {
        if (draft.resources->exists(*draft.resources->registry().find("Service"), service))
            draft.uses.push_back("services/" + service);
        else
            errors.push_back({"spec.service", fmt::format("refers to Service \"{}\", which does not exist", service)});
    }
    // The id identifies an instance within its node.
    const auto& kind = *draft.resources->registry().find("Instance");
    ListQuery query;
    query.fields = {{"node", text_at(draft.after.spec, "node")}};
    query.limit = 5000;
    if (const auto page = draft.resources->list(kind, query); page.ok())
        for (const auto& record : page->records) {
            const auto other = from_stored(*record);
            if (other.ok() && other->name != draft.after.name && id_of(other->spec) == id_of(draft.after.spec))
                errors.push_back({"spec.id", fmt::format("Instance {} has the id \"{}\" on this node already", other->name,
                                                         id_of(other->spec))});
        }
    co_return verdict(*draft.resources->registry().find("Instance"), draft.after.name, std::move(errors));
}

/// Lists the instances that name a resource in this spec field.
Registry::Users instances_by(std::string field) {
    return [field](const Resources& resources, std::string_view name, std::size_t limit) {
        std::vector<std::string> out;
        ListQuery query;
        query.fields = {{field, std::string(name)}};
        query.limit = limit;
        if (const auto page = resources.list(*resources.registry().find("Instance"), query); page.ok())
            for (const auto& record : page->records)
                out.push_back(fmt::format("Instance/{} (spec.{})", record->key.substr(record->key.find('/') + 1), field));
        return out;
    };
}

Task<Unit> prepare_catalog_node(Context, Draft& draft) {
    std::vector<FieldError> errors;
    check_checks(draft.after.spec, "spec", true, errors);
    check_node_name(draft, errors);
    if (const auto* checks = draft.after.spec.if_contains("checks"); checks != nullptr && checks->is_array()) {
        std::size_t at = 0;
        for (const auto& item : checks->get_array()) {
            const auto here = fmt::format("spec.checks[{}]", at++);
            const auto check = Check::from(item.as_object());
            if (check.id.empty()) errors.push_back({here + ".id", "is required for checks of nodes"});
            if (check.kind == Check::Kind::tcp && check.port == 0)
                errors.push_back({here + ".port", "is required, because a node has no default port"});
            if (check.kind == Check::Kind::http && check.port == 0 && check.url.empty())
                errors.push_back({here + ".url", "is required (or port), because a node has no default port"});
        }
    }
    co_return verdict(*draft.resources->registry().find("CatalogNode"), draft.after.name, std::move(errors));
}

} // namespace

Result<Wanted> Wanted::parse(const json::value& value) {
    Wanted out;
    if (value.is_int64()) {
        out.number = value.get_int64();
        if (out.number < 0 || out.number > 1'000'000) return bad_wanted(std::to_string(out.number));
        return out;
    }
    if (!value.is_string()) return bad_wanted("this");
    std::string text;
    for (const char c : std::string_view(value.get_string()))
        if (c != ' ') text += c;
    std::string_view rest = text;
    if (rest.size() > 1024) return bad_wanted("such a long text");
    while (true) {
        const auto plus = rest.find('+');
        const auto term = rest.substr(0, plus);
        if (term.starts_with("hosts(") && term.ends_with(")")) {
            const auto role = term.substr(6, term.size() - 7);
            if (role.empty() || role.find_first_of("()+,") != std::string_view::npos) return bad_wanted(text);
            out.roles.emplace_back(role);
        } else {
            std::int64_t number = 0;
            const auto [end, error] = std::from_chars(term.data(), term.data() + term.size(), number);
            if (error != std::errc{} || end != term.data() + term.size() || number < 0 || number > 1'000'000)
                return bad_wanted(text);
            out.number += number;
        }
        if (plus == std::string_view::npos) return out;
        rest.remove_prefix(plus + 1);
    }
}

std::string Wanted::text() const {
    std::string out;
    for (const auto& role : roles) out += fmt::format("{}hosts({})", out.empty() ? "" : "+", role);
    if (number != 0 || out.empty()) out += fmt::format("{}{}", out.empty() ? "" : "+", number);
    return out;
}

Kind service_kind() {
    Kind kind("Service", "services",
              "A service: the wanted number of instances, their checks, and the services that depend on it.");
    kind.spec(text("description", "Description.").format(Format::one_line).between(0, 256))
        .spec(integer("port", "Default port of the instances.").between(1, 65535))
        .spec(list("tags", "Tags with a meaning for this service, such as real (a backend) and lb (behind the load balancer).",
                   text("tag", "A tag.").format(Format::one_line).between(1, 128))
                  .between(0, 64))
        .spec(any("wanted",
                  "Wanted number of instances: a number, hosts(ROLE) for the number of Nodes with the label role=ROLE, or a "
                  "sum of these.")
                  .example("hosts(oc)+hosts(ocdb)"))
        .spec(list("needed_by", "Services that depend on it, for people and for plans.",
                   text("service", "Name of a service.").format(Format::one_line).between(1, 128))
                  .between(0, 256))
        .spec(checks_field("Checks of each instance; instances may add their own."))
        .status(integer("registered", "Known instances."))
        .status(integer("usable", "Instances without a critical check."))
        .status(integer("passing", "Instances whose checks all pass."))
        .status(integer("wanted", "Evaluated wanted number."))
        .status(text("state", "complete: the wanted number passes. short: fewer pass. empty: no instance passes. idle: no instance "
                              "is wanted or registered."))
        .status(text("message", "Explanation of the state.").renamed_from("why"))
        .column("NAME", "name")
        .column("WANTED", "status.wanted")
        .column("REGISTERED", "status.registered")
        .column("USABLE", "status.usable")
        .column("PASSING", "status.passing")
        .column("STATE", "status.state")
        .column("AGE", "age")
        .wide_column("PORT", "spec.port")
        .wide_column("MESSAGE", "status.message")
        .also_called({"svc"})
        .prepare([](Context ctx, Draft& draft) { return prepare_service(std::move(ctx), draft); })
        .example(R"(kind: Service
name: keystone
spec:
  description: identity
  port: 5000
  tags: [real, lb]
  wanted: hosts(oc)+hosts(ocdb)
  needed_by: [glance, nova]
  checks:
    - kind: http
      path: /v3
      interval: 5s
)");
    return kind;
}

Kind instance_kind() {
    Kind kind("Instance", "instances", "One instance of a service on a node: its address and its state.");
    kind.spec(text("service", "Name of the service.").required().format(Format::one_line).between(1, 128).indexed())
        .spec(text("node", "Name of the node: a Node, or a node that registered itself.")
                  .required()
                  .format(Format::one_line)
                  .between(1, 256)
                  .indexed())
        .spec(text("id", "Unique id within the node. Default: the name of the service.").format(Format::one_line).between(1, 256))
        .spec(text("address", "Address. Default: the address of the node.").format(Format::host))
        .spec(integer("port", "Port. Default: the port of the service.").between(1, 65535))
        .spec(list("tags", "Tags, such as real or lb.", text("tag", "A tag.").format(Format::one_line).between(1, 256))
                  .between(0, 64))
        .spec(map("meta", "Metadata.", text("value", "A value.").between(0, 512)).between(0, 64))
        .spec(object("weights", "Weights in DNS answers, by check status.")
                  .with(integer("passing", "While all checks pass.").between(1, 65535))
                  .with(integer("warning", "While a check warns.").between(0, 65535)))
        .spec(any("tagged_addresses", "Further addresses, as {lan: {address, port}}."))
        .spec(boolean("tag_override", "Tags may be changed by other clients than the one that registered it."))
        .spec(boolean("planned", "Not started yet: without checks the state is registered, not passing."))
        .spec(text("provided_by", "The job that registered it.").format(Format::one_line).between(1, 256).indexed())
        .spec(boolean("maintenance", "Maintenance mode: it counts as critical."))
        .spec(text("maintenance_reason", "Reason, for other operators.").format(Format::one_line).between(0, 256))
        .spec(checks_field("Checks in addition to those of its Service."))
        .status(text("state", "registered, usable or passing."))
        .status(text("message", "Explanation of the state.").renamed_from("why"))
        .status(text("address", "Address that clients get: its own, or that of the node."))
        .status(integer("port", "Port that clients get: its own, or that of the service."))
        .status(time("since", "Time of the change to this state."))
        .status(any("checks", "Last result of each check, by id."))
        .column("NAME", "name")
        .column("SERVICE", "spec.service")
        .column("NODE", "spec.node")
        .column("ADDRESS", "status.address")
        .column("PORT", "status.port")
        .column("TAGS", "spec.tags")
        .column("STATE", "status.state")
        .column("MESSAGE", "status.message")
        .column("AGE", "age")
        .also_called({"inst"})
        .prepare([](Context ctx, Draft& draft) { return prepare_instance(std::move(ctx), draft); })
        .example(R"(kind: Instance
name: keystone-oc1
spec:
  service: keystone
  node: oc1
  port: 5000
  tags: [real]
)");
    return kind;
}

Kind catalog_node_kind() {
    Kind kind("CatalogNode", "catalognodes",
              "Catalog data of a node in addition to its Node: a node that registered itself, or checks of a whole host.");
    kind.spec(text("node", "Name of the node.").required().format(Format::one_line).between(1, 256).indexed())
        .spec(text("id", "Id of the node.").format(Format::one_line).between(1, 64))
        .spec(text("address", "Address. Default: the address of the Node of that name.").format(Format::host))
        .spec(map("meta", "Metadata.", text("value", "A value.").between(0, 512)).between(0, 64))
        .spec(map("tagged_addresses", "Further addresses.", text("address", "An address.").between(0, 256)).between(0, 16))
        .spec(boolean("maintenance", "Maintenance mode: all instances on the node count as critical."))
        .spec(text("maintenance_reason", "Reason, for other operators.").format(Format::one_line).between(0, 256))
        .spec(checks_field("Checks of the host: while one is critical, no instance on it is usable."))
        .status(any("checks", "Last result of each check, by id."))
        .column("NAME", "name")
        .column("NODE", "spec.node")
        .column("ADDRESS", "spec.address")
        .column("AGE", "age")
        .prepare([](Context ctx, Draft& draft) { return prepare_catalog_node(std::move(ctx), draft); })
        .example("kind: CatalogNode\nname: printer\nspec:\n  node: printer\n  address: 192.0.2.40\n");
    return kind;
}

void add_kinds(Registry& registry) {
    registry.add(service_kind());
    registry.add(instance_kind());
    registry.add(catalog_node_kind());
    registry.add_users("Service", instances_by("service"));
    registry.add_users("Node", instances_by("node"));
}

std::string resource_name(std::string_view node, std::string_view id) {
    std::string given(node);
    if (!id.empty()) given.append("/").append(id);
    std::string out;
    bool exact = true;
    for (const char c : given) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
        if (c == '/' && out.find('.') == std::string::npos && !id.empty())
            out += '.';
        else if (plain)
            out += c;
        else {
            out += c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : '-';
            exact = false;
        }
    }
    constexpr std::size_t max_prefix = 200;
    if (out.size() > max_prefix) exact = false;
    if (exact && is_valid_name(out)) return out;
    // The name is not exact: a digest of the original makes it unique.
    std::array<unsigned char, 16> sum{};
    crypto_generichash(sum.data(), sum.size(), reinterpret_cast<const unsigned char*>(given.data()), given.size(), nullptr, 0);
    out = out.substr(0, max_prefix) + "-" + to_hex({reinterpret_cast<const char*>(sum.data()), 6});
    if (!is_valid_name(out)) out.insert(0, "x");
    return out;
}

} // namespace orrery::catalog
