#include "cli/gslb_import_build.h"

#include <charconv>

namespace orrery::cli {

namespace {

/// gdnsd's configuration language: scalars, [ arrays ] and { keys => values }, with commas where one likes.
class VscfReader {
public:
    explicit VscfReader(std::string_view text) : text_(text) {}

    Result<json::object> read() {
        json::object out;
        skip();
        const bool braces = !at_end() && text_[at_] == '{';
        if (braces) ++at_;
        TRY(out, table(braces ? '}' : '\0', 0));
        skip();
        if (!at_end()) return wrong("there is more after the end");
        return out;
    }

private:
    bool at_end() const { return at_ >= text_.size(); }
    Error wrong(std::string_view what) const {
        const auto line =
            1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())), '\n');
        return Error{Code::invalid, fmt::format("line {}: {}", line, what)};
    }
    void skip() {
        while (!at_end()) {
            if (text_[at_] == '#')
                at_ = std::min(text_.find('\n', at_), text_.size());
            else if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == ',')
                ++at_;
            else
                return;
        }
    }

    Result<json::object> table(char end, int depth) {
        json::object out;
        while (true) {
            skip();
            if (at_end()) {
                if (end == '\0') return out;
                return wrong("a { is not closed");
            }
            if (text_[at_] == end) {
                ++at_;
                return out;
            }
            if (text_.substr(at_).starts_with("$include")) return wrong("$include is not read: put everything into one file");
            TRY(const auto key, scalar());
            skip();
            if (!text_.substr(at_).starts_with("=>")) return wrong(fmt::format("after \"{}\" comes no =>", key.substr(0, 40)));
            at_ += 2;
            TRY(auto one, value(depth));
            out[key] = std::move(one);
        }
    }

    Result<json::value> value(int depth) {
        if (depth > 16) return wrong("it is nested too deeply");
        skip();
        if (at_end()) return wrong("a value is missing");
        if (text_[at_] == '{') {
            ++at_;
            TRY(auto out, table('}', depth + 1));
            return json::value(std::move(out));
        }
        if (text_[at_] == '[') {
            ++at_;
            json::array out;
            while (true) {
                skip();
                if (at_end()) return wrong("a [ is not closed");
                if (text_[at_] == ']') {
                    ++at_;
                    return json::value(std::move(out));
                }
                TRY(auto one, value(depth + 1));
                out.push_back(std::move(one));
            }
        }
        TRY(const auto text, scalar());
        return json::value(text);
    }

    Result<std::string> scalar() {
        std::string out;
        if (text_[at_] == '"' || text_[at_] == '\'') {
            const char quote = text_[at_++];
            while (!at_end() && text_[at_] != quote) {
                if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
                out += text_[at_++];
            }
            if (at_end()) return wrong("a string is not closed");
            ++at_;
            return out;
        }
        while (!at_end() && std::string_view(" \t\r\n,[]{}#").find(text_[at_]) == std::string_view::npos &&
               !text_.substr(at_).starts_with("=>"))
            out += text_[at_++];
        if (out.empty()) return wrong(fmt::format("\"{}\" is not expected here", text_[at_]));
        return out;
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

std::string gdnsd_text(const json::object& object, std::string_view key, std::string otherwise = {}) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : otherwise;
}
const json::object& gdnsd_table(const json::object& object, std::string_view key) {
    static const json::object none;
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_object() ? value->get_object() : none;
}
std::vector<std::string> gdnsd_list(const json::object& object, std::string_view key) {
    std::vector<std::string> out;
    const auto* value = object.if_contains(key);
    if (value == nullptr) return out;
    if (value->is_string()) out.emplace_back(std::string_view(value->get_string()));
    if (value->is_array())
        for (const auto& item : value->get_array())
            if (item.is_string()) out.emplace_back(std::string_view(item.get_string()));
    return out;
}
bool is_address_text(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789abcdefABCDEF.:") == std::string_view::npos &&
           (text.find(':') != std::string_view::npos || std::count(text.begin(), text.end(), '.') == 3);
}

class Gdnsd {
public:
    Gdnsd(const json::object& config, const std::map<std::string, std::string>& zones) : config_(config), zones_(zones) {}

