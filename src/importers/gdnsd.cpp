#include "core/json_fields.h"
#include "importers/vscf.h"
#include "importers/zone_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>

namespace orrery::importers {

namespace {

bool is_address_text(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789abcdefABCDEF.:") == std::string_view::npos &&
           (text.find(':') != std::string_view::npos || std::count(text.begin(), text.end(), '.') == 3);
}

/// The pools that a resource of a plugin represents.
struct ResolvedResource {
    std::vector<std::pair<std::string, bool>> pools; ///< name; true: passive
    std::string answers = "all";
};

class GdnsdImport {
public:
    GdnsdImport(const json::object& config, const std::map<std::string, std::string>& zone_files)
        : config_(config), plugins_(object_at(config, "plugins")), zone_files_(zone_files) {}

    Result<ImportResult> run() {
        if (plugins_.empty())
            return Error{Code::invalid, "the gdnsd configuration has no plugins",
                         "give the config file of gdnsd first, then its zone files"};
        for (const auto& [zone, text] : zone_files_) {
            TRY(std::ignore, import_zone(out_, text, plain_name(zone), {.ttl_with_minimum = true},
                                         [&](const dns::ZoneEntry& entry) { return take_record(zone, entry); }));
        }
        if (load_balancers_ == 0)
            out_.warn("no DYNA records: pools and monitors are imported, load balancers are not; give the zone files too");
        for (const auto& [plugin, value] : plugins_)
            if (value.is_object())
                for (const auto& [resource, unused] : resources_of(std::string(std::string_view(plugin)), value.get_object()))
                    resolve_once(std::string(std::string_view(plugin)), resource);
        return out_.finish();
    }

private:
    static bool is_setting(std::string_view key) {
        static const std::set<std::string_view> all{
            "service_types", "up_thresh", "ignore_health", "multi", "undefined_datacenters_ok",
            "maps",          "resources", "datacenters",   "dcmap", "plugin"};
        return all.contains(key);
    }
    static std::map<std::string, json::object> resources_of(const std::string& plugin, const json::object& settings) {
        std::map<std::string, json::object> out;
        const auto& from = plugin == "metafo" || plugin == "geoip" ? object_at(settings, "resources") : settings;
        for (const auto& [key, value] : from)
            if (value.is_object() && !is_setting(key)) out.emplace(std::string_view(key), value.get_object());
        return out;
    }

    /// Null if the resource is unknown, cannot be imported, or refers to itself.
    const ResolvedResource* resolve_once(const std::string& plugin, const std::string& resource) {
        const auto key = plugin + "!" + resource;
        if (const auto known = resolved_.find(key); known != resolved_.end()) return known->second ? &*known->second : nullptr;
        resolved_[key]; // ends a cycle of references
        const auto& settings = object_at(plugins_, plugin);
        const auto all = resources_of(plugin, settings);
        const auto found = all.find(resource);
        if (found == all.end()) {
            out_.warn(fmt::format("{}: the configuration does not have this resource", key));
            return nullptr;
        }
        auto resolved = resolve(plugin, resource, found->second, settings);
        return (resolved_[key] = std::move(resolved)) ? &*resolved_[key] : nullptr;
    }

    std::optional<ResolvedResource> resolve(const std::string& plugin, const std::string& resource, const json::object& table,
                                            const json::object& settings) {
        if (plugin == "multifo") return resolve_multifo(resource, table, settings, false);
        if (plugin == "weighted") return resolve_multifo(resource, table, settings, true);
        if (plugin == "simplefo") return resolve_simplefo(resource, table, settings);
        if (plugin == "metafo") return resolve_metafo(resource, table, settings);
        if (plugin == "geoip") {
            out_.warn(fmt::format("geoip!{}: maps are not imported; the data centers are tried in order. Use steering: topology "
                                  "with the networks of your clients",
                                  resource));
            return resolve_metafo(resource, table, settings);
        }
        out_.warn(fmt::format("{}!{}: the plugin has no equivalent", plugin, resource));
        return std::nullopt;
    }

    /// multifo and weighted: addresses directly or in addrs_v4 and addrs_v6; weights as [address, weight]; groups.
    ResolvedResource resolve_multifo(const std::string& resource, const json::object& table, const json::object& settings,
                                     bool weighted) {
        PoolDraft pool{.name = resource};
        for (const auto* family : {"addrs_v4", "addrs_v6", ""}) {
            const auto& from = *family == '\0' ? table : object_at(table, family);
            for (const auto& [key, value] : from)
                if (!is_setting(key) && key != "addrs_v4" && key != "addrs_v6")
                    add_address(resource, std::string(std::string_view(key)), value, pool);
        }
        pool.monitors = monitors(table, settings);
        pool.min_healthy = threshold(text_at(table, "up_thresh", text_at(settings, "up_thresh", "0.5")));
        const bool multi = text_at(table, "multi", text_at(settings, "multi", "false")) == "true";
        return {{{pool.add_to(out_), false}}, !weighted ? "all" : multi ? "weighted-many" : "weighted"};
    }

