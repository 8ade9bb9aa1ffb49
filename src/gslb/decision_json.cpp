#include "gslb/decide.h"
#include "gslb/read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace orrery::gslb {

namespace {

json::array servings_json(const std::vector<Serving>& all) {
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

std::vector<Serving> servings(const json::array& items) {
    std::vector<Serving> out;
    for (const auto& item : items) {
        if (!item.is_object()) continue;
        const auto& given = item.get_object();
        Serving one{.member = text_at(given, "member"),
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

/// In the shape of a LoadBalancer's spec, so that one reader reads both; without what decisions do not depend on.
json::object rule_json(const Rule& rule) {
    json::object out{{"fqdn", rule.fqdn}, {"steering", name_of(rule.steering)}, {"answers", name_of(rule.answers)}};
    if (!rule.zone.empty()) out["zone"] = rule.zone;
    json::array pools;
    for (const auto& use : rule.pools) {
        json::object one{{"pool", use.pool}};
        if (use.passive) one["tier"] = "passive";
        if (use.weight != 1) one["weight"] = use.weight;
        pools.emplace_back(std::move(one));
    }
    out["pools"] = std::move(pools);
    if (rule.max_answers != 0) out["max_answers"] = rule.max_answers;
    out["ttl"] = json::object{{"max", seconds(rule.ttl_max)}, {"min", seconds(rule.ttl_min)}};
    json::object all_down{{"answer", name_of(rule.all_down)}};
    if (!rule.fallback.empty()) all_down["addresses"] = to_array(rule.fallback.texts());
    if (!rule.fallback_alias.empty()) all_down["alias"] = rule.fallback_alias;
    out["all_down"] = std::move(all_down);
    if (rule.failback != Failback::automatic) {
        json::object failback{{"mode", name_of(rule.failback)}, {"after", to_text(rule.failback_after)}};
        if (rule.failback_approved) failback["approved_at"] = to_rfc3339(*rule.failback_approved);
        out["failback"] = std::move(failback);
    }
    if (rule.steering == Steering::latency)
        out["latency"] =
            json::object{{"dead_band", to_text(rule.dead_band)}, {"dead_band_share", fmt::format("{}%", rule.dead_band_share)}};
    if (rule.demand != 0) out["demand"] = rule.demand;
    return out;
}

/// Prefixes are no part of a decision; they are kept where they are few, to say what a client got.
constexpr std::size_t most_prefixes = 256;

json::array classes_json(const std::vector<ClientClass>& classes) {
    json::array out;
    std::size_t prefixes = 0;
    for (const auto& one : classes) prefixes += one.prefixes.size();
    for (const auto& one : classes) {
        json::object item{{"name", one.label}};
        if (!one.pools.empty()) item["pools"] = to_array(one.pools);
        if (one.strict) item["strict"] = true;
        if (!one.vantage.empty()) item["vantage"] = one.vantage;
        if (prefixes <= most_prefixes) item["prefixes"] = to_array(one.prefixes);
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
        out["answers"] = servings_json(candidates);
    out["picking"] = name_of(picking);
    if (most != 0) out["most"] = most;
    out["ttl"] = ttl;
    out["panic"] = panic;
    if (candidates.empty() && alias.empty()) out["empty"] = name_of(empty);
    return out;
}

json::object Memory::to_json() const {
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
        for (const auto& [label, list] : last_good) all[label] = servings_json(list);
        out["last_good"] = std::move(all);
    }
    return out;
}

Memory Memory::from(const json::object& value) {
    Memory out;
    for (const auto& [pool, item] : object_at(value, "left"))
        if (item.is_object())
            out.left[std::string(std::string_view(pool))] = {.since = time_at(item.get_object(), "since").value_or(WallTime{}),
                                                             .back = time_at(item.get_object(), "back")};
    for (const auto& [label, pool] : object_at(value, "leading"))
        if (pool.is_string()) out.leading[std::string(std::string_view(label))] = std::string_view(pool.get_string());
    for (const auto& [label, list] : object_at(value, "last_good"))
        if (list.is_array()) out.last_good[std::string(std::string_view(label))] = servings(list.get_array());
    return out;
}

json::object Snapshot::to_json() const {
    json::object out{{"name", rule.name}, {"time", to_rfc3339(time)}, {"rule", rule_json(rule)}};
    if (!rule.classes.empty()) out["classes"] = classes_json(rule.classes);
    if (!rule.places.empty()) out["places"] = rule.places;
    json::array all;
    for (const auto& pool : pools) all.emplace_back(pool->to_json());
    out["pools"] = std::move(all);
    if (auto remembered = memory.to_json(); !remembered.empty()) out["memory"] = std::move(remembered);
    return out;
}

Result<Snapshot> Snapshot::from(const json::object& value) {
    const auto time = time_at(value, "time");
    if (!time || !value.contains("rule") || !value.contains("pools"))
        return Error{Code::invalid, "this is no snapshot of what a name was decided from"};
    Snapshot out;
    out.rule = Rule::from(text_at(value, "name"), object_at(value, "rule"));
    out.rule.places = text_at(value, "places");
    out.rule.classes.clear();
    for (const auto& item : array_at(value, "classes"))
        if (item.is_object())
            out.rule.classes.push_back({.label = text_at(item.get_object(), "name"),
                                        .pools = texts_at(item.get_object(), "pools"),
                                        .strict = flag_at(item.get_object(), "strict"),
                                        .vantage = text_at(item.get_object(), "vantage"),
                                        .prefixes = texts_at(item.get_object(), "prefixes")});
    for (const auto& item : array_at(value, "pools"))
        if (item.is_object()) out.pools.push_back(std::make_shared<const PoolView>(PoolView::from(item.get_object())));
    out.memory = Memory::from(object_at(value, "memory"));
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
