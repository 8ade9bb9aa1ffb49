#include "core/truncate.h"
#include "importers/lua_call.h"
#include "importers/zone_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::importers {

namespace {

/// A LUA record.
struct LuaRecord {
    std::string type; ///< A or AAAA
    LuaCall call;
    int line = 0;
    std::int64_t ttl = 60;
};

class PowerdnsImport {
public:
    explicit PowerdnsImport(std::string_view zone) : zone_(plain_name(zone)) {}

    Result<ImportResult> run(std::string_view text) {
        TRY(std::ignore, import_zone(out_, text, zone_, {}, [&](const dns::ZoneEntry& entry) { return take_record(entry); }));
        if (lua_records_ == 0)
            return Error{Code::invalid, fmt::format("the zone file of {} has no LUA records", zone_),
                         "give a zone file as pdnsutil list-zone prints it"};
        for (const auto& [fqdn, records] : by_name_) add_load_balancer(fqdn, records);
        return out_.finish();
    }

private:
    bool take_record(const dns::ZoneEntry& entry) {
        const auto& tokens = entry.tokens;
        if (to_lower(tokens[0].text) != "lua") return false;
        ++lua_records_;
        const auto fqdn = entry.owner.lowered();
        const auto type = tokens.size() > 1 ? tokens[1].text : std::string();
        const auto warn = [&](std::string_view message) {
            out_.warn(fmt::format("line {}, {} {}: {}", tokens[0].line, fqdn, type, message));
        };
        std::string program;
        for (std::size_t at = 2; at < tokens.size(); ++at) {
            const auto part = dns::unescape(tokens[at]);
            if (part.ok()) program += *part;
        }
        auto call = parse_lua_call(program);
        if (type != "A" && type != "AAAA")
            warn("only A and AAAA are imported");
        else if (!call)
            warn(fmt::format("\"{}\" is not one call with constants; write the equivalent resources", truncate(program, 80)));
        else
            by_name_[fqdn].push_back({type, std::move(*call), tokens[0].line, entry.ttl.value_or(60)});
        return true;
    }

    void add_load_balancer(const std::string& fqdn, const std::vector<LuaRecord>& records) {
        const auto& first = records.front();
        std::vector<PoolDraft> pools;
        json::object spec{{"fqdn", fqdn}, {"ttl", json::object{{"max", ttl_text(first.ttl)}}}, {"zone", zone_}};
        for (const auto& record : records) {
            if (record.call.function != first.call.function) {
                out_.warn(fmt::format("line {}, {}: {} is not imported, because the name has {} too", record.line, fqdn,
                                      record.call.function, first.call.function));
                continue;
            }
            if (!add_record(fqdn, record, pools, spec)) return;
        }
        json::array uses;
        for (const auto& pool : pools) uses.emplace_back(json::object{{"pool", pool.add_to(out_)}});
        if (uses.empty()) return;
        spec["pools"] = std::move(uses);
        out_.add("LoadBalancer", fqdn, std::move(spec));
    }

    static bool has_monitor(std::string_view function) { return function == "ifportup" || function == "ifurlup"; }
    static bool has_weights(std::string_view function) {
        return function == "pickwrandom" || function == "picknamehashed" || function == "pickwhashed" || function == "pickchashed";
    }
    static bool is_plain(std::string_view function) {
        return function == "pickrandom" || function == "pickhashed" || function == "all";
    }

    /// False if the whole name cannot be imported.
    bool add_record(const std::string& fqdn, const LuaRecord& record, std::vector<PoolDraft>& pools, json::object& spec) {
        const auto& [function, arguments] = record.call;
        const bool monitored = has_monitor(function), weights = has_weights(function);
        const std::size_t list_at = monitored ? 1 : 0;
        if ((!monitored && !weights && !is_plain(function)) || arguments.size() <= list_at ||
            arguments[list_at].kind != LuaValue::Kind::table) {
            out_.warn(fmt::format("line {}, {}: {} has no equivalent", record.line, fqdn, function));
            return false;
        }
        const auto& list = arguments[list_at];
        // A list of lists: the lists are tried in order.
        std::vector<const LuaValue*> tiers;
        if (monitored && !list.items.empty() && list.items.front().kind == LuaValue::Kind::table)
            for (const auto& item : list.items) tiers.push_back(&item);
        else
            tiers.push_back(&list);
        std::vector<std::string> monitors;
        if (monitored) monitors.push_back(monitor(fqdn, record));
        for (std::size_t at = 0; at < tiers.size(); ++at) {
            if (pools.size() <= at)
                pools.push_back({.name = tiers.size() > 1 ? fmt::format("{}-{}", fqdn, at + 1) : fqdn, .min_healthy = 1});
            auto& pool = pools[at];
            if (pool.monitors.empty()) pool.monitors = monitors;
            for (const auto& item : tiers[at]->items) add_address(item, weights, pool);
        }
        // Without a selector PowerDNS answers with one address at random.
        std::string selector = "random";
        if (arguments.size() > list_at + 1)
            if (const auto named = arguments[list_at + 1].named.find("selector"); named != arguments[list_at + 1].named.end())
                selector = named->second.text;
        set_answers(fqdn, record, selector, spec);
        return true;
    }

