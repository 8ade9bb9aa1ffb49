#include "gslb/validate.h"

#include "gslb/clients.h"
#include "gslb/model.h"
#include "gslb/publisher.h"
#include "gslb/read.h"
#include "gslb/zone.h"
#include "health/look_spec.h"
#include "resource/object.h"
#include "resource/resources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace orrery::gslb {

namespace {

using resource::Draft;
using Errors = std::vector<FieldError>;

Result<Unit> verdict(const Draft& draft, std::string_view kind, Errors errors) {
    return resource::verdict(*draft.resources->registry().find(kind), draft.after.name, std::move(errors));
}

void check_amount(const json::object& holder, std::string_view key, const std::string& path, Errors& errors,
                  bool share_only = false) {
    const auto* value = holder.if_contains(key);
    if (value == nullptr) return;
    const auto amount = Amount::parse(*value);
    if (!amount.ok() || (share_only && !amount->share))
        errors.push_back({path, share_only ? "must be a share such as 20%" : amount.error().message});
}

/// Who said so is the server's to write: whoever changes it is the one.
void sign_override(const Context& ctx, Draft& draft) {
    auto* given = draft.after.spec.if_contains("override");
    if (given == nullptr || !given->is_object()) return;
    auto now = given->get_object();
    now.erase("by");
    std::string by = ctx.actor();
    if (draft.before != nullptr) {
        auto before = object_at(draft.before->spec, "override");
        const auto said = text_at(before, "by");
        before.erase("by");
        if (before == now && !said.empty()) by = said;
    }
    now["by"] = by;
    *given = std::move(now);
}

class Checking {
public:
    Checking(Draft& draft, Errors& errors) : draft_(draft), spec_(draft.after.spec), errors_(errors) {}

    void run() {
        names();
        pools();
        steering();
        answers();
        times();
        all_down();
    }

private:
    void wrong(std::string path, std::string message) { errors_.push_back({std::move(path), std::move(message)}); }

    void names() {
        const auto fqdn = lowered_name(text_at(spec_, "fqdn"));
        if (!is_domain(fqdn, true)) wrong("spec.fqdn", "must be a domain name, such as www.gslb.example");
        spec_["fqdn"] = fqdn;
        if (!spec_.contains("zone")) {
            const auto dot = fqdn.find('.');
            spec_["zone"] = dot == std::string::npos ? fqdn : fqdn.substr(dot + 1);
        }
        const auto zone = lowered_name(text_at(spec_, "zone"));
        spec_["zone"] = zone;
        if (!is_domain(zone, false))
            wrong("spec.zone", "must be a domain name, such as gslb.example");
        else if (fqdn != zone && !fqdn.ends_with("." + zone))
            wrong("spec.zone", fmt::format("{} is not in it", fqdn));
        resource::ListQuery query;
        query.fields = {{"fqdn", fqdn}};
        if (const auto page = draft_.resources->list(*draft_.resources->registry().find("LoadBalancer"), query); page.ok())
            for (const auto& record : page->records)
                if (const auto other = resource::from_stored(*record); other.ok() && other->name != draft_.after.name)
                    wrong("spec.fqdn", fmt::format("LoadBalancer {} answers for it already", other->name));
    }

    void pools() {
        bool active = false;
        std::size_t at = 0;
        for (auto& item : spec_["pools"].as_array()) {
            const auto here = fmt::format("spec.pools[{}]", at++);
            auto& use = item.as_object();
            if (!pools_.insert(text_at(use, "pool")).second) wrong(here + ".pool", "is listed twice");
            active = active || text_at(use, "tier") != "passive";
            if (use.contains("weight") && text_at(spec_, "steering") != "spread")
                wrong(here + ".weight", "means nothing unless spec.steering is spread");
        }
        if (!active) wrong("spec.pools", "one at least must be active");
    }

