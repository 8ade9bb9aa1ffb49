#include "gslb/model/validate.h"

#include "core/json_fields.h"
#include "dns/notify.h"
#include "gslb/clients/client_classes.h"
#include "gslb/model/specs.h"
#include "gslb/publish/dns_provider.h"
#include "gslb/serve/zone_records.h"
#include "health/probe_kind.h"
#include "health/probe_spec.h"
#include "resource/object.h"
#include "resource/resources.h"

#include <boost/asio/ip/address.hpp>
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

/// The server sets `override.by` to the actor of the change. An override that has ended already is refused.
void sign_override(const Context& ctx, Draft& draft, Errors& errors) {
    auto* given = draft.after.spec.if_contains("override");
    if (given == nullptr || !given->is_object()) return;
    auto now = given->get_object();
    now.erase("by");
    std::string by = ctx.actor();
    if (draft.before != nullptr) {
        auto before = object_at(draft.before->spec, "override");
        const auto set_by = text_at(before, "by");
        before.erase("by");
        if (before == now && !set_by.empty()) by = set_by;
        if (before == now) {
            now["by"] = by;
            *given = std::move(now);
            return;
        }
    }
    if (const auto until = time_at(now, "until"); until && *until <= draft.after.updated_at)
        errors.push_back({"spec.override.until", fmt::format("has passed: it is {} now", to_rfc3339(draft.after.updated_at))});
    now["by"] = by;
    *given = std::move(now);
}