    Result<Imported> run() {
        if (gdnsd_table(config_, "plugins").empty())
            return Error{Code::invalid, "there are no plugins in it", "give gdnsd's config file, and its zone files beside it"};
        for (const auto& [zone, text] : zones_) {
            read_zone(zone, text);
            add_zone_of(out_, text, zone, {"dyna", "dync"});
        }
        if (names_ == 0) out_.leave_out("no zone file with DYNA names was given: pools and monitors were read, names were not");
        for (const auto& [plugin, value] : gdnsd_table(config_, "plugins"))
            if (value.is_object())
                for (const auto& [resource, unused] : resources_of(std::string(std::string_view(plugin)), value.get_object()))
                    pools_of(std::string(std::string_view(plugin)), resource);
        return out_.take();
    }

private:
    struct Resolved {
        std::vector<std::pair<std::string, bool>> pools; ///< name, passive
        std::string answers = "all";
        std::string steering = "failover";
    };

    static bool is_setting(std::string_view key) {
        static const std::set<std::string_view> all{
            "service_types", "up_thresh", "ignore_health", "multi", "undefined_datacenters_ok",
            "maps",          "resources", "datacenters",   "dcmap", "plugin"};
        return all.contains(key);
    }
    static std::map<std::string, json::object> resources_of(const std::string& plugin, const json::object& given) {
        std::map<std::string, json::object> out;
        const auto& from = plugin == "metafo" || plugin == "geoip" ? gdnsd_table(given, "resources") : given;
        for (const auto& [key, value] : from)
            if (value.is_object() && !is_setting(key)) out.emplace(std::string_view(key), value.get_object());
        return out;
    }

    const Resolved* pools_of(const std::string& plugin, const std::string& resource) {
        const auto key = plugin + "!" + resource;
        if (const auto known = resolved_.find(key); known != resolved_.end()) return known->second ? &*known->second : nullptr;
        resolved_[key]; // one that refers to itself is none
        const auto& settings = gdnsd_table(gdnsd_table(config_, "plugins"), plugin);
        const auto all = resources_of(plugin, settings);
        const auto found = all.find(resource);
        if (found == all.end()) {
            out_.leave_out(fmt::format("{}: it is not in the configuration", key));
            return nullptr;
        }
        auto made = resolve(plugin, resource, found->second, settings);
        return (resolved_[key] = std::move(made)) ? &*resolved_[key] : nullptr;
    }

    std::optional<Resolved> resolve(const std::string& plugin, const std::string& resource, const json::object& given,
                                    const json::object& settings) {
        if (plugin == "multifo") return several(resource, given, settings, false);
        if (plugin == "weighted") return several(resource, given, settings, true);
        if (plugin == "simplefo") return two(resource, given, settings);
        if (plugin == "metafo") return centers(resource, given, settings);
        if (plugin == "geoip") {
            out_.leave_out(fmt::format("geoip!{}: maps of places and networks are not carried over; its data centers are tried in "
                                       "order. Write the networks "
                                       "of your clients as steering: topology",
                                       resource));
            return centers(resource, given, settings);
        }
        out_.leave_out(fmt::format("{}!{}: the plugin has no counterpart", plugin, resource));
        return std::nullopt;
    }

    /// multifo and weighted: addresses, or addrs_v4 and addrs_v6 of them; weights as [address, weight]; groups.
    Resolved several(const std::string& resource, const json::object& given, const json::object& settings, bool weighted) {
        PoolDraft pool{.name = resource};
        for (const auto* family : {"addrs_v4", "addrs_v6", ""}) {
            const auto& from = *family == '\0' ? given : gdnsd_table(given, family);
            for (const auto& [key, value] : from)
                if (!is_setting(key) && key != "addrs_v4" && key != "addrs_v6")
                    address(resource, std::string(std::string_view(key)), value, pool);
        }
        pool.monitors = monitors(given, settings);
        pool.min_healthy = threshold(gdnsd_text(given, "up_thresh", gdnsd_text(settings, "up_thresh", "0.5")));
        const bool multi = gdnsd_text(given, "multi", gdnsd_text(settings, "multi", "false")) == "true";
        return {{{pool.add_to(out_), false}}, !weighted ? "all" : multi ? "weighted-many" : "weighted", "failover"};
    }

    void address(const std::string& resource, const std::string& key, const json::value& value, PoolDraft& pool) {
        if (value.is_string()) {
            const std::string text(std::string_view(value.get_string()));
            if (is_address_text(text)) return pool.add_address(text);
            return out_.leave_out(
                fmt::format("{}: {} is {}, no address: names as targets are not carried over", resource, key, text));
        }
        if (value.is_array() && value.get_array().size() == 2 && value.get_array()[0].is_string() &&
            value.get_array()[1].is_string()) {
            const std::string text(std::string_view(value.get_array()[0].get_string())),
                number(std::string_view(value.get_array()[1].get_string()));
            int weight = 1;
            std::from_chars(number.data(), number.data() + number.size(), weight);
            if (!is_address_text(text))
                return out_.leave_out(
                    fmt::format("{}: {} is {}, no address: names as targets are not carried over", resource, key, text));
            pool.add_address(text);
            if (pool.weights.size() < std::max(pool.v4.size(), pool.v6.size())) pool.weights.push_back(weight);
            return;
        }
        if (value.is_object()) {
            out_.leave_out(
                fmt::format("{}: group {} became single members; a group's own draw is not carried over", resource, key));
            for (const auto& [inner, one] : value.get_object())
                if (!is_setting(inner) && !one.is_object()) address(resource, std::string(std::string_view(inner)), one, pool);
        }
    }