    void steering() {
        const auto how = text_at(spec_, "steering");
        needs("topology", how);
        needs("geo", how);
        needs("latency", how);
        if (how == "geo" && spec_.contains("geo")) places(spec_["geo"].as_object());
        if (how == "topology") classes(spec_["topology"], "spec.topology");
        if (how == "latency" && spec_.contains("latency")) {
            auto& latency = spec_["latency"].as_object();
            check_amount(latency, "dead_band_share", "spec.latency.dead_band_share", errors_, true);
            classes(latency["clients"], "spec.latency.clients");
        }
    }

    /// A section is there when, and only when, its steering is.
    void needs(const char* section, const std::string& how) {
        const bool there = spec_.contains(section);
        if (how == section && !there) wrong(fmt::format("spec.{}", section), fmt::format("steering by {} needs it", section));
        if (how != section && there)
            wrong(fmt::format("spec.{}", section), fmt::format("means nothing unless spec.steering is {}", section));
    }

    void classes(json::value& list, const std::string& path) {
        if (!list.is_array()) return;
        std::set<std::string> labels, prefixes;
        std::size_t at = 0;
        for (auto& item : list.get_array()) {
            const auto here = fmt::format("{}[{}]", path, at++);
            auto& one = item.as_object();
            std::size_t place = 0;
            for (const auto& text : texts_at(one, "prefixes")) {
                const auto where = fmt::format("{}.prefixes[{}]", here, place++);
                const auto prefix = parse_prefix(text);
                if (!prefix.ok())
                    wrong(where, prefix.error().message + "; " + prefix.error().remedy);
                else if (!prefixes.insert(prefix_text(*prefix)).second)
                    wrong(where, fmt::format("{} is listed twice", prefix_text(*prefix)));
            }
            if (!one.contains("name") && !texts_at(one, "prefixes").empty()) one["name"] = texts_at(one, "prefixes").front();
            if (!labels.insert(text_at(one, "name")).second) wrong(here + ".name", "is used twice");
            pools_of(one, here);
        }
    }

    void places(json::object& geo) {
        if (!geo.contains("rules") && !flag_at(geo, "nearest")) wrong("spec.geo", "needs rules, or nearest, or both");
        if (!geo.contains("rules")) return;
        std::set<std::string> labels;
        std::size_t at = 0;
        for (auto& item : geo["rules"].as_array()) {
            const auto here = fmt::format("spec.geo.rules[{}]", at++);
            auto& one = item.as_object();
            const auto country = text_at(one, "country"), part = text_at(one, "subdivision");
            if (!std::all_of(country.begin(), country.end(), [](char c) { return c >= 'A' && c <= 'Z'; }))
                wrong(here + ".country", "must be two capital letters, as in NL");
            if (!part.empty() && country.empty()) wrong(here + ".subdivision", "means nothing without a country");
            std::vector<std::string> said;
            if (one.contains("continent")) said.push_back(text_at(one, "continent"));
            if (!country.empty()) said.push_back(part.empty() ? country : country + "-" + part);
            if (one.contains("asn")) said.push_back(fmt::format("AS{}", count_at(one, "asn", 0)));
            if (said.empty()) wrong(here, "needs continent, country or asn: who is meant");
            if (!one.contains("name")) one["name"] = fmt::format("{}", fmt::join(said, " "));
            const auto label = text_at(one, "name");
            if (label.starts_with("near ")) wrong(here + ".name", "must not begin with \"near\": those are made by nearest");
            if (!labels.insert(label).second) wrong(here + ".name", "is used twice");
            pools_of(one, here);
        }
    }

    void pools_of(const json::object& one, const std::string& here) {
        std::size_t place = 0;
        for (const auto& pool : texts_at(one, "pools")) {
            const auto where = fmt::format("{}.pools[{}]", here, place++);
            if (!pools_.contains(pool)) wrong(where, fmt::format("{} is not among spec.pools", pool));
        }
    }

    void answers() {
        const auto how = text_at(spec_, "answers");
        if (how == "subset" && !spec_.contains("max_answers")) wrong("spec.max_answers", "a subset needs it: how many");
        if (how == "weighted" && spec_.contains("max_answers"))
            wrong("spec.max_answers", "means nothing to weighted, which answers with one; for several: weighted-many");
    }

