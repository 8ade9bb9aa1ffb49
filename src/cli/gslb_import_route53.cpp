#include "cli/gslb_import_build.h"

#include <array>

namespace orrery::cli {

namespace {

std::string text_in(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}
std::int64_t number_in(const json::object& object, std::string_view key, std::int64_t otherwise) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_int64() ? value->get_int64() : otherwise;
}
const json::array& list_in(const json::value& value, std::string_view key) {
    static const json::array none;
    const auto* object = value.if_object();
    const auto* found = object == nullptr ? nullptr : object->if_contains(key);
    return found != nullptr && found->is_array() ? found->get_array() : none;
}

struct RecordSet53 {
    std::string name, type, id, check;
    std::int64_t weight = -1, ttl = 300;
    std::string failover;
    std::string continent, country, subdivision; ///< of a GeoLocation; the country * is everybody else
    bool region = false, place = false, many = false, alias = false;
    bool by_geo() const { return !continent.empty() || !country.empty(); }
    std::vector<std::string> values;
};

class Route53 {
public:
    Route53(const json::value& sets, const json::value& checks) : sets_(sets), checks_(checks) {}

    Result<Imported> run() {
        if (list_in(sets_, "ResourceRecordSets").empty())
            return Error{Code::invalid, "there are no ResourceRecordSets in it",
                         "give the answer of: aws route53 list-resource-record-sets --hosted-zone-id ID"};
        read_sets();
        for (auto& [name, sets] : by_name_) balance(name, sets);
        zone();
        return out_.take();
    }

private:
    void read_sets() {
        for (const auto& item : list_in(sets_, "ResourceRecordSets")) {
            const auto* given = item.if_object();
            if (given == nullptr) continue;
            RecordSet53 set{.name = plain_name(text_in(*given, "Name")),
                            .type = text_in(*given, "Type"),
                            .id = text_in(*given, "SetIdentifier"),
                            .check = text_in(*given, "HealthCheckId"),
                            .weight = number_in(*given, "Weight", -1),
                            .ttl = number_in(*given, "TTL", 300),
                            .failover = text_in(*given, "Failover")};
            set.region = given->contains("Region");
            set.place = given->contains("GeoProximityLocation") || given->contains("CidrRoutingConfig");
            if (const auto* where = given->if_contains("GeoLocation"); where != nullptr && where->is_object()) {
                set.continent = text_in(where->get_object(), "ContinentCode");
                set.country = text_in(where->get_object(), "CountryCode");
                set.subdivision = text_in(where->get_object(), "SubdivisionCode");
            }
            set.many = given->contains("MultiValueAnswer");
            set.alias = given->contains("AliasTarget");
            for (const auto& record : list_in(item, "ResourceRecords"))
                if (const auto* one = record.if_object()) set.values.push_back(text_in(*one, "Value"));
            if (set.name.starts_with("\\052")) set.name.replace(0, 4, "*");
            if (set.alias)
                out_.leave_out(
                    fmt::format("{} {} {}: an alias of another AWS resource has no addresses of its own; write what it stands for",
                                set.name, set.type, set.id));
            else if (set.id.empty())
                fixed(set);
            else if (set.type != "A" && set.type != "AAAA")
                out_.leave_out(fmt::format("{} {} {}: only A and AAAA are balanced; make it a fixed record of the Zone", set.name,
                                           set.type, set.id));
            else
                by_name_[set.name].push_back(std::move(set));
        }
    }

    void fixed(const RecordSet53& set) {
        if (set.type == "SOA") {
            origin_ = set.name;
            return;
        }
        if (set.type == "NS" && (origin_.empty() || set.name == origin_)) {
            origin_ = set.name;
            return;
        }
        for (const auto& value : set.values) records_ += fmt::format("{}. {} {} {}\n", set.name, set.ttl, set.type, value);
    }

