#include "core/json_fields.h"
#include "importers/resource_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

namespace orrery::importers {

namespace {

const json::array& list_in(const json::value& value, std::string_view key) {
    static const json::object empty;
    const auto* object = value.if_object();
    return array_at(object == nullptr ? empty : *object, key);
}

/// A ResourceRecordSet.
struct RecordSet53 {
    std::string name, type, id, health_check;
    std::int64_t weight = -1, ttl = 300;
    std::string failover;
    std::string continent, country, subdivision; ///< of a GeoLocation; country "*" matches all other clients
    bool by_latency = false, by_proximity = false, multivalue = false, alias = false;
    bool by_geo() const { return !continent.empty() || !country.empty(); }
    std::vector<std::string> values;
};

RecordSet53 read_record_set(const json::object& from) {
    RecordSet53 out{.name = plain_name(text_at(from, "Name")),
                    .type = text_at(from, "Type"),
                    .id = text_at(from, "SetIdentifier"),
                    .health_check = text_at(from, "HealthCheckId"),
                    .weight = integer_at(from, "Weight", -1),
                    .ttl = integer_at(from, "TTL", 300),
                    .failover = text_at(from, "Failover")};
    out.by_latency = from.contains("Region");
    out.by_proximity = from.contains("GeoProximityLocation") || from.contains("CidrRoutingConfig");
    if (const auto* location = from.if_contains("GeoLocation"); location != nullptr && location->is_object()) {
        out.continent = text_at(location->get_object(), "ContinentCode");
        out.country = text_at(location->get_object(), "CountryCode");
        out.subdivision = text_at(location->get_object(), "SubdivisionCode");
    }
    out.multivalue = from.contains("MultiValueAnswer");
    out.alias = from.contains("AliasTarget");
    for (const auto& record : array_at(from, "ResourceRecords"))
        if (const auto* one = record.if_object()) out.values.push_back(text_at(*one, "Value"));
    if (out.name.starts_with("\\052")) out.name.replace(0, 4, "*"); // Route 53 escapes the asterisk
    return out;
}

/// The record sets of one name, by their SetIdentifier.
struct RecordSetsOfName {
    std::vector<std::string> ids; ///< in the order of the file
    std::map<std::string, PoolDraft> pools;
    std::map<std::string, RecordSet53> first; ///< the first record set with this id
    std::int64_t ttl = 300;
};

class Route53Import {
public:
    Route53Import(const json::value& record_sets, const json::value& health_checks)
        : record_sets_(record_sets), health_checks_(health_checks) {}

    Result<ImportResult> run() {
        if (list_in(record_sets_, "ResourceRecordSets").empty())
            return Error{Code::invalid, "the first file has no ResourceRecordSets",
                         "give the output of: aws route53 list-resource-record-sets --hosted-zone-id ID"};
        for (const auto& item : list_in(record_sets_, "ResourceRecordSets"))
            if (const auto* object = item.if_object()) add_record_set(read_record_set(*object));
        for (const auto& [fqdn, sets] : by_name_) add_load_balancer(fqdn, sets);
        add_zone();
        return out_.finish();
    }

private:
    void add_record_set(RecordSet53 set) {
        if (set.alias)
            out_.warn(fmt::format("{} {} {}: an alias of another AWS resource has no addresses; write the equivalent resources",
                                  set.name, set.type, set.id));
        else if (set.id.empty())
            add_static_records(set);
        else if (set.type != "A" && set.type != "AAAA")
            out_.warn(fmt::format("{} {} {}: only A and AAAA can be balanced; add a static record to the Zone", set.name, set.type,
                                  set.id));
        else
            by_name_[set.name].push_back(std::move(set));
    }

    void add_static_records(const RecordSet53& set) {
        if (set.type == "SOA" || (set.type == "NS" && (zone_.empty() || set.name == zone_))) {
            zone_ = set.name;
            return;
        }
        for (const auto& value : set.values) records_ += fmt::format("{}. {} {} {}\n", set.name, set.ttl, set.type, value);
    }

    RecordSetsOfName group(const std::string& fqdn, const std::vector<RecordSet53>& sets) {
        RecordSetsOfName out;
        for (const auto& set : sets) {
            if (out.first.emplace(set.id, set).second) out.ids.push_back(set.id);
            auto& pool = out.pools[set.id];
            pool.name = fmt::format("{}-{}", fqdn, set.id);
            for (const auto& value : set.values) pool.add_address(value);
            if (const auto monitor = monitor_of(set.health_check); monitor && pool.monitors.empty())
                pool.monitors.push_back(*monitor);
            out.ttl = std::min(out.ttl, set.ttl);
        }
        return out;
    }