    void add_address(const std::string& resource, const std::string& key, const json::value& value, PoolDraft& pool) {
        const auto bad_address = [&](std::string_view text) {
            out_.warn(fmt::format("{}: {} is \"{}\", not an address; names as targets are not imported", resource, key, text));
        };
        if (value.is_string()) {
            const std::string_view text = value.get_string();
            return is_address_text(text) ? pool.add_address(text) : bad_address(text);
        }
        if (const auto* pair = value.if_array();
            pair != nullptr && pair->size() == 2 && (*pair)[0].is_string() && (*pair)[1].is_string()) {
            const std::string_view text = (*pair)[0].get_string(), number = (*pair)[1].get_string();
            int weight = 1;
            std::from_chars(number.data(), number.data() + number.size(), weight);
            return is_address_text(text) ? pool.add_weighted(text, weight) : bad_address(text);
        }
        if (!value.is_object()) return;
        out_.warn(fmt::format("{}: the addresses of group {} became members of the pool; the group itself is not imported",
                              resource, key));
        for (const auto& [inner, one] : value.get_object())
            if (!is_setting(inner) && !one.is_object()) add_address(resource, std::string(std::string_view(inner)), one, pool);
    }

    ResolvedResource resolve_simplefo(const std::string& resource, const json::object& table, const json::object& settings) {
        PoolDraft primary{.name = resource + "-primary"}, secondary{.name = resource + "-secondary"};
        for (const auto* family : {"addrs_v4", "addrs_v6", ""}) {
            const auto& from = *family == '\0' ? table : object_at(table, family);
            if (const auto one = text_at(from, "primary"); !one.empty()) primary.add_address(one);
            if (const auto one = text_at(from, "secondary"); !one.empty()) secondary.add_address(one);
        }
        primary.monitors = secondary.monitors = monitors(table, settings);
        ResolvedResource out;
        out.pools.emplace_back(primary.add_to(out_), false);
        out.pools.emplace_back(secondary.add_to(out_), true);
        return out;
    }

    /// metafo and geoip: for each data center in order, addresses, a table, or a reference to a resource of another plugin.
    std::optional<ResolvedResource> resolve_metafo(const std::string& resource, const json::object& table,
                                                   const json::object& settings) {
        ResolvedResource out;
        auto order = vscf_list(table, "datacenters");
        const auto& targets = object_at(table, "dcmap");
        if (order.empty())
            for (const auto& [key, value] : targets) order.emplace_back(std::string_view(key));
        for (const auto& center : order) add_center(resource, center, table, settings, out);
        if (out.pools.empty()) return std::nullopt;
        return out;
    }

    void add_center(const std::string& resource, const std::string& center, const json::object& table, const json::object& settings,
                    ResolvedResource& out) {
        const auto add = [&out](const ResolvedResource& resolved) {
            out.answers = resolved.answers;
            for (const auto& pool : resolved.pools) out.pools.emplace_back(pool.first, false);
        };
        const auto& targets = object_at(table, "dcmap");
        const auto* target = targets.if_contains(center);
        if (target == nullptr) return out_.warn(fmt::format("{}: dcmap has no data center {}", resource, center));
        if (const auto* inner = target->if_object()) {
            const auto plugin = text_at(*inner, "plugin", "multifo");
            if (const auto resolved = resolve(plugin, resource + "-" + center, *inner, object_at(plugins_, plugin))) add(*resolved);
            return;
        }
        const auto text = text_at(targets, center);
        if (const auto mark = text.find('!'); text.starts_with('%') && mark != std::string::npos) {
            if (const auto* resolved = resolve_once(text.substr(1, mark - 1), text.substr(mark + 1))) add(*resolved);
            return;
        }
        PoolDraft pool{.name = resource + "-" + center};
        for (const auto& one : vscf_list(targets, center))
            if (is_address_text(one)) pool.add_address(one);
        pool.monitors = monitors(table, settings);
        if (pool.member_count() == 0)
            return out_.warn(fmt::format("{}: {} is \"{}\", not an address; it is not imported", resource, center, text));
        out.pools.emplace_back(pool.add_to(out_), false);
    }

