#include "catalog/kinds.h"

#include "catalog/check.h"
#include "catalog/json_read.h"
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
    return Error{Code::invalid, fmt::format("\"{}\" is no number of instances", given),
                 "write a number, hosts(ROLE), or a sum of these: hosts(oc)+hosts(ocdb)"};
}

Task<Unit> prepare_service(Context, Draft& draft) {
    std::vector<FieldError> errors;
    if (const auto* wanted = draft.after.spec.if_contains("wanted"))
        if (const auto parsed = Wanted::parse(*wanted); !parsed.ok())
            errors.push_back({"spec.wanted", parsed.error().message + "; " + parsed.error().remedy});
    check_checks(draft.after.spec, "spec", errors);
    co_return verdict(*draft.resources->registry().find("Service"), draft.after.name, std::move(errors));
}

std::string id_of(const json::object& spec) {
    auto id = text_at(spec, "id");
    return id.empty() ? text_at(spec, "service") : id;
}

Task<Unit> prepare_instance(Context, Draft& draft) {
    std::vector<FieldError> errors;
    check_checks(draft.after.spec, "spec", errors);
    // Two of a node under one id would be one to everybody who looks.
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

Task<Unit> prepare_catalog_node(Context, Draft& draft) {
    std::vector<FieldError> errors;
    check_checks(draft.after.spec, "spec", errors);
    if (const auto* checks = draft.after.spec.if_contains("checks"); checks != nullptr && checks->is_array()) {
        std::size_t at = 0;
        for (const auto& item : checks->get_array()) {
            const auto here = fmt::format("spec.checks[{}]", at++);
            const auto check = Check::from(item.as_object());
            if (check.id.empty()) errors.push_back({here + ".id", "a node's check needs one"});
            if (check.kind == Check::Kind::tcp && check.port == 0)
                errors.push_back({here + ".port", "a node has no port of its own: say which"});
            if (check.kind == Check::Kind::http && check.port == 0 && check.url.empty())
                errors.push_back({here + ".url", "a node has no port of its own: give the URL, or a port"});
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
              "A service by name: how many instances there should be, how to tell that one works, who needs it.");
    kind.spec(text("description", "What it is.").format(Format::one_line).between(0, 256))
        .spec(integer("port", "Where instances listen that do not say.").between(1, 65535))
        .spec(list("tags", "Tags that mean something here, such as real (a backend) and lb (through the load balancer).",
                   text("tag", "A tag.").format(Format::one_line).between(1, 128))
                  .between(0, 64))
        .spec(any("wanted", "How many instances there should be: a number, hosts(ROLE) for as many as there are Nodes labelled "
                            "role=ROLE, or a sum of these.")
                  .example("hosts(oc)+hosts(ocdb)"))
        .spec(list("needed_by", "Who cannot do without it, for people and for plans.",
                   text("service", "A service's name.").format(Format::one_line).between(1, 128))
                  .between(0, 256))
        .spec(checks_field("How to tell that an instance works; each instance may add its own."))
        .status(integer("registered", "Instances that are known."))
        .status(integer("usable", "Those of which nothing is critical."))
        .status(integer("passing", "Those of which everything passes."))
        .status(integer("wanted", "How many are wanted, counted out."))
        .status(
            text("state",
                 "complete: as many pass as are wanted. short: fewer. empty: none passes. idle: none is wanted and none is there."))
        .status(text("why", "The state in words."))
        .column("NAME", "name")
        .column("WANTED", "status.wanted")
        .column("REGISTERED", "status.registered")
        .column("USABLE", "status.usable")
        .column("PASSING", "status.passing")
        .column("STATE", "status.state")
        .column("AGE", "age")
        .wide_column("PORT", "spec.port")
        .wide_column("WHY", "status.why")
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
    Kind kind("Instance", "instances", "One instance of a service on a node: where it is, and how far it has come.");
    kind.spec(text("service", "The service's name.").required().format(Format::one_line).between(1, 128).indexed())
        .spec(text("node", "The node's name: a Node, or one that registered itself.")
                  .required()
                  .format(Format::one_line)
                  .between(1, 256)
                  .indexed())
        .spec(text("id", "Tells it from others of the same node. Left out: the service's name.")
                  .format(Format::one_line)
                  .between(1, 256))
        .spec(text("address", "Where it listens. Left out: the node's address.").format(Format::host))
        .spec(integer("port", "Where it listens. Left out: the service's.").between(1, 65535))
        .spec(list("tags", "Such as real or lb.", text("tag", "A tag.").format(Format::one_line).between(1, 256)).between(0, 64))
        .spec(map("meta", "Further facts, for whoever reads them.", text("value", "A value.").between(0, 512)).between(0, 64))
        .spec(object("weights", "Its share of the answers, by what its checks say.")
                  .with(integer("passing", "While all pass.").between(1, 65535))
                  .with(integer("warning", "While one warns.").between(0, 65535)))
        .spec(any("tagged_addresses", "Further addresses, as {lan: {address, port}}."))
        .spec(boolean("tag_override", "Tags may be changed by others than the one that registered it."))
        .spec(boolean("maintenance", "People work on it: it counts as critical."))
        .spec(text("maintenance_reason", "Why, for colleagues.").format(Format::one_line).between(0, 256))
        .spec(checks_field("How to tell that it works, besides what its Service says."))
        .status(text("state", "registered, usable or passing."))
        .status(text("why", "The state in words."))
        .status(time("since", "When it came to this state."))
        .status(any("checks", "What each check last said, by its id."))
        .column("NAME", "name")
        .column("SERVICE", "spec.service")
        .column("NODE", "spec.node")
        .column("ADDRESS", "spec.address")
        .column("PORT", "spec.port")
        .column("TAGS", "spec.tags")
        .column("STATE", "status.state")
        .column("WHY", "status.why")
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
    Kind kind(
        "CatalogNode", "catalognodes",
        "A node as the catalog knows it beyond its Node: one that registered itself from outside, or checks of a whole machine.");
    kind.spec(text("node", "The node's name.").required().format(Format::one_line).between(1, 256).indexed())
        .spec(text("id", "Its id, where it has one.").format(Format::one_line).between(1, 64))
        .spec(text("address", "Where it is. Left out: the address of the Node of that name.").format(Format::host))
        .spec(map("meta", "Further facts.", text("value", "A value.").between(0, 512)).between(0, 64))
        .spec(map("tagged_addresses", "Further addresses.", text("address", "An address.").between(0, 256)).between(0, 16))
        .spec(boolean("maintenance", "People work on it: every instance on it counts as critical."))
        .spec(text("maintenance_reason", "Why, for colleagues.").format(Format::one_line).between(0, 256))
        .spec(checks_field("Checks of the whole machine: while one is critical, none of its instances is usable."))
        .status(any("checks", "What each check last said, by its id."))
        .column("NAME", "name")
        .column("NODE", "spec.node")
        .column("ADDRESS", "spec.address")
        .column("AGE", "age")
        .prepare([](Context ctx, Draft& draft) { return prepare_catalog_node(std::move(ctx), draft); })
        .example("kind: CatalogNode\nname: printer\nspec:\n  node: printer\n  address: 192.0.2.40\n");
    return kind;
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
    constexpr std::size_t longest = 200;
    if (out.size() > longest) exact = false;
    if (exact && is_valid_name(out)) return out;
    // What was lost on the way is in the sum.
    std::array<unsigned char, 16> sum{};
    crypto_generichash(sum.data(), sum.size(), reinterpret_cast<const unsigned char*>(given.data()), given.size(), nullptr, 0);
    out = out.substr(0, longest) + "-";
    for (std::size_t at = 0; at < 6; ++at) out += fmt::format("{:02x}", sum.at(at));
    if (!is_valid_name(out)) out.insert(0, "x");
    return out;
}

} // namespace orrery::catalog