    void add_load_balancer(const std::string& fqdn, const std::vector<RecordSet53>& sets) {
        auto grouped = group(fqdn, sets);
        const auto& first = grouped.first.at(grouped.ids.front());
        json::object spec{{"fqdn", fqdn}, {"ttl", json::object{{"max", ttl_text(grouped.ttl)}}}};
        if (!zone_.empty() && (fqdn == zone_ || fqdn.ends_with("." + zone_))) spec["zone"] = zone_;
        if (first.multivalue) return add_multivalue(fqdn, grouped, std::move(spec));
        if (first.weight >= 0) {
            spec["steering"] = "spread";
            spec["answers"] = "weighted";
            for (const auto& [id, pool] : grouped.pools)
                if (pool.member_count() > 1)
                    out_.warn(fmt::format(
                        "{} {}: Route 53 answers with all addresses of the set; the load balancer with one of them", fqdn, id));
        } else if (first.by_latency || first.by_proximity) {
            out_.warn(fmt::format("{}: {} routing is not imported; the pools are tried in order. Use steering: topology with the "
                                  "networks of your clients, or steering: latency",
                                  fqdn, first.by_latency ? "latency" : "geoproximity"));
        }
        const bool by_geo = first.by_geo();
        if (by_geo) { // clients that no rule matches get the first pool
            const auto others = std::find_if(grouped.ids.begin(), grouped.ids.end(),
                                             [&](const auto& id) { return grouped.first.at(id).country == "*"; });
            if (others != grouped.ids.end()) std::rotate(grouped.ids.begin(), others, others + 1);
        }
        std::map<std::string, std::string> pool_of;
        spec["pools"] = add_pools(grouped, pool_of);
        if (by_geo && grouped.first.at(grouped.ids.front()).by_geo()) add_geo_rules(fqdn, grouped, pool_of, spec);
        out_.add("LoadBalancer", fqdn, std::move(spec));
    }

    /// Adds the pools and returns `spec.pools`: active pools first, SECONDARY sets as passive ones.
    json::array add_pools(const RecordSetsOfName& grouped, std::map<std::string, std::string>& pool_of) {
        json::array active, passive;
        for (const auto& id : grouped.ids) {
            const auto& set = grouped.first.at(id);
            pool_of[id] = grouped.pools.at(id).add_to(out_);
            json::object use{{"pool", pool_of[id]}};
            if (set.failover == "SECONDARY") use["tier"] = "passive";
            if (set.weight >= 0) use["weight"] = set.weight;
            (set.failover == "SECONDARY" ? passive : active).push_back(std::move(use));
        }
        active.insert(active.end(), passive.begin(), passive.end());
        return active;
    }

    /// Adds rules for subdivisions, then countries, then continents: the narrowest location of a client decides.
    void add_geo_rules(const std::string& fqdn, const RecordSetsOfName& grouped, const std::map<std::string, std::string>& pool_of,
                       json::object& spec) {
        std::array<json::array, 3> rules; ///< subdivisions, countries, continents
        bool has_others = false;
        for (const auto& id : grouped.ids) {
            const auto& set = grouped.first.at(id);
            has_others = has_others || set.country == "*";
            if (!set.by_geo() || set.country == "*") continue;
            json::object rule{{"pools", json::array{pool_of.at(id)}}};
            if (!set.continent.empty()) rule["continent"] = set.continent;
            if (!set.country.empty()) rule["country"] = set.country;
            if (!set.subdivision.empty()) rule["subdivision"] = set.subdivision;
            rules.at(set.subdivision.empty() ? set.country.empty() ? 2 : 1 : 0).push_back(std::move(rule));
        }
        if (!has_others)
            out_.warn(
                fmt::format("{}: Route 53 has no answer for clients in other locations; the load balancer answers them with the "
                            "pools in order",
                            fqdn));
        json::array list;
        for (auto& level : rules)
            for (auto& rule : level) list.push_back(std::move(rule));
        if (list.empty()) return;
        spec["steering"] = "geo";
        spec["geo"] = json::object{{"rules", std::move(list)}};
        if (!std::exchange(warned_geo_, true))
            out_.warn("geo steering needs a geo database: set dns.geo_databases in the configuration of the server");
    }