    Resolved two(const std::string& resource, const json::object& given, const json::object& settings) {
        Resolved out;
        PoolDraft primary{.name = resource + "-primary"}, secondary{.name = resource + "-secondary"};
        for (const auto* family : {"addrs_v4", "addrs_v6", ""}) {
            const auto& from = *family == '\0' ? given : gdnsd_table(given, family);
            if (const auto one = gdnsd_text(from, "primary"); !one.empty()) primary.add_address(one);
            if (const auto one = gdnsd_text(from, "secondary"); !one.empty()) secondary.add_address(one);
        }
        primary.monitors = secondary.monitors = monitors(given, settings);
        out.pools = {{primary.add_to(out_), false}, {secondary.add_to(out_), true}};
        return out;
    }

    /// metafo and geoip: an address or another plugin's resource for each data center, in order.
    std::optional<Resolved> centers(const std::string& resource, const json::object& given, const json::object& settings) {
        Resolved out;
        auto order = gdnsd_list(given, "datacenters");
        const auto& places = gdnsd_table(given, "dcmap");
        if (order.empty())
            for (const auto& [key, value] : places) order.emplace_back(std::string_view(key));
        for (const auto& center : order) {
            const auto* value = places.if_contains(center);
            if (value == nullptr) {
                out_.leave_out(fmt::format("{}: {} has nothing in dcmap", resource, center));
                continue;
            }
            if (value->is_object()) {
                const auto plugin = gdnsd_text(value->get_object(), "plugin", "multifo");
                if (const auto made = resolve(plugin, resource + "-" + center, value->get_object(),
                                              gdnsd_table(gdnsd_table(config_, "plugins"), plugin))) {
                    out.answers = made->answers;
                    for (const auto& pool : made->pools) out.pools.emplace_back(pool.first, false);
                }
                continue;
            }
            const auto text = gdnsd_text(places, center);
            if (text.starts_with('%') && text.find('!') != std::string::npos) {
                if (const auto* made = pools_of(text.substr(1, text.find('!') - 1), text.substr(text.find('!') + 1))) {
                    out.answers = made->answers;
                    for (const auto& pool : made->pools) out.pools.emplace_back(pool.first, false);
                }
                continue;
            }
            PoolDraft pool{.name = resource + "-" + center};
            for (const auto& one : gdnsd_list(places, center))
                if (is_address_text(one)) pool.add_address(one);
            pool.monitors = monitors(given, settings);
            if (pool.v4.empty() && pool.v6.empty())
                out_.leave_out(fmt::format("{}: {} is {}, which is not carried over", resource, center, text));
            else
                out.pools.emplace_back(pool.add_to(out_), false);
        }
        if (out.pools.empty()) return std::nullopt;
        return out;
    }

    json::value threshold(const std::string& text) {
        double share = 0.5;
        std::from_chars(text.data(), text.data() + text.size(), share);
        return json::value(fmt::format("{}%", static_cast<int>(std::clamp(share, 0.0, 1.0) * 100 + 0.5)));
    }

    std::vector<std::string> monitors(const json::object& given, const json::object& settings) {
        auto types = gdnsd_list(given.contains("service_types") ? given : settings, "service_types");
        std::vector<std::string> out;
        for (const auto& type : types)
            if (const auto name = monitor(type)) out.push_back(*name);
        return out;
    }