    void times() {
        const auto& ttl = object_at(spec_, "ttl");
        const auto most = duration_at(ttl, "max", {}), least = duration_at(ttl, "min", {});
        if (least > most) wrong("spec.ttl.min", fmt::format("must be at most spec.ttl.max, {}", to_text(most)));
        const auto& failback = object_at(spec_, "failback");
        const auto mode = text_at(failback, "mode");
        if (mode == "delayed" && !failback.contains("after")) wrong("spec.failback.after", "a delayed failback needs it");
        if (mode != "delayed" && failback.contains("after"))
            wrong("spec.failback.after", "means nothing unless spec.failback.mode is delayed");
    }

    void all_down() {
        const auto& given = object_at(spec_, "all_down");
        const bool addresses = given.contains("addresses"), alias = given.contains("alias");
        if (text_at(given, "answer") != "fallback") {
            if (addresses) wrong("spec.all_down.addresses", "means nothing unless spec.all_down.answer is fallback");
            if (alias) wrong("spec.all_down.alias", "means nothing unless spec.all_down.answer is fallback");
            return;
        }
        if (addresses == alias) wrong("spec.all_down", "a fallback is either addresses or an alias");
        Addresses taken;
        std::size_t at = 0;
        for (const auto& text : texts_at(given, "addresses"))
            if (const auto added = taken.add(text); !added.ok())
                wrong(fmt::format("spec.all_down.addresses[{}]", at++), added.error().message);
        if (!alias) return;
        const auto target = lowered_name(text_at(given, "alias"));
        if (!is_domain(target, false)) wrong("spec.all_down.alias", "must be a domain name");
        // RFC 1034 3.6.2: where there is a CNAME there is nothing else, and an apex has its SOA and NS.
        if (text_at(spec_, "fqdn") == text_at(spec_, "zone"))
            wrong("spec.all_down.alias", "the name is the zone's own, which cannot be an alias: give addresses");
        if (target == text_at(spec_, "fqdn")) wrong("spec.all_down.alias", "points at itself");
    }

    Draft& draft_;
    json::object& spec_;
    Errors& errors_;
    std::set<std::string> pools_;
};

} // namespace

bool is_domain(std::string_view name, bool wildcard) {
    if (name.empty() || name.size() > 253) return false;
    bool first = true;
    for (std::size_t start = 0; start <= name.size();) {
        const auto end = std::min(name.find('.', start), name.size());
        const auto label = name.substr(start, end - start);
        start = end + 1;
        const bool star = std::exchange(first, false) && wildcard && label == "*";
        if (star) continue;
        if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-') return false;
        if (!std::all_of(label.begin(), label.end(),
                         [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; }))
            return false;
    }
    return true;
}

Task<Unit> prepare_load_balancer(Context, Draft& draft) {
    Errors errors;
    Checking(draft, errors).run();
    co_return verdict(draft, "LoadBalancer", std::move(errors));
}

Task<Unit> prepare_pool(Context ctx, Draft& draft) {
    Errors errors;
    const auto& spec = draft.after.spec;
    check_amount(spec, "min_healthy", "spec.min_healthy", errors);
    check_amount(object_at(spec, "guard"), "most", "spec.guard.most", errors);
    if (const auto& load = object_at(spec, "load"); !load.empty()) {
        check_amount(load, "step", "spec.load.step", errors, true);
        if (number_at(load, "high", 0) <= number_at(load, "low", 0))
            errors.push_back({"spec.load.high", fmt::format("must be above spec.load.low, {}", number_at(load, "low", 0))});
    }
    sign_override(ctx, draft);
    co_return verdict(draft, "Pool", std::move(errors));
}