    static json::value threshold(const std::string& text) {
        double share = 0.5;
        std::from_chars(text.data(), text.data() + text.size(), share);
        return json::value(fmt::format("{}%", std::lround(std::clamp(share, 0.0, 1.0) * 100)));
    }

    std::vector<std::string> monitors(const json::object& table, const json::object& settings) {
        std::vector<std::string> out;
        for (const auto& type : vscf_list(table.contains("service_types") ? table : settings, "service_types"))
            if (const auto name = monitor(type)) out.push_back(*name);
        return out;
    }

    std::optional<std::string> monitor(const std::string& type) {
        if (type == "up" || type == "none") return std::nullopt;
        const auto& table = object_at(object_at(config_, "service_types"), type);
        const auto plugin = text_at(table, "plugin");
        json::object spec;
        if (plugin == "http_status") {
            spec = {{"kind", "http"}, {"port", vscf_number(table, "port", 80)}, {"path", text_at(table, "url_path", "/")}};
            if (const auto host = text_at(table, "vhost"); !host.empty()) spec["host"] = plain_name(host);
            const auto codes = vscf_list(table, "ok_codes");
            spec["expect"] = codes.empty() ? "200" : fmt::format("{}", fmt::join(codes, ","));
        } else if (plugin == "tcp_connect") {
            spec = {{"kind", "tcp"}, {"port", vscf_number(table, "port", 0)}};
        } else if (plugin == "pinger" || plugin == "icmp") {
            spec = {{"kind", "icmp"}};
        } else {
            if (warned_types_.insert(type).second)
                out_.warn(fmt::format("service type {}: {}; its members have no monitor", type,
                                      plugin.empty() ? "it is not configured" : plugin + " has no equivalent"));
            return std::nullopt;
        }
        const auto interval = std::max(1, vscf_number(table, "interval", 10));
        spec["interval"] = fmt::format("{}s", interval);
        spec["timeout"] = fmt::format("{}s", std::clamp(vscf_number(table, "timeout", std::max(1, interval / 2)), 1, interval));
        spec["rise"] = std::clamp(vscf_number(table, "up_thresh", 20), 1, 100);
        spec["fall"] = std::clamp(vscf_number(table, "down_thresh", 10), 1, 100);
        spec["forgive"] = std::clamp(vscf_number(table, "ok_thresh", 10), 1, 100);
        return out_.add("Monitor", type, std::move(spec));
    }

    /// Takes the DYNA and DYNC records of a zone file.
    bool take_record(const std::string& zone, const dns::ZoneEntry& entry) {
        const auto type = to_lower(entry.tokens[0].text);
        if (type != "dyna" && type != "dync") return false;
        const auto fqdn = entry.owner.lowered();
        if (type == "dync")
            out_.warn(fmt::format("{}: DYNC records, which answer with names, are not imported", fqdn));
        else if (entry.tokens.size() < 2)
            out_.warn(fmt::format("{}: the DYNA record names no plugin", fqdn));
        else
            add_load_balancer(zone, fqdn, entry);
        return true;
    }

    void add_load_balancer(const std::string& zone, const std::string& fqdn, const dns::ZoneEntry& entry) {
        ++load_balancers_;
        const auto& target = entry.tokens[1].text;
        const auto mark = target.find('!');
        const auto* resolved = resolve_once(target.substr(0, mark), mark == std::string::npos ? fqdn : target.substr(mark + 1));
        if (resolved == nullptr) return;
        json::object ttl{{"max", ttl_text(entry.ttl.value_or(300))}};
        if (entry.min_ttl) ttl["min"] = ttl_text(*entry.min_ttl);
        json::array uses;
        for (const auto& [pool, passive] : resolved->pools) {
            json::object use{{"pool", pool}};
            if (passive) use["tier"] = "passive";
            uses.push_back(std::move(use));
        }
        json::object spec{{"fqdn", fqdn}, {"zone", plain_name(zone)}, {"pools", std::move(uses)}, {"ttl", std::move(ttl)}};
        if (resolved->answers != "all") spec["answers"] = resolved->answers;
        out_.add("LoadBalancer", fqdn, std::move(spec));
    }

    const json::object& config_;
    const json::object& plugins_;
    const std::map<std::string, std::string>& zone_files_;
    std::map<std::string, std::optional<ResolvedResource>> resolved_; ///< by "plugin!resource"
    std::set<std::string> warned_types_;
    int load_balancers_ = 0;
    ResourceSet out_;
};

} // namespace

Result<ImportResult> import_gdnsd(std::string_view config, const std::map<std::string, std::string>& zone_files) {
    TRY(const auto parsed, parse_vscf(config));
    return GdnsdImport(parsed, zone_files).run();
}

} // namespace orrery::importers
