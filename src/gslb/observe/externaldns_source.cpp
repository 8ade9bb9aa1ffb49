#include "gslb/observe/externaldns_source.h"

#include "core/ids.h"
#include "core/json_fields.h"
#include "core/text.h"
#include "core/truncate.h"
#include "gslb/model/specs.h"
#include "gslb/model/validate.h"
#include "jobs/values.h"
#include "resource/object.h"
#include "resource/resources.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <iterator>
#include <set>

namespace orrery::gslb {

namespace {

Error cluster_error(std::string field, std::string message) {
    Error error{Code::invalid, "the body from ExternalDNS is invalid"};
    error.fields.push_back({std::move(field), std::move(message)});
    return error;
}

std::string cluster_name_of(std::string_view text) {
    if (text.ends_with('.')) text.remove_suffix(1);
    std::string out(text);
    for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return out;
}

bool has_controls(std::string_view text) {
    return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

/// A text that may be absent. `invalid` where it is something else, or too long.
Result<std::string> some_text(const json::object& object, std::string_view key, std::string_view path, std::size_t most) {
    const auto* value = object.if_contains(key);
    if (value == nullptr || value->is_null()) return std::string();
    const auto where = fmt::format("{}.{}", path, key);
    if (!value->is_string()) return cluster_error(where, "must be a text");
    const std::string_view text(value->get_string());
    if (text.size() > most || has_controls(text))
        return cluster_error(where, fmt::format("must be one line of at most {} bytes", most));
    return std::string(text);
}

/// One of the four lists of changes; Go writes null for an empty one.
Result<std::vector<ClusterEndpoint>> endpoints_in(const json::value* list, std::string_view path) {
    std::vector<ClusterEndpoint> out;
    if (list == nullptr || list->is_null()) return out;
    if (!list->is_array()) return cluster_error(std::string(path), "must be a list of endpoints");
    if (list->get_array().size() > max_cluster_endpoints)
        return cluster_error(std::string(path), fmt::format("must be at most {} endpoints", max_cluster_endpoints));
    for (const auto& item : list->get_array()) {
        TRY(auto endpoint, read_cluster_endpoint(item, fmt::format("{}[{}]", path, out.size())));
        out.push_back(std::move(endpoint));
    }
    return out;
}

/// The address as it is usually written; nullopt if it is not of the family.
std::string address_in(const std::string& target, bool v4) {
    Addresses one;
    if (!one.add(target).ok() || one.v4.has_value() != v4) return {};
    return one.texts().front();
}

std::string named_or(std::string readable, std::string_view prefix, std::string_view digested) {
    if (resource::is_valid_name(readable)) return readable;
    return fmt::format("{}-{}", prefix, jobs::sha256_text(digested, 32));
}

Task<Unit> prepare_cluster(Context, resource::Draft& draft) {
    std::vector<FieldError> errors;
    auto& spec = draft.after.spec;
    if (draft.after.name.size() > 63)
        errors.push_back({"name", "must be at most 63 characters: it is a part of its members' names"});
    std::set<std::string> seen;
    std::size_t at = 0;
    for (auto& item : spec["domains"].as_array()) {
        const auto here = fmt::format("spec.domains[{}]", at++);
        const auto domain = cluster_name_of(item.is_string() ? std::string_view(item.get_string()) : std::string_view());
        if (!is_domain(domain, false)) errors.push_back({here, "must be a domain name, such as apps.example"});
        if (!seen.insert(domain).second) errors.push_back({here, "is listed twice"});
        item = domain;
    }
    const auto* token = spec.if_contains("token");
    if (token == nullptr && draft.before == nullptr) {
        // 32 bytes of randomness, shown this one time.
        const auto made = random_secret(32);
        spec["token"] = made;
        draft.once["path"] = fmt::format("/externaldns/{}/{}", draft.after.name, made);
    } else if (token != nullptr && token->is_string()) {
        const std::string_view text(token->get_string());
        if (!std::all_of(text.begin(), text.end(), [](char c) {
                return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
            }))
            errors.push_back({"spec.token", "must be of letters, digits, '-' and '_' only: it is a part of a URL"});
    }
    co_return resource::verdict(*draft.resources->registry().find("Cluster"), draft.after.name, std::move(errors));
}

/// Its members would stay without an owner.
Result<Unit> keep_while_it_has_records(resource::Removal& removal) {
    resource::ListQuery query;
    query.fields = {{"cluster", removal.object.name}};
    query.limit = 1;
    TRY(const auto page, removal.resources->list(*removal.resources->registry().find("ClusterRecord"), query));
    if (page.records.empty()) return Unit{};
    return Error{Code::conflict, fmt::format("Cluster {} still has records and members", removal.object.name),
                 fmt::format("remove them first: POST /v1/clusters/{}/forget", removal.object.name)};
}

} // namespace

resource::Kind cluster_kind() {
    using namespace resource;
    Kind kind("Cluster", "clusters",
              "A Kubernetes cluster whose ExternalDNS reports addresses: they become Members of the pool of the host name.");
    kind.spec(text("description", "What it is.").format(Format::one_line).between(0, 256))
        .spec(text("site", "The site of its members: their failure domain.")
                  .required()
                  .immutable()
                  .format(Format::one_line)
                  .between(1, 255))
        .spec(list("domains", "Host names in these domains are accepted, and no others.",
                   text("domain", "A domain.").format(Format::one_line).between(1, 255))
                  .required()
                  .between(1, 100))
        .spec(list("monitors", "The monitors of pools that are created for its host names. An existing pool keeps its own.",
                   text("monitor", "A Monitor.").refers_to("Monitor"))
                  .between(0, 16))
        .spec(
            text("token",
                 "The secret part of its webhook path: /externaldns/NAME/TOKEN. Default: the server creates one and shows the path "
                 "once.")
                .secret()
                .between(32, 128))
        .status(integer("records", "The number of its records."))
        .status(time("changed_at", "When they last changed."))
        .status(
            integer("changes", "The number of changes it has sent. Each change locks the cluster for the server that applies it."))
        .status(integer("finished", "The last change that was applied completely."))
        .status(any("left_out", "Refused records with the reason: the first twenty."))
        .column("NAME", "name")
        .column("SITE", "spec.site")
        .column("DOMAINS", "spec.domains")
        .column("RECORDS", "status.records")
        .column("CHANGED", "status.changed_at")
        .column("AGE", "age")
        .wide_column("LEFT OUT", "status.left_out")
        .prepare([](Context ctx, Draft& draft) { return prepare_cluster(std::move(ctx), draft); })
        .before_remove([](Removal& removal) { return keep_while_it_has_records(removal); })
        .example("kind: Cluster\nname: k8s-ams\nspec:\n  site: ams\n  domains: [apps.example]\n  monitors: [web]\n");
    return kind;
}

resource::Kind cluster_record_kind() {
    using namespace resource;
    Kind kind("ClusterRecord", "clusterrecords", "A record as the ExternalDNS of a cluster sent it. Only the server writes it.");
    kind.spec(text("cluster", "The Cluster.").required().indexed())
        .spec(text("fqdn", "The name.").required().indexed())
        .spec(text("type", "A, AAAA or TXT.").required())
        .spec(any("endpoint", "The complete endpoint, as sent.").required())
        .column("NAME", "name")
        .column("CLUSTER", "spec.cluster")
        .column("FQDN", "spec.fqdn")
        .column("TYPE", "spec.type")
        .column("TARGETS", "spec.endpoint.targets")
        .column("AGE", "age")
        .verbs({Verb::read})
        .unaudited();
    return kind;
}

std::string ClusterEndpoint::record_name(std::string_view cluster) const {
    return fmt::format("{}.{}", cluster, jobs::sha256_text(fmt::format("{}\n{}\n{}", type, name, set), 32));
}

Result<ClusterEndpoint> read_cluster_endpoint(const json::value& endpoint, std::string_view path) {
    const auto* object = endpoint.if_object();
    if (object == nullptr) return cluster_error(std::string(path), "must be an endpoint");
    ClusterEndpoint out;
    TRY(const auto name, some_text(*object, "dnsName", path, 254));
    out.name = cluster_name_of(name);
    if (out.name.empty()) return cluster_error(fmt::format("{}.dnsName", path), "is required");
    TRY(out.type, some_text(*object, "recordType", path, 16));
    if (out.type.empty()) return cluster_error(fmt::format("{}.recordType", path), "is required");
    TRY(out.set, some_text(*object, "setIdentifier", path, 255));
    out.ttl = count_at(*object, "recordTTL", 0, 86400);
    const auto where = fmt::format("{}.targets", path);
    if (const auto* targets = object->if_contains("targets"); targets != nullptr && !targets->is_null()) {
        if (!targets->is_array()) return cluster_error(where, "must be a list of texts");
        if (targets->get_array().size() > max_cluster_targets)
            return cluster_error(where, fmt::format("must be at most {}", max_cluster_targets));
        for (const auto& target : targets->get_array()) {
            if (!target.is_string()) return cluster_error(where, "must be a list of texts");
            out.targets.emplace_back(std::string_view(target.get_string()));
        }
    }
    if (json::serialize(*object).size() > max_cluster_endpoint_size)
        return cluster_error(std::string(path), fmt::format("must be at most {} bytes", max_cluster_endpoint_size));
    out.as_given = *object;
    return out;
}

Result<std::vector<ClusterEndpoint>> read_cluster_endpoints(std::string_view body) {
    TRY(const auto document, parse_json(body));
    return endpoints_in(&document, "(body)");
}

Result<ClusterChanges> read_cluster_changes(std::string_view body) {
    TRY(const auto document, parse_json(body));
    const auto* object = document.if_object();
    if (object == nullptr) return cluster_error("(body)", "must be an object with create, updateOld, updateNew and delete");
    // Releases differ in how they write the names of the lists.
    const auto list_of = [&](std::string_view name, std::string_view older) {
        const auto* list = object->if_contains(name);
        return endpoints_in(list != nullptr ? list : object->if_contains(older), name);
    };
    ClusterChanges out;
    TRY(auto create, list_of("create", "Create"));
    TRY(auto update_old, list_of("updateOld", "UpdateOld"));
    TRY(auto update_new, list_of("updateNew", "UpdateNew"));
    TRY(out.removed, list_of("delete", "Delete"));
    if (update_old.size() != update_new.size())
        return cluster_error("updateNew",
                             fmt::format("must pair with updateOld: {} against {}", update_new.size(), update_old.size()));
    out.put = std::move(create);
    std::move(update_new.begin(), update_new.end(), std::back_inserter(out.put));
    std::move(update_old.begin(), update_old.end(), std::back_inserter(out.removed));
    return out;
}

std::string cluster_domain(std::string_view name, const std::vector<std::string>& domains) {
    std::string best;
    for (const auto& domain : domains)
        if ((name == domain || name.ends_with("." + domain)) && domain.size() > best.size()) best = domain;
    return best;
}

std::string cluster_refusal(const ClusterEndpoint& endpoint, const std::vector<std::string>& domains) {
    if (endpoint.type == "TXT") return {}; // the registry of ExternalDNS: stored, and not served
    if (!endpoint.is_address())
        return fmt::format("a {} record cannot be a member: only A and AAAA can, and TXT is stored for ExternalDNS itself",
                           endpoint.type);
    if (!is_domain(endpoint.name, true)) return "is not a host name";
    if (cluster_domain(endpoint.name, domains).empty()) return "is outside the domains of the cluster";
    if (endpoint.targets.empty()) return "has no target";
    for (const auto& target : endpoint.targets)
        if (address_in(target, endpoint.type == "A").empty())
            return fmt::format("\"{}\" is not an IPv{} address", truncate(target, 64), endpoint.type == "A" ? 4 : 6);
    return {};
}

std::string cluster_pool_name(std::string_view host) { return named_or(std::string(host), "host", host); }

std::map<std::string, std::vector<std::string>> cluster_members(std::string_view cluster, std::string_view host,
                                                                const std::vector<ClusterEndpoint>& endpoints) {
    std::set<std::string> v4, v6;
    for (const auto& endpoint : endpoints)
        if (endpoint.is_address() && endpoint.name == host)
            for (const auto& target : endpoint.targets)
                if (auto address = address_in(target, endpoint.type == "A"); !address.empty())
                    (endpoint.type == "A" ? v4 : v6).insert(std::move(address));
    std::map<std::string, std::vector<std::string>> out;
    const auto add = [&](std::vector<std::string> addresses) {
        auto label = addresses.front();
        std::replace_if(label.begin(), label.end(), [](char c) { return c == '.' || c == ':'; }, '-');
        auto name = named_or(fmt::format("{}-{}.{}", cluster, label, host), "member",
                             fmt::format("{}\n{}\n{}", cluster, addresses.front(), host));
        out.emplace(std::move(name), std::move(addresses));
    };
    if (v4.size() == 1 && v6.size() == 1) {
        add({*v4.begin(), *v6.begin()});
        return out;
    }
    for (const auto* family : {&v4, &v6})
        for (const auto& address : *family) add({address});
    return out;
}

bool same_secret(std::string_view given, std::string_view kept) {
    return !kept.empty() && given.size() == kept.size() && CRYPTO_memcmp(given.data(), kept.data(), kept.size()) == 0;
}

} // namespace orrery::gslb