    void set_answers(const std::string& fqdn, const LuaRecord& record, const std::string& selector, json::object& spec) {
        const auto& function = record.call.function;
        if (function == "all" || selector == "all") {
            spec["answers"] = "all";
        } else if (function == "pickwrandom") {
            spec["answers"] = "weighted";
        } else if (function == "pickwhashed" || function == "pickchashed" || function == "pickhashed" || selector == "hashed") {
            spec["answers"] = "sticky";
        } else if (function == "picknamehashed") {
            spec["answers"] = "sticky-by-name";
        } else {
            spec["answers"] = "subset";
            spec["max_answers"] = 1;
            if (selector != "random")
                out_.warn(fmt::format("line {}, {}: selector {} has no equivalent; the answer is one address at random",
                                      record.line, fqdn, selector));
        }
    }

    static void add_address(const LuaValue& item, bool weighted, PoolDraft& pool) {
        if (!weighted) return pool.add_address(item.text);
        if (item.items.size() != 2) return;
        int weight = 1;
        std::from_chars(item.items[0].text.data(), item.items[0].text.data() + item.items[0].text.size(), weight);
        pool.add_weighted(item.items[1].text, weight);
    }

    std::string monitor(const std::string& fqdn, const LuaRecord& record) {
        const auto& [function, arguments] = record.call;
        const auto& target = arguments[0].text;
        json::object spec;
        if (function == "ifportup") {
            int port = 0;
            std::from_chars(target.data(), target.data() + target.size(), port);
            spec = {{"kind", "tcp"}, {"port", port}};
        } else {
            spec = http_monitor(target);
        }
        // The defaults of PowerDNS.
        spec["interval"] = "5s";
        spec["timeout"] = "2s";
        spec["rise"] = spec["fall"] = 1;
        if (arguments.size() > 2)
            for (const auto& [key, value] : arguments[2].named) set_option(fqdn, record, key, value, spec);
        return out_.add("Monitor", fmt::format("{}-{}", function == "ifportup" ? "port" : "url", fqdn), std::move(spec));
    }

    static json::object http_monitor(std::string_view url) {
        json::object out;
        const auto scheme = url.substr(0, url.find("://"));
        url.remove_prefix(std::min(url.size(), scheme.size() + 3));
        const auto slash = std::min(url.find('/'), url.size());
        auto host = url.substr(0, slash);
        out["kind"] = to_lower(scheme) == "https" ? "https" : "http";
        if (const auto colon = host.rfind(':'); colon != std::string_view::npos) {
            int port = 0;
            std::from_chars(host.data() + colon + 1, host.data() + host.size(), port);
            if (port > 0) out["port"] = port;
            host = host.substr(0, colon);
        }
        if (!host.empty()) out["host"] = to_lower(host);
        if (slash < url.size()) out["path"] = std::string(url.substr(slash));
        return out;
    }

    void set_option(const std::string& fqdn, const LuaRecord& record, const std::string& key, const LuaValue& value,
                    json::object& spec) {
        if (key == "selector" || key == "backupSelector") return;
        if (key == "interval")
            spec["interval"] = value.text + "s";
        else if (key == "timeout")
            spec["timeout"] = value.text + "s";
        else if (key == "stringmatch" && record.call.function == "ifurlup")
            spec["contains"] = value.text;
        else if (key == "useragent" && record.call.function == "ifurlup")
            spec["headers"] = json::object{{"User-Agent", value.text}};
        else if (key == "minimumFailures") {
            int fall = 1;
            std::from_chars(value.text.data(), value.text.data() + value.text.size(), fall);
            spec["fall"] = std::clamp(fall, 1, 100);
        } else {
            out_.warn(fmt::format("line {}, {}: option {} has no equivalent", record.line, fqdn, key));
        }
    }

    std::string zone_;
    int lua_records_ = 0;
    std::map<std::string, std::vector<LuaRecord>> by_name_;
    ResourceSet out_;
};

} // namespace

Result<ImportResult> import_powerdns(std::string_view zone_file, std::string_view zone) {
    return PowerdnsImport(zone).run(zone_file);
}

} // namespace orrery::importers