class LoadBalancerCheck {
public:
    LoadBalancerCheck(Draft& draft, Errors& errors) : draft_(draft), spec_(draft.after.spec), errors_(errors) {}

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
                wrong(here + ".weight", "applies only if spec.steering is spread");
        }
        if (!active) wrong("spec.pools", "at least one pool must be active");
    }

    void steering() {
        const auto how = text_at(spec_, "steering");
        needs("topology", how);
        needs("geo", how);
        needs("latency", how);
        if (how == "geo" && spec_.contains("geo")) geo_rules(spec_["geo"].as_object());
        if (how == "topology") classes(spec_["topology"], "spec.topology");
        if (how == "latency" && spec_.contains("latency")) {
            auto& latency = spec_["latency"].as_object();
            check_amount(latency, "dead_band_share", "spec.latency.dead_band_share", errors_, true);
            classes(latency["clients"], "spec.latency.clients");
        }
    }

    /// A section is present if and only if its steering is selected.
    void needs(const char* section, const std::string& how) {
        const bool there = spec_.contains(section);
        if (how == section && !there) wrong(fmt::format("spec.{}", section), fmt::format("is required by steering {}", section));
        if (how != section && there)
            wrong(fmt::format("spec.{}", section), fmt::format("applies only if spec.steering is {}", section));
    }

    void classes(json::value& list, const std::string& path) {
        if (!list.is_array()) return;
        std::set<std::string> labels, prefixes;
        std::size_t at = 0;
        for (auto& item : list.get_array()) {
            const auto here = fmt::format("{}[{}]", path, at++);
            auto& one = item.as_object();
            std::size_t index = 0;
            for (const auto& text : texts_at(one, "prefixes")) {
                const auto where = fmt::format("{}.prefixes[{}]", here, index++);
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

    void geo_rules(json::object& geo) {
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
            if (!part.empty() && country.empty()) wrong(here + ".subdivision", "applies only with a country");
            std::vector<std::string> fields;
            if (one.contains("continent")) fields.push_back(text_at(one, "continent"));
            if (!country.empty()) fields.push_back(part.empty() ? country : country + "-" + part);
            if (one.contains("asn")) fields.push_back(fmt::format("AS{}", count_at(one, "asn", 0)));
            if (fields.empty()) wrong(here, "needs continent, country or asn");
            if (!one.contains("name")) one["name"] = fmt::format("{}", fmt::join(fields, " "));
            const auto label = text_at(one, "name");
            if (label.starts_with("near ")) wrong(here + ".name", "must not begin with \"near\": those are made by nearest");
            if (!labels.insert(label).second) wrong(here + ".name", "is used twice");
            pools_of(one, here);
        }
    }

    void pools_of(const json::object& one, const std::string& here) {
        std::size_t index = 0;
        for (const auto& pool : texts_at(one, "pools")) {
            const auto where = fmt::format("{}.pools[{}]", here, index++);
            if (!pools_.contains(pool)) wrong(where, fmt::format("{} is not among spec.pools", pool));
        }
    }

    void answers() {
        const auto how = text_at(spec_, "answers");
        if (how == "subset" && !spec_.contains("max_answers")) wrong("spec.max_answers", "is required by subset");
        if (how == "weighted" && spec_.contains("max_answers"))
            wrong("spec.max_answers", "does not apply to weighted, which answers with one address; use weighted-many");
    }

    void times() {
        const auto& ttl = object_at(spec_, "ttl");
        const auto max = duration_at(ttl, "max", {}), min = duration_at(ttl, "min", {});
        if (min > max) wrong("spec.ttl.min", fmt::format("must be at most spec.ttl.max, {}", to_text(max)));
        const auto& failback = object_at(spec_, "failback");
        const auto mode = text_at(failback, "mode");
        if (mode == "delayed" && !failback.contains("after")) wrong("spec.failback.after", "is required by a delayed failback");
        if (mode != "delayed" && failback.contains("after"))
            wrong("spec.failback.after", "applies only if spec.failback.mode is delayed");
    }

    void all_down() {
        const auto& given = object_at(spec_, "all_down");
        const bool addresses = given.contains("addresses"), alias = given.contains("alias");
        if (text_at(given, "answer") != "fallback") {
            if (addresses) wrong("spec.all_down.addresses", "applies only if spec.all_down.answer is fallback");
            if (alias) wrong("spec.all_down.alias", "applies only if spec.all_down.answer is fallback");
            return;
        }
        if (addresses == alias) wrong("spec.all_down", "a fallback needs either addresses or an alias");
        Addresses taken;
        std::size_t at = 0;
        for (const auto& text : texts_at(given, "addresses"))
            if (const auto added = taken.add(text); !added.ok())
                wrong(fmt::format("spec.all_down.addresses[{}]", at++), added.error().message);
        if (!alias) return;
        const auto target = lowered_name(text_at(given, "alias"));
        if (!is_domain(target, false)) wrong("spec.all_down.alias", "must be a domain name");
        // RFC 1034 3.6.2: a CNAME allows no other records, and an apex has its SOA and NS.
        if (text_at(spec_, "fqdn") == text_at(spec_, "zone"))
            wrong("spec.all_down.alias", "the name is the zone apex, which cannot be an alias: set addresses");
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
    LoadBalancerCheck(draft, errors).run();
    co_return verdict(draft, "LoadBalancer", std::move(errors));
}

Task<Unit> prepare_pool(Context ctx, Draft& draft) {
    Errors errors;
    const auto& spec = draft.after.spec;
    check_amount(spec, "min_healthy", "spec.min_healthy", errors);
    const auto& guard = object_at(spec, "guard");
    check_amount(guard, "max_ejections", "spec.guard.max_ejections", errors);
    if (const auto* max = guard.if_contains("max_ejections"))
        if (const auto amount = Amount::parse(*max); amount.ok() && amount->value == 0)
            errors.push_back({"spec.guard.max_ejections", "must be at least 1 or 1%: with 0 no member would ever be withdrawn"});
    const auto& hold_down = object_at(spec, "hold_down");
    if (duration_at(hold_down, "max_hold", std::chrono::minutes(10)) < duration_at(hold_down, "hold", std::chrono::seconds(30)))
        errors.push_back({"spec.hold_down.max_hold", "must be at least spec.hold_down.hold"});
    if (const auto& load = object_at(spec, "load"); !load.empty()) {
        check_amount(load, "step", "spec.load.step", errors, true);
        if (number_at(load, "high", 0) <= number_at(load, "low", 0))
            errors.push_back({"spec.load.high", fmt::format("must be above spec.load.low, {}", number_at(load, "low", 0))});
    }
    sign_override(ctx, draft, errors);
    co_return verdict(draft, "Pool", std::move(errors));
}

namespace {

/// A Source must have the right driver. References check that it exists.
void check_source(const resource::Resources& resources, const json::object& spec, std::string_view driver, const std::string& path,
                  Errors& errors) {
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
            errors.push_back({fmt::format("spec.{}", std::string_view(name)), "does not apply to a Monitor of kind calculated"});
    const auto parts = texts_at(spec, "of");
    if (parts.empty()) errors.push_back({"spec.of", "must list the Monitors of the formula"});
    const bool counted = text_at(spec, "rule") == "at-least";
    if (counted != spec.contains("need"))
        errors.push_back({"spec.need", counted ? "is required by at-least" : "applies only if spec.rule is at-least"});
    if (count_at(spec, "need", 0) > parts.size())
        errors.push_back({"spec.need", fmt::format("is greater than the number of Monitors, {}", parts.size())});
    std::set<std::string> seen;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto here = fmt::format("spec.of[{}]", i);
        if (!seen.insert(parts[i]).second) errors.push_back({here, "is listed twice"});
        const auto part = draft.resources->get(*draft.resources->registry().find("Monitor"), parts[i]);
        if (parts[i] == draft.after.name || (part.ok() && is_calculated(part->spec)))
            errors.push_back({here, "is a calculated Monitor itself"});
    }
}

} // namespace

Task<Unit> prepare_member(Context ctx, Draft& draft) {
    Errors errors;
    const auto& spec = draft.after.spec;
    int sources = 0;
    for (const auto* field : {"addresses", "node", "instance", "balancer"}) sources += spec.contains(field) ? 1 : 0;
    if (sources != 1) errors.push_back({"spec", "needs exactly one of addresses, node, instance and balancer"});
    check_source(*draft.resources, object_at(spec, "balancer"), "octavia", "spec.balancer.source", errors);
    Addresses taken;
    std::size_t at = 0;
    for (const auto& text : texts_at(spec, "addresses")) {
        const auto here = fmt::format("spec.addresses[{}]", at++);
        if (const auto added = taken.add(text); !added.ok()) errors.push_back({here, added.error().message});
    }
    sign_override(ctx, draft, errors);
    co_return verdict(draft, "Member", std::move(errors));
}

Task<Unit> prepare_monitor(Context, Draft& draft) {
    Errors errors;
    auto& spec = draft.after.spec;
    if (is_calculated(spec)) {
        check_calculated(draft, errors);
        co_return verdict(draft, "Monitor", std::move(errors));
    }
    // Sources that have thresholds of their own count at once.
    const auto kind = health::probe_kind_of(spec);
    const bool pushed = kind == health::ProbeKind::push, judged = pushed || kind == health::ProbeKind::octavia;
    if (!spec.contains("interval")) spec["interval"] = pushed ? "1s" : "10s";
    if (!spec.contains("rise")) spec["rise"] = judged ? 1 : 2;
    if (!spec.contains("fall")) spec["fall"] = judged ? 1 : 3;
    if (!spec.contains("forgive")) spec["forgive"] = 1;
    if (pushed && !spec.contains("ttl")) spec["ttl"] = "1m";
    if (kind && health::is_passive(spec) && !pushed)
        check_source(*draft.resources, spec, health::name_of(*kind), "spec.source", errors);
    if (health::is_passive(spec) && spec.contains("quorum"))
        errors.push_back(
            {"spec.quorum", fmt::format("does not apply to {}: only this server queries the source", text_at(spec, "kind"))});
    if (pushed && spec.contains("timeout")) errors.push_back({"spec.timeout", "does not apply to push: see spec.ttl"});
    for (auto& error : health::validate_probe(spec, "spec", {monitor_schedule_fields.begin(), monitor_schedule_fields.end()}))
        errors.push_back(std::move(error));
    const auto interval = duration_at(spec, "interval", std::chrono::seconds(10));
    const auto fast = duration_at(spec, "fast_interval", interval), down = duration_at(spec, "down_interval", interval);
    if (fast > interval)
        errors.push_back({"spec.fast_interval", fmt::format("must be at most the interval, {}", to_text(interval))});
    if (down < interval)
        errors.push_back({"spec.down_interval", fmt::format("must be at least the interval, {}", to_text(interval))});
    if (spec.contains("timeout") && duration_at(spec, "timeout", {}) > fast)
        errors.push_back({"spec.timeout", fast == interval ? fmt::format("must be at most the interval, {}", to_text(interval))
                                                           : fmt::format("must be at most spec.fast_interval, {}", to_text(fast))});
    co_return verdict(draft, "Monitor", std::move(errors));
}

namespace {

bool is_address_text(const std::string& text) {
    boost::system::error_code failed;
    std::ignore = boost::asio::ip::make_address(text, failed);
    return !failed;
}

} // namespace

Task<Unit> prepare_zone(Context, Draft& draft) {
    Errors errors;
    auto& spec = draft.after.spec;
    const auto origin = lowered_name(text_at(spec, "origin"));
    spec["origin"] = origin;
    if (!is_domain(origin, false)) errors.push_back({"spec.origin", "must be a domain name, such as gslb.example"});
    std::size_t at = 0;
    for (const auto& server : texts_at(spec, "nameservers"))
        if (const auto here = at++; !is_domain(lowered_name(server), false) || is_address_text(server))
            errors.push_back({fmt::format("spec.nameservers[{}]", here),
                              "must be a host name; its address is a record of the zone that it is in"});
    if (const auto contact = text_at(spec, "contact"); !contact.empty()) {
        const auto split = contact.find('@');
        if (split == std::string::npos || split == 0 || !is_domain(lowered_name(contact.substr(split + 1)), false))
            errors.push_back({"spec.contact", "must be a mail address such as hostmaster@example.org"});
    }
    if (const auto secret = text_at(spec, "signing_key");
        !secret.empty() && (draft.before == nullptr || text_at(draft.before->spec, "signing_key") != secret))
        if (const auto key = signing_key_of(*draft.resources, secret); !key.ok() && key.error().code != Code::not_found)
            errors.push_back({"spec.signing_key", key.error().message});
    resource::ListQuery query;
    query.fields = {{"origin", origin}};
    if (const auto page = draft.resources->list(*draft.resources->registry().find("Zone"), query); page.ok())
        for (const auto& record : page->records)
            if (const auto other = resource::from_stored(*record); other.ok() && other->name != draft.after.name)
                errors.push_back({"spec.origin", fmt::format("is already the origin of Zone {}", other->name)});
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
    // The fields that each driver uses.
    const std::vector<std::pair<std::string, std::set<std::string>>> fields{{"url", {"powerdns", "designate", "externaldns"}},
                                                                            {"server", {"rfc2136"}},
                                                                            {"credentials", {"powerdns", "designate", "rfc2136"}},
                                                                            {"keystone", {"designate"}},
                                                                            {"tsig", {"rfc2136"}}};
    for (const auto& [field, drivers] : fields)
        if (spec.contains(field) && !drivers.contains(driver))
            errors.push_back({"spec." + field, fmt::format("does not apply to {}", driver)});
    const auto needs = [&](const std::string& field, bool when) {
        if (when && !spec.contains(field)) errors.push_back({"spec." + field, fmt::format("is required by driver {}", driver)});
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
    at = 0;
    for (const auto& server : texts_at(spec, "check_servers"))
        if (const auto here = at++; !dns::Notifier::parse(server).ok())
            errors.push_back({fmt::format("spec.check_servers[{}]", here),
                              "must be an address, with a port if it is not 53: 192.0.2.53, [2001:db8::53]:5353"});
    if (!is_owner(text_at(spec, "owner"))) errors.push_back({"spec.owner", "must be 1 to 40 of letters, digits, '.', '_' and '-'"});
    co_return verdict(draft, "Publisher", std::move(errors));
}

} // namespace orrery::gslb
