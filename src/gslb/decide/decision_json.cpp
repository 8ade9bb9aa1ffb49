#include "core/json_fields.h"
#include "gslb/decide/decision.h"
#include "gslb/model/migrations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace orrery::gslb {

namespace {

json::array members_json(const std::vector<AnswerMember>& all) {
    json::array out;
    for (const auto& one : all) {
        json::object item{{"member", one.member}, {"pool", one.pool}, {"addresses", to_array(one.addresses.texts())}};
        if (one.weight != 1) item["weight"] = one.weight;
        if (!one.site.empty()) item["site"] = one.site;
        if (!one.rack.empty()) item["rack"] = one.rack;
        out.emplace_back(std::move(item));
    }
    return out;
}

std::vector<AnswerMember> members_from(const json::array& items) {
    std::vector<AnswerMember> out;
    for (const auto& item : items) {
        if (!item.is_object()) continue;
        const auto& given = item.get_object();
        AnswerMember one{.member = text_at(given, "member"),
                         .pool = text_at(given, "pool"),
                         .weight = count_at(given, "weight", 1),
                         .site = text_at(given, "site"),
                         .rack = text_at(given, "rack")};
        for (const auto& address : texts_at(given, "addresses")) std::ignore = one.addresses.add(address);
        out.push_back(std::move(one));
    }
    return out;
}

std::string seconds(std::uint32_t count) { return fmt::format("{}s", count); }

/// In the form of a LoadBalancer's spec, so that one reader reads both; without fields that decisions do not depend on.
json::object spec_json(const LoadBalancerSpec& spec) {
    json::object out{{"fqdn", spec.fqdn}, {"steering", name_of(spec.steering)}, {"answers", name_of(spec.answers)}};
    if (!spec.zone.empty()) out["zone"] = spec.zone;
    json::array pools;
    for (const auto& use : spec.pools) {
        json::object one{{"pool", use.pool}};
        if (use.passive) one["tier"] = "passive";
        if (use.weight != 1) one["weight"] = use.weight;
        pools.emplace_back(std::move(one));
    }
    out["pools"] = std::move(pools);
    if (spec.max_answers != 0) out["max_answers"] = spec.max_answers;
    out["ttl"] = json::object{{"max", seconds(spec.ttl_max)}, {"min", seconds(spec.ttl_min)}};
    json::object all_down{{"answer", name_of(spec.all_down)}};
    if (!spec.fallback.empty()) all_down["addresses"] = to_array(spec.fallback.texts());
    if (!spec.fallback_alias.empty()) all_down["alias"] = spec.fallback_alias;
    out["all_down"] = std::move(all_down);
    if (spec.failback != Failback::automatic) {
        json::object failback{{"mode", name_of(spec.failback)}, {"after", to_text(spec.failback_after)}};
        if (spec.failback_approved) failback["approved_at"] = to_rfc3339(*spec.failback_approved);
        out["failback"] = std::move(failback);
    }
    if (spec.steering == Steering::latency)
        out["latency"] =
            json::object{{"dead_band", to_text(spec.dead_band)}, {"dead_band_share", fmt::format("{}%", spec.dead_band_share)}};
    if (spec.demand != 0) out["demand"] = spec.demand;
    return out;
}

/// Prefixes do not affect a decision. A record keeps them up to this number, to explain later which answer a client got.
constexpr std::size_t max_prefixes = 256;

json::array classes_json(const std::vector<ClientClass>& classes) {
    json::array out;
    std::size_t prefixes = 0;
    for (const auto& one : classes) prefixes += one.prefixes.size();
    for (const auto& one : classes) {
        json::object item{{"name", one.label}};
        if (!one.pools.empty()) item["pools"] = to_array(one.pools);
        if (one.strict) item["strict"] = true;
        if (!one.vantage.empty()) item["vantage"] = one.vantage;
        if (prefixes <= max_prefixes) item["prefixes"] = to_array(one.prefixes);
        out.emplace_back(std::move(item));
    }
    return out;
}

} // namespace

json::object Answer::to_json() const {
    json::object out;
    if (!clients.empty()) out["clients"] = clients;
    out["pools"] = to_array(pools);
    if (!alias.empty())
        out["alias"] = alias;
    else
        out["answers"] = members_json(candidates);
    out["policy"] = name_of(policy);
    if (max_answers != 0) out["max_answers"] = max_answers;
    out["ttl"] = ttl;
    out["panic"] = panic;
    if (candidates.empty() && alias.empty()) out["empty"] = name_of(empty);
    return out;
}