    void balance(const std::string& name, std::vector<RecordSet53>& sets) {
        std::vector<std::string> ids;
        std::map<std::string, PoolDraft> pools;
        std::map<std::string, RecordSet53> first;
        std::int64_t ttl = 300;
        for (const auto& set : sets) {
            if (pools.emplace(set.id, PoolDraft{}).second) {
                ids.push_back(set.id);
                first.emplace(set.id, set);
            }
            auto& pool = pools[set.id];
            pool.name = fmt::format("{}-{}", name, set.id);
            for (const auto& value : set.values) pool.add_address(value);
            if (const auto monitor = monitor_of(set.check); monitor && pool.monitors.empty()) pool.monitors.push_back(*monitor);
            ttl = std::min(ttl, set.ttl);
        }
        const auto& kind = first.at(ids.front());
        json::object spec{{"fqdn", name}, {"ttl", json::object{{"max", fmt::format("{}s", std::max<std::int64_t>(ttl, 1))}}}};
        if (!origin_.empty() && (name == origin_ || name.ends_with("." + origin_))) spec["zone"] = origin_;
        if (kind.many) return multivalue(name, ids, pools, std::move(spec));
        if (kind.weight >= 0) {
            spec["steering"] = "spread";
            spec["answers"] = "weighted";
            for (const auto& [id, pool] : pools)
                if (pool.v4.size() > 1 || pool.v6.size() > 1)
                    out_.leave_out(
                        fmt::format("{} {}: Route 53 answers with all its addresses at once; here one of them is drawn", name, id));
        } else if (kind.region || kind.place) {
            out_.leave_out(fmt::format(
                "{}: {} is not carried over; its pools are tried in their order. Use steering: topology with the networks of your "
                "clients, or latency",
                name, kind.region ? "routing by latency" : "routing by place"));
        }
        // Whoever is at no place that is named gets the first.
        if (kind.by_geo()) {
            const auto rest = std::find_if(ids.begin(), ids.end(), [&](const auto& id) { return first.at(id).country == "*"; });
            if (rest != ids.end()) std::rotate(ids.begin(), rest, rest + 1);
        }
        json::array uses;
        std::map<std::string, std::string> pool_of;
        for (const auto& id : ids) {
            const auto& set = first.at(id);
            pool_of[id] = pools.at(id).add_to(out_);
            json::object use{{"pool", pool_of[id]}};
            if (set.failover == "SECONDARY") use["tier"] = "passive";
            if (set.weight >= 0) use["weight"] = set.weight;
            if (set.failover == "SECONDARY")
                uses.push_back(std::move(use));
            else
                uses.insert(uses.begin() + static_cast<std::ptrdiff_t>(active_in(uses)), std::move(use));
        }
        spec["pools"] = std::move(uses);
        if (first.at(ids.front()).by_geo()) steer_by_place(name, ids, first, pool_of, spec);
        out_.add("LoadBalancer", name, std::move(spec));
    }

    /// The narrowest place that a client is in counts.
    void steer_by_place(const std::string& name, const std::vector<std::string>& ids,
                        const std::map<std::string, RecordSet53>& sets, const std::map<std::string, std::string>& pool_of,
                        json::object& spec) {
        std::array<json::array, 3> rules; ///< of parts of countries, of countries, of continents
        bool everybody = false;
        for (const auto& id : ids) {
            const auto& set = sets.at(id);
            everybody = everybody || set.country == "*";
            if (!set.by_geo() || set.country == "*") continue;
            json::object rule{{"pools", json::array{pool_of.at(id)}}};
            if (!set.continent.empty()) rule["continent"] = set.continent;
            if (!set.country.empty()) rule["country"] = set.country;
            if (!set.subdivision.empty()) rule["subdivision"] = set.subdivision;
            rules.at(set.subdivision.empty() ? set.country.empty() ? 2 : 1 : 0).push_back(std::move(rule));
        }
        if (!everybody)
            out_.leave_out(
                fmt::format("{}: Route 53 answers nothing to clients of other places; here they get the pools in order", name));
        json::array list;
        for (auto& width : rules)
            for (auto& rule : width) list.push_back(std::move(rule));
        if (list.empty()) return;
        spec["steering"] = "geo";
        spec["geo"] = json::object{{"rules", std::move(list)}};
        if (std::exchange(places_told_, true)) return;
        out_.leave_out("routing by place needs a database of places: set dns.geo_databases of the server");
    }

    static std::size_t active_in(const json::array& uses) {
        return static_cast<std::size_t>(
            std::count_if(uses.begin(), uses.end(), [](const json::value& use) { return !use.as_object().contains("tier"); }));
    }