namespace {

/// A Source must be of the right driver. That it exists its reference says.
void check_source(const resource::Resources& resources, const json::object& spec, const std::string& driver,
                  const std::string& path, Errors& errors) {
    const auto name = text_at(spec, "source");
    if (name.empty()) return;
    const auto source = resources.get(*resources.registry().find("Source"), name);
    if (source.ok() && text_at(source->spec, "driver") != driver)
        errors.push_back({path, fmt::format("Source {} is of driver {}, not {}", name, text_at(source->spec, "driver"), driver)});
}

void check_calculated(const Draft& draft, Errors& errors) {
    const auto& spec = draft.after.spec;
    const std::set<std::string_view> known{"kind", "description", "of", "rule", "need"};
    for (const auto& [name, value] : spec)
        if (!known.contains(std::string_view(name)))
            errors.push_back({fmt::format("spec.{}", std::string_view(name)), "means nothing to a Monitor of kind calculated"});
    const auto parts = texts_at(spec, "of");
    if (parts.empty()) errors.push_back({"spec.of", "must say which Monitors it is made of"});
    const bool counted = text_at(spec, "rule") == "at-least";
    if (counted != spec.contains("need"))
        errors.push_back({"spec.need", counted ? "at-least needs it: how many" : "means nothing unless spec.rule is at-least"});
    if (count_at(spec, "need", 0) > parts.size())
        errors.push_back({"spec.need", fmt::format("is more than the {} Monitors there are", parts.size())});
    std::set<std::string> seen;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto here = fmt::format("spec.of[{}]", i);
        if (!seen.insert(parts[i]).second) errors.push_back({here, "is listed twice"});
        const auto part = draft.resources->get(*draft.resources->registry().find("Monitor"), parts[i]);
        if (parts[i] == draft.after.name || (part.ok() && text_at(part->spec, "kind") == "calculated"))
            errors.push_back({here, "is calculated itself"});
    }
}

} // namespace

Task<Unit> prepare_member(Context ctx, Draft& draft) {
    Errors errors;
    const auto& spec = draft.after.spec;
    int places = 0;
    for (const auto* field : {"addresses", "node", "instance", "balancer"}) places += spec.contains(field) ? 1 : 0;
    if (places != 1) errors.push_back({"spec", "needs exactly one of addresses, node, instance and balancer: where it is"});
    check_source(*draft.resources, object_at(spec, "balancer"), "octavia", "spec.balancer.source", errors);
    Addresses taken;
    std::size_t at = 0;
    for (const auto& text : texts_at(spec, "addresses")) {
        const auto here = fmt::format("spec.addresses[{}]", at++);
        if (const auto added = taken.add(text); !added.ok()) errors.push_back({here, added.error().message});
    }
    sign_override(ctx, draft);
    co_return verdict(draft, "Member", std::move(errors));
}

Task<Unit> prepare_monitor(Context, Draft& draft) {
    Errors errors;
    auto& spec = draft.after.spec;
    const auto kind = text_at(spec, "kind");
    if (kind == "calculated") {
        check_calculated(draft, errors);
        co_return verdict(draft, "Monitor", std::move(errors));
    }
    // What others have judged already counts at once.
    const bool judged = kind == "octavia" || kind == "push";
    if (!spec.contains("interval")) spec["interval"] = kind == "push" ? "1s" : "10s";
    if (!spec.contains("rise")) spec["rise"] = judged ? 1 : 2;
    if (!spec.contains("fall")) spec["fall"] = judged ? 1 : 3;
    if (!spec.contains("forgive")) spec["forgive"] = 1;
    if (kind == "push" && !spec.contains("ttl")) spec["ttl"] = "1m";
    if (kind == "octavia" || kind == "prometheus") check_source(*draft.resources, spec, kind, "spec.source", errors);
    if (health::is_informed(spec) && spec.contains("quorum"))
        errors.push_back({"spec.quorum", fmt::format("means nothing to {}: only this server asks", kind)});
    if (kind == "push" && spec.contains("timeout")) errors.push_back({"spec.timeout", "means nothing to push: see spec.ttl"});
    for (auto& error : health::check_look(spec, "spec", {monitor_pace.begin(), monitor_pace.end()}))
        errors.push_back(std::move(error));
    const auto interval = duration_at(spec, "interval", std::chrono::seconds(10));
    const auto fast = duration_at(spec, "fast", interval), slow = duration_at(spec, "slow", interval);
    if (fast > interval) errors.push_back({"spec.fast", fmt::format("must be at most the interval, {}", to_text(interval))});
    if (slow < interval) errors.push_back({"spec.slow", fmt::format("must be at least the interval, {}", to_text(interval))});
    if (spec.contains("timeout") && duration_at(spec, "timeout", {}) > fast)
        errors.push_back({"spec.timeout", fast == interval ? fmt::format("must be at most the interval, {}", to_text(interval))
                                                           : fmt::format("must be at most spec.fast, {}", to_text(fast))});
    co_return verdict(draft, "Monitor", std::move(errors));
}