    std::optional<std::string> monitor(const std::string& type) {
        if (type == "up" || type == "none") return std::nullopt;
        const auto& given = gdnsd_table(gdnsd_table(config_, "service_types"), type);
        const auto plugin = gdnsd_text(given, "plugin");
        const auto number = [&](std::string_view key, int otherwise) {
            const auto text = gdnsd_text(given, key);
            int out = otherwise;
            if (!text.empty()) std::from_chars(text.data(), text.data() + text.size(), out);
            return out;
        };
        json::object spec;
        if (plugin == "http_status") {
            spec = {{"kind", "http"}, {"port", number("port", 80)}, {"path", gdnsd_text(given, "url_path", "/")}};
            if (const auto host = gdnsd_text(given, "vhost"); !host.empty()) spec["host"] = plain_name(host);
            std::string codes;
            for (const auto& code : gdnsd_list(given, "ok_codes")) codes += (codes.empty() ? "" : ",") + code;
            spec["expect"] = codes.empty() ? "200" : codes;
        } else if (plugin == "tcp_connect") {
            spec = {{"kind", "tcp"}, {"port", number("port", 0)}};
        } else if (plugin == "pinger" || plugin == "icmp") {
            spec = {{"kind", "icmp"}};
        } else {
            if (told_.insert(type).second)
                out_.leave_out(fmt::format("service type {}: {} has no counterpart; its members have no monitor", type,
                                           plugin.empty() ? "it is not configured, and" : plugin));
            return std::nullopt;
        }
        const auto interval = std::max(1, number("interval", 10));
        spec["interval"] = fmt::format("{}s", interval);
        spec["timeout"] = fmt::format("{}s", std::clamp(number("timeout", std::max(1, interval / 2)), 1, interval));
        spec["rise"] = std::clamp(number("up_thresh", 20), 1, 100);
        spec["fall"] = std::clamp(number("down_thresh", 10), 1, 100);
        spec["forgive"] = std::clamp(number("ok_thresh", 10), 1, 100);
        return out_.add("Monitor", type, std::move(spec));
    }

    void read_zone(const std::string& zone, std::string_view text) {
        std::string origin = plain_name(zone), owner;
        for (std::size_t start = 0; start < text.size();) {
            const auto end = std::min(text.find('\n', start), text.size());
            auto line = text.substr(start, end - start);
            start = end + 1;
            line = line.substr(0, line.find(';'));
            std::vector<std::string> words;
            for (std::size_t at = 0; at < line.size();) {
                const auto begin = line.find_first_not_of(" \t\r", at);
                if (begin == std::string_view::npos) break;
                at = std::min(line.find_first_of(" \t\r", begin), line.size());
                words.emplace_back(line.substr(begin, at - begin));
            }
            if (words.empty()) continue;
            if (words[0] == "$ORIGIN" && words.size() > 1) {
                origin = plain_name(words[1]);
                continue;
            }
            std::size_t at = 0;
            if (line[0] != ' ' && line[0] != '\t') {
                const auto& first = words[at++];
                owner = first == "@" ? origin : first.ends_with('.') ? plain_name(first) : lowered(first) + "." + origin;
            }
            std::string ttl = "300";
            for (; at < words.size(); ++at)
                if (const auto c = words[at][0]; c >= '0' && c <= '9')
                    ttl = words[at];
                else if (lowered(words[at]) != "in")
                    break;
            if (at + 1 >= words.size()) continue;
            const auto type = lowered(words[at]);
            if (type == "dync") out_.leave_out(fmt::format("{}: DYNC answers with names, which is not carried over", owner));
            if (type == "dyna") name(zone, owner, ttl, words[at + 1]);
        }
    }

    void name(const std::string& zone, const std::string& fqdn, const std::string& ttl, const std::string& target) {
        ++names_;
        const auto mark = target.find('!');
        const auto* made = pools_of(target.substr(0, mark), mark == std::string::npos ? fqdn : target.substr(mark + 1));
        if (made == nullptr) return;
        const auto slash = ttl.find('/');
        json::object times{{"max", seconds(ttl.substr(0, slash))}};
        if (slash != std::string::npos) times["min"] = seconds(ttl.substr(slash + 1));
        json::array uses;
        for (const auto& [pool, passive] : made->pools) {
            json::object use{{"pool", pool}};
            if (passive) use["tier"] = "passive";
            uses.push_back(std::move(use));
        }
        json::object spec{{"fqdn", fqdn}, {"zone", plain_name(zone)}, {"pools", std::move(uses)}, {"ttl", std::move(times)}};
        if (made->answers != "all") spec["answers"] = made->answers;
        out_.add("LoadBalancer", fqdn, std::move(spec));
    }
    static std::string seconds(const std::string& text) { return fmt::format("{}s", seconds_of(text, 300)); }

    const json::object& config_;
    const std::map<std::string, std::string>& zones_;
    std::map<std::string, std::optional<Resolved>> resolved_;
    std::set<std::string> told_;
    int names_ = 0;
    Collected out_;
};

} // namespace

Result<Imported> import_gdnsd(std::string_view config, const std::map<std::string, std::string>& zones) {
    TRY(const auto read, VscfReader(config).read());
    return Gdnsd(read, zones).run();
}

} // namespace orrery::cli