    /// Each record set of a multivalue answer is a member with a monitor of its own.
    void add_multivalue(const std::string& fqdn, const RecordSetsOfName& grouped, json::object spec) {
        const auto pool = out_.add("Pool", fqdn, {{"min_healthy", 1}, {"guard", no_guard()}});
        for (const auto& id : grouped.ids) {
            const auto& draft = grouped.pools.at(id);
            for (std::size_t at = 0; at < draft.member_count(); ++at) {
                auto member = draft.member(pool, at);
                if (!draft.monitors.empty()) member["monitors"] = json::array(draft.monitors.begin(), draft.monitors.end());
                out_.add("Member", fmt::format("{}-{}", fqdn, id), std::move(member));
            }
        }
        spec["answers"] = "subset";
        spec["max_answers"] = 8;
        spec["pools"] = json::array{json::object{{"pool", pool}}};
        out_.add("LoadBalancer", fqdn, std::move(spec));
    }

    std::optional<std::string> monitor_of(const std::string& id) {
        if (id.empty()) return std::nullopt;
        for (const auto& item : list_in(health_checks_, "HealthChecks")) {
            const auto* check = item.if_object();
            if (check == nullptr || text_at(*check, "Id") != id) continue;
            const auto* value = check->if_contains("HealthCheckConfig");
            const auto* config = value == nullptr ? nullptr : value->if_object();
            if (config == nullptr) break;
            return monitor_from(id, *config);
        }
        if (warned_checks_.insert(id).second)
            out_.warn(fmt::format("health check {}: it is in no file; add the output of aws route53 list-health-checks", id));
        return std::nullopt;
    }

    std::optional<std::string> monitor_from(const std::string& id, const json::object& config) {
        const auto type = text_at(config, "Type");
        const bool web = type.starts_with("HTTP");
        if (!web && type != "TCP") {
            if (warned_checks_.insert(id).second)
                out_.warn(fmt::format("health check {}: {} has no equivalent; its members have no monitor", id, type));
            return std::nullopt;
        }
        json::object spec{{"kind", type.starts_with("HTTPS") ? "https" : web ? "http" : "tcp"}};
        if (const auto port = integer_at(config, "Port", 0); port > 0) spec["port"] = port;
        if (web) {
            if (const auto path = text_at(config, "ResourcePath"); !path.empty())
                spec["path"] = path.starts_with('/') ? path : "/" + path;
            if (const auto host = text_at(config, "FullyQualifiedDomainName"); !host.empty()) spec["host"] = plain_name(host);
            if (const auto search = text_at(config, "SearchString"); !search.empty()) spec["contains"] = search;
            spec["expect"] = "200-399";                            // as Route 53 does
            if (type.starts_with("HTTPS")) spec["verify"] = false; // Route 53 does not verify certificates
        }
        spec["interval"] = fmt::format("{}s", integer_at(config, "RequestInterval", 30));
        spec["timeout"] = web ? "6s" : "10s";
        spec["fall"] = spec["rise"] = integer_at(config, "FailureThreshold", 3);
        if (const auto* inverted = config.if_contains("Inverted");
            inverted != nullptr && inverted->is_bool() && inverted->get_bool() && warned_checks_.insert(id + "!").second)
            out_.warn(fmt::format("health check {}: it is inverted, which has no equivalent", id));
        if (const auto* off = config.if_contains("Disabled"); off != nullptr && off->is_bool() && off->get_bool())
            return std::nullopt;
        return out_.add("Monitor", fmt::format("r53-{}", id.substr(0, 8)), std::move(spec));
    }

    void add_zone() {
        if (zone_.empty()) return;
        json::object spec{{"origin", zone_}, {"nameservers", json::array{fmt::format("ns1.{}", zone_)}}};
        if (!records_.empty()) spec["records"] = records_;
        out_.add("Zone", zone_, std::move(spec));
        out_.warn(fmt::format("zone {}: its name servers were those of Route 53; set spec.nameservers to yours", zone_));
    }

    const json::value& record_sets_;
    const json::value& health_checks_;
    std::map<std::string, std::vector<RecordSet53>> by_name_;
    std::string zone_, records_;
    std::set<std::string> warned_checks_;
    bool warned_geo_ = false;
    ResourceSet out_;
};

} // namespace

Result<ImportResult> import_route53(const json::value& record_sets, const json::value& health_checks) {
    return Route53Import(record_sets, health_checks).run();
}

} // namespace orrery::importers