    /// Each set is a member with a check of its own.
    void multivalue(const std::string& name, const std::vector<std::string>& ids, std::map<std::string, PoolDraft>& pools,
                    json::object spec) {
        const auto pool = out_.add("Pool", name, {{"min_healthy", 1}});
        for (const auto& id : ids) {
            const auto& draft = pools.at(id);
            for (std::size_t at = 0; at < std::max(draft.v4.size(), draft.v6.size()); ++at) {
                json::array addresses;
                if (at < draft.v4.size()) addresses.emplace_back(draft.v4[at]);
                if (at < draft.v6.size()) addresses.emplace_back(draft.v6[at]);
                json::object member{{"pool", pool}, {"addresses", std::move(addresses)}};
                if (!draft.monitors.empty()) member["monitors"] = json::array(draft.monitors.begin(), draft.monitors.end());
                out_.add("Member", fmt::format("{}-{}", name, id), std::move(member));
            }
        }
        spec["answers"] = "subset";
        spec["max_answers"] = 8;
        spec["pools"] = json::array{json::object{{"pool", pool}}};
        out_.add("LoadBalancer", name, std::move(spec));
    }

    std::optional<std::string> monitor_of(const std::string& id) {
        if (id.empty()) return std::nullopt;
        for (const auto& item : list_in(checks_, "HealthChecks")) {
            const auto* check = item.if_object();
            if (check == nullptr || text_in(*check, "Id") != id) continue;
            const auto* value = check->if_contains("HealthCheckConfig");
            const auto* config = value == nullptr ? nullptr : value->if_object();
            if (config == nullptr) break;
            return monitor_from(id, *config);
        }
        if (missing_.insert(id).second)
            out_.leave_out(
                fmt::format("health check {}: it is not in what was given; add the answer of aws route53 list-health-checks", id));
        return std::nullopt;
    }

    std::optional<std::string> monitor_from(const std::string& id, const json::object& config) {
        const auto type = text_in(config, "Type");
        const bool web = type.starts_with("HTTP");
        if (!web && type != "TCP") {
            if (missing_.insert(id).second)
                out_.leave_out(fmt::format("health check {}: {} has no counterpart; its members have no monitor", id, type));
            return std::nullopt;
        }
        json::object spec{{"kind", type.starts_with("HTTPS") ? "https" : web ? "http" : "tcp"}};
        if (const auto port = number_in(config, "Port", 0); port > 0) spec["port"] = port;
        if (web) {
            if (const auto path = text_in(config, "ResourcePath"); !path.empty())
                spec["path"] = path.starts_with('/') ? path : "/" + path;
            if (const auto host = text_in(config, "FullyQualifiedDomainName"); !host.empty()) spec["host"] = plain_name(host);
            if (const auto search = text_in(config, "SearchString"); !search.empty()) spec["contains"] = search;
            spec["expect"] = "200-399";                            // what Route 53 counts as good
            if (type.starts_with("HTTPS")) spec["verify"] = false; // it does not look at certificates
        }
        spec["interval"] = fmt::format("{}s", number_in(config, "RequestInterval", 30));
        spec["timeout"] = web ? "6s" : "10s";
        spec["fall"] = spec["rise"] = number_in(config, "FailureThreshold", 3);
        if (const auto* inverted = config.if_contains("Inverted");
            inverted != nullptr && inverted->is_bool() && inverted->get_bool() && missing_.insert(id + "!").second)
            out_.leave_out(fmt::format("health check {}: it is inverted, which has no counterpart", id));
        if (const auto* off = config.if_contains("Disabled"); off != nullptr && off->is_bool() && off->get_bool())
            return std::nullopt;
        return out_.add("Monitor", fmt::format("r53-{}", id.substr(0, 8)), std::move(spec));
    }

    void zone() {
        if (origin_.empty()) return;
        json::object spec{{"origin", origin_}, {"nameservers", json::array{fmt::format("ns1.{}", origin_)}}};
        if (!records_.empty()) spec["records"] = records_;
        out_.add("Zone", origin_, std::move(spec));
        out_.leave_out(fmt::format("zone {}: its name servers were Amazon's; write your own into spec.nameservers", origin_));
    }

    const json::value& sets_;
    const json::value& checks_;
    std::map<std::string, std::vector<RecordSet53>> by_name_;
    std::string origin_, records_;
    std::set<std::string> missing_;
    bool places_told_ = false;
    Collected out_;
};

} // namespace

Result<Imported> import_route53(const json::value& record_sets, const json::value& health_checks) {
    return Route53(record_sets, health_checks).run();
}

} // namespace orrery::cli