Task<Unit> prepare_zone(Context, Draft& draft) {
    Errors errors;
    auto& spec = draft.after.spec;
    const auto origin = lowered_name(text_at(spec, "origin"));
    spec["origin"] = origin;
    if (!is_domain(origin, false)) errors.push_back({"spec.origin", "must be a domain name, such as gslb.example"});
    std::size_t at = 0;
    for (const auto& server : texts_at(spec, "nameservers"))
        if (const auto here = at++; !is_domain(lowered_name(server), false))
            errors.push_back({fmt::format("spec.nameservers[{}]", here), "must be a host name"});
    if (const auto contact = text_at(spec, "contact");
        !contact.empty() && !is_domain(lowered_name(contact.substr(contact.find('@') + 1)), false))
        errors.push_back({"spec.contact", "must be an address such as hostmaster@example.org"});
    resource::ListQuery query;
    query.fields = {{"origin", origin}};
    if (const auto page = draft.resources->list(*draft.resources->registry().find("Zone"), query); page.ok())
        for (const auto& record : page->records)
            if (const auto other = resource::from_stored(*record); other.ok() && other->name != draft.after.name)
                errors.push_back({"spec.origin", fmt::format("Zone {} is it already", other->name)});
    if (errors.empty())
        if (const auto zone = zone_of(spec); !zone.ok())
            errors.push_back(
                {"spec.records", zone.error().message + (zone.error().remedy.empty() ? "" : "; " + zone.error().remedy)});
    co_return verdict(draft, "Zone", std::move(errors));
}

Task<Unit> prepare_publisher(Context, Draft& draft) {
    Errors errors;
    auto& spec = draft.after.spec;
    const auto driver = text_at(spec, "driver");
    // What each speaks to, and with whose credentials.
    const std::vector<std::pair<std::string, std::set<std::string>>> fields{{"url", {"powerdns", "designate", "externaldns"}},
                                                                            {"server", {"rfc2136"}},
                                                                            {"credentials", {"powerdns", "designate", "rfc2136"}},
                                                                            {"keystone", {"designate"}},
                                                                            {"tsig", {"rfc2136"}}};
    for (const auto& [field, drivers] : fields)
        if (spec.contains(field) && !drivers.contains(driver))
            errors.push_back({"spec." + field, fmt::format("means nothing to {}", driver)});
    const auto needs = [&](const std::string& field, bool when) {
        if (when && !spec.contains(field)) errors.push_back({"spec." + field, fmt::format("{} needs it", driver)});
    };
    needs("url", driver == "powerdns" || driver == "externaldns");
    needs("server", driver == "rfc2136");
    needs("keystone", driver == "designate");
    needs("credentials", driver == "powerdns" || driver == "designate" || spec.contains("tsig"));
    needs("tsig", driver == "rfc2136" && spec.contains("credentials"));
    std::size_t at = 0;
    std::set<std::string> seen;
    for (auto& item : spec["zones"].as_array()) {
        const auto here = fmt::format("spec.zones[{}]", at++);
        const auto zone = lowered_name(item.is_string() ? std::string_view(item.get_string()) : std::string_view());
        if (!is_domain(zone, false)) errors.push_back({here, "must be a domain name, such as gslb.example"});
        if (!seen.insert(zone).second) errors.push_back({here, "is listed twice"});
        item = zone;
    }
    if (!is_owner(text_at(spec, "owner"))) errors.push_back({"spec.owner", "must be 1 to 40 of letters, digits, '.', '_' and '-'"});
    co_return verdict(draft, "Publisher", std::move(errors));
}

} // namespace orrery::gslb
