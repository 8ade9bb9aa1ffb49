#include "core/json_fields.h"
#include "gslb/decide/pool_evaluation.h"

#include <cstdlib>

namespace orrery::gslb {

json::object PoolState::to_json() const {
    json::object out;
    if (!withdrawn.empty()) out["withdrawn"] = json::array(withdrawn.begin(), withdrawn.end());
    if (!recently.empty()) {
        json::array times;
        for (const auto at : recently) times.emplace_back(to_rfc3339(at));
        out["recently"] = std::move(times);
    }
    if (!load.empty()) {
        json::object all;
        for (const auto& [name, one] : load)
            all[name] = json::object{{"percent", one.percent}, {"changed", to_rfc3339(one.changed)}, {"load", one.load}};
        out["load"] = std::move(all);
    }
    if (!flaps.empty()) {
        json::object all;
        for (const auto& [name, flap] : flaps) {
            json::array times;
            for (const auto at : flap.withdrawals) times.emplace_back(to_rfc3339(at));
            json::object one{{"withdrawals", std::move(times)}};
            if (flap.held_until) one["held_until"] = to_rfc3339(*flap.held_until);
            all[name] = std::move(one);
        }
        out["flaps"] = std::move(all);
    }
    return out;
}

PoolState PoolState::from(const json::object& value) {
    PoolState out;
    for (const auto& name : texts_at(value, "withdrawn")) out.withdrawn.insert(name);
    for (const auto& text : texts_at(value, "recently"))
        if (const auto at = from_rfc3339(text); at.ok()) out.recently.push_back(*at);
    for (const auto& [name, one] : object_at(value, "load"))
        if (one.is_object())
            out.load[std::string(std::string_view(name))] = {.percent = count_at(one.get_object(), "percent", 100, 100),
                                                             .changed = time_at(one.get_object(), "changed").value_or(WallTime{}),
                                                             .load = number_at(one.get_object(), "load", 0)};
    for (const auto& [name, one] : object_at(value, "flaps")) {
        if (!one.is_object()) continue;
        Flap flap{.withdrawals = {}, .held_until = time_at(one.get_object(), "held_until")};
        for (const auto& text : texts_at(one.get_object(), "withdrawals"))
            if (const auto at = from_rfc3339(text); at.ok()) flap.withdrawals.push_back(*at);
        if (!flap.withdrawals.empty()) out.flaps[std::string(std::string_view(name))] = std::move(flap);
    }
    return out;
}

json::object Withheld::to_json() const {
    json::object out{{"cause", name_of(cause)}, {"about", about}, {"message", message}};
    if (until) out["until"] = to_rfc3339(*until);
    return out;
}

// Default values are omitted: every decision record holds this object.
json::object PoolView::to_json() const {
    json::object out{{"name", name}, {"min_healthy", min_healthy.text()}};
    if (location) out["location"] = json::array{location->latitude, location->longitude};
    json::array all;
    for (const auto& member : members) {
        json::object one{{"name", member.name}, {"addresses", to_array(member.addresses.texts())}};
        if (member.weight != 1) one["weight"] = member.weight;
        if (member.load != 100) one["load"] = member.load;
        if (!member.site.empty()) one["site"] = member.site;
        if (!member.rack.empty()) one["rack"] = member.rack;
        if (member.capacity != 0) one["capacity"] = member.capacity;
        if (!member.healthy) one["healthy"] = false;
        if (member.held_in) one["held_in"] = true;
        if (member.drained) one["drained"] = true;
        if (member.forced) one["forced"] = true;
        if (!member.message.empty()) one["message"] = member.message;
        if (member.until_change) one["until_change"] = to_text(*member.until_change);
        all.emplace_back(std::move(one));
    }
    out["members"] = std::move(all);
    if (!rtt.empty()) {
        json::object measured;
        for (const auto& [vantage, ms] : rtt) measured[vantage] = ms;
        out["rtt"] = std::move(measured);
    }
    return out;
}

PoolView PoolView::from(const json::object& value) {
    PoolView out;
    out.name = text_at(value, "name");
    if (const auto* amount = value.if_contains("min_healthy")) {
        auto text = text_at(value, "min_healthy");
        if (text.ends_with('%'))
            out.min_healthy = Amount::parse(*amount).value_or({});
        else
            out.min_healthy = {.share = false, .value = static_cast<std::uint32_t>(std::strtoul(text.c_str(), nullptr, 10))};
    }
    if (const auto& where = array_at(value, "location"); where.size() == 2)
        out.location = PoolSpec::Location{where[0].to_number<double>(), where[1].to_number<double>()};
    for (const auto& item : array_at(value, "members")) {
        if (!item.is_object()) continue;
        const auto& given = item.get_object();
        MemberView one{.name = text_at(given, "name"),
                       .weight = count_at(given, "weight", 1),
                       .load = count_at(given, "load", 100),
                       .site = text_at(given, "site"),
                       .rack = text_at(given, "rack"),
                       .capacity = number_at(given, "capacity", 0),
                       .healthy = flag_at(given, "healthy", true),
                       .held_in = flag_at(given, "held_in"),
                       .drained = flag_at(given, "drained"),
                       .forced = flag_at(given, "forced"),
                       .message = text_at(given, "message")};
        for (const auto& address : texts_at(given, "addresses")) std::ignore = one.addresses.add(address);
        if (given.contains("until_change")) one.until_change = duration_at(given, "until_change", Duration{});
        out.members.push_back(std::move(one));
    }
    for (const auto& [vantage, ms] : object_at(value, "rtt"))
        out.rtt.emplace(std::string(std::string_view(vantage)), ms.to_number<double>());
    return out;
}

} // namespace orrery::gslb