json::object LoadBalancerState::to_json() const {
    json::object out;
    if (!left.empty()) {
        json::object all;
        for (const auto& [pool, one] : left) {
            json::object item{{"since", to_rfc3339(one.since)}};
            if (one.back) item["back"] = to_rfc3339(*one.back);
            all[pool] = std::move(item);
        }
        out["left"] = std::move(all);
    }
    if (!leading.empty()) {
        json::object all;
        for (const auto& [label, pool] : leading) all[label] = pool;
        out["leading"] = std::move(all);
    }
    if (!last_good.empty()) {
        json::object all;
        for (const auto& [label, list] : last_good) all[label] = members_json(list);
        out["last_good"] = std::move(all);
    }
    return out;
}

LoadBalancerState LoadBalancerState::from(const json::object& value) {
    LoadBalancerState out;
    for (const auto& [pool, item] : object_at(value, "left"))
        if (item.is_object())
            out.left[std::string(std::string_view(pool))] = {.since = time_at(item.get_object(), "since").value_or(WallTime{}),
                                                             .back = time_at(item.get_object(), "back")};
    for (const auto& [label, pool] : object_at(value, "leading"))
        if (pool.is_string()) out.leading[std::string(std::string_view(label))] = std::string_view(pool.get_string());
    for (const auto& [label, list] : object_at(value, "last_good"))
        if (list.is_array()) out.last_good[std::string(std::string_view(label))] = members_from(list.get_array());
    return out;
}

json::object Snapshot::to_json() const {
    json::object out{{"name", spec.name}, {"time", to_rfc3339(time)}, {"spec", spec_json(spec)}};
    if (!spec.classes.empty()) out["classes"] = classes_json(spec.classes);
    if (!spec.geo_source.empty()) out["geo_source"] = spec.geo_source;
    json::array all;
    for (const auto& pool : pools) all.emplace_back(pool->to_json());
    out["pools"] = std::move(all);
    if (auto stored = state.to_json(); !stored.empty()) out["state"] = std::move(stored);
    return out;
}

Result<Snapshot> Snapshot::from(const json::object& value) {
    const auto time = time_at(value, "time");
    if (value.contains("rule")) { // of an earlier version
        auto current = value;
        migrate_inputs(current);
        return from(current);
    }
    if (!time || !value.contains("spec") || !value.contains("pools"))
        return Error{Code::invalid, "the record has no inputs to decide from again"};
    Snapshot out;
    out.spec = LoadBalancerSpec::from(text_at(value, "name"), object_at(value, "spec"));
    out.spec.geo_source = text_at(value, "geo_source");
    out.spec.classes.clear();
    for (const auto& item : array_at(value, "classes"))
        if (item.is_object())
            out.spec.classes.push_back({.label = text_at(item.get_object(), "name"),
                                        .pools = texts_at(item.get_object(), "pools"),
                                        .strict = flag_at(item.get_object(), "strict"),
                                        .vantage = text_at(item.get_object(), "vantage"),
                                        .prefixes = texts_at(item.get_object(), "prefixes")});
    for (const auto& item : array_at(value, "pools"))
        if (item.is_object()) out.pools.push_back(std::make_shared<const PoolView>(PoolView::from(item.get_object())));
    out.state = LoadBalancerState::from(object_at(value, "state"));
    out.time = *time;
    return out;
}

json::object Decision::summary() const {
    json::object out{{"condition", name_of(condition)}};
    if (answers.empty()) return out;
    const auto& first = answers.front();
    out["pool"] = fmt::format("{}", fmt::join(first.pools, "+"));
    json::array addresses;
    for (const auto& one : first.candidates)
        for (const auto& text : one.addresses.texts()) addresses.emplace_back(text);
    if (!first.alias.empty()) addresses.emplace_back(first.alias);
    out["answers"] = std::move(addresses);
    out["ttl"] = first.ttl;
    out["panic"] = first.panic;
    return out;
}

json::object Decision::to_json() const {
    auto out = summary();
    json::array all;
    for (const auto& answer : answers) all.emplace_back(answer.to_json());
    out["classes"] = std::move(all);
    return out;
}

} // namespace orrery::gslb
