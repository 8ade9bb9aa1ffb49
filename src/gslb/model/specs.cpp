#include "gslb/model/specs.h"

#include "core/json_fields.h"
#include "core/truncate.h"
#include "health/probe_kind.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::gslb {

namespace {

template <class E, std::size_t N>
E named(std::string_view text, const std::array<std::pair<E, std::string_view>, N>& names, E fallback) {
    for (const auto& [value, name] : names)
        if (name == text) return value;
    return fallback;
}
template <class E, std::size_t N> std::string_view text_of(E value, const std::array<std::pair<E, std::string_view>, N>& names) {
    for (const auto& [known, name] : names)
        if (known == value) return name;
    return names.front().second;
}

constexpr std::array<std::pair<Steering, std::string_view>, 5> steerings{{{Steering::failover, "failover"},
                                                                          {Steering::spread, "spread"},
                                                                          {Steering::topology, "topology"},
                                                                          {Steering::geo, "geo"},
                                                                          {Steering::latency, "latency"}}};
constexpr std::array<std::pair<Answers, std::string_view>, 7> policies{{{Answers::all, "all"},
                                                                        {Answers::round_robin, "round-robin"},
                                                                        {Answers::weighted, "weighted"},
                                                                        {Answers::weighted_many, "weighted-many"},
                                                                        {Answers::subset, "subset"},
                                                                        {Answers::sticky, "sticky"},
                                                                        {Answers::sticky_by_name, "sticky-by-name"}}};
constexpr std::array<std::pair<AllDown, std::string_view>, 7> all_downs{{{AllDown::all, "all"},
                                                                         {AllDown::healthy, "healthy"},
                                                                         {AllDown::last_good, "last-good"},
                                                                         {AllDown::fallback, "fallback"},
                                                                         {AllDown::nodata, "nodata"},
                                                                         {AllDown::servfail, "servfail"},
                                                                         {AllDown::refuse, "refuse"}}};
constexpr std::array<std::pair<Failback, std::string_view>, 3> failbacks{
    {{Failback::automatic, "auto"}, {Failback::delayed, "delayed"}, {Failback::manual, "manual"}}};
constexpr std::array<std::pair<Override::Action, std::string_view>, 4> overrides{{{Override::Action::none, ""},
                                                                                  {Override::Action::up, "up"},
                                                                                  {Override::Action::down, "down"},
                                                                                  {Override::Action::drain, "drain"}}};

Override override_of(const json::object& spec) {
    const auto& given = object_at(spec, "override");
    return {.action = named(text_at(given, "state"), overrides, Override::Action::none),
            .reason = text_at(given, "reason"),
            .by = text_at(given, "by"),
            .until = time_at(given, "until")};
}

std::uint32_t seconds_at(const json::object& object, std::string_view key, std::uint32_t fallback) {
    const auto given = std::chrono::duration_cast<std::chrono::seconds>(duration_at(object, key, std::chrono::seconds(fallback)));
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(given.count(), 0, 7 * 86400));
}

std::uint32_t percent_at(const json::object& object, std::string_view key, std::uint32_t fallback) {
    const auto* value = object.if_contains(key);
    if (value == nullptr) return fallback;
    const auto amount = Amount::parse(*value);
    return amount.ok() && amount->share ? amount->value : fallback;
}

Amount amount_at(const json::object& object, std::string_view key, Amount fallback) {
    const auto* value = object.if_contains(key);
    return value == nullptr ? fallback : Amount::parse(*value).value_or(fallback);
}

} // namespace

std::string_view name_of(Override::Action action) {
    for (const auto& [value, name] : overrides)
        if (value == action) return name.empty() ? "none" : name;
    return "none";
}
std::string_view name_of(Steering steering) { return text_of(steering, steerings); }
std::string_view name_of(Answers answers) { return text_of(answers, policies); }
std::string_view name_of(AllDown all_down) { return text_of(all_down, all_downs); }
std::string_view name_of(Failback failback) { return text_of(failback, failbacks); }

Result<Amount> Amount::parse(const json::value& value) {
    const Error wrong{Code::invalid, "must be a share such as 50%, or a whole number",
                      "write a share such as 50%, or a whole number"};
    if (value.is_int64()) {
        if (value.get_int64() < 0 || value.get_int64() > 1'000'000) return wrong;
        return Amount{.share = false, .value = static_cast<std::uint32_t>(value.get_int64())};
    }
    if (!value.is_string()) return wrong;
    std::string_view text = value.get_string();
    if (!text.ends_with('%')) return wrong;
    text.remove_suffix(1);
    Amount out;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out.value);
    if (error != std::errc{} || end != text.data() + text.size() || out.value > 100) return wrong;
    return out;
}

std::string Amount::text() const { return share ? fmt::format("{}%", value) : std::to_string(value); }

namespace {

/// Why an address can never be a member's; empty: it can. Loopback can: everything may run on one host.
std::string_view not_reachable(const boost::asio::ip::address& address) {
    if (address.is_unspecified()) return "the unspecified address";
    if (address.is_multicast()) return "a multicast address";
    if (address.is_v4()) return address.to_v4() == boost::asio::ip::address_v4::broadcast() ? "the broadcast address" : "";
    if (address.to_v6().is_v4_mapped()) return "an IPv4 address mapped into IPv6";
    if (address.to_v6().is_link_local()) return "a link-local address";
    return {};
}

} // namespace

Result<Unit> Addresses::add(std::string_view text) {
    boost::system::error_code failed;
    const auto address = boost::asio::ip::make_address(std::string(text), failed);
    if (failed || text.find('%') != std::string_view::npos)
        return Error{Code::invalid, fmt::format("\"{}\" is no IP address", truncate(text, 64))};
    if (const auto reason = not_reachable(address); !reason.empty())
        return Error{Code::invalid, fmt::format("{} is {}, which no client can connect to", text, reason),
                     "give the address that clients are to use"};
    if (address.is_v4() ? v4.has_value() : v6.has_value())
        return Error{Code::invalid, fmt::format("{} is the second address of its family", text),
                     "a member has one IPv4 and one IPv6 address: make a second member of the other"};
    if (address.is_v4())
        v4 = address.to_v4().to_bytes();
    else
        v6 = address.to_v6().to_bytes();
    return Unit{};
}

std::vector<std::string> Addresses::texts() const {
    std::vector<std::string> out;
    if (v4) out.push_back(boost::asio::ip::address_v4(*v4).to_string());
    if (v6) out.push_back(boost::asio::ip::address_v6(*v6).to_string());
    return out;
}

MemberSpec MemberSpec::from(std::string name, const json::object& spec) {
    MemberSpec out;
    out.name = std::move(name);
    out.pool = text_at(spec, "pool");
    for (const auto& address : texts_at(spec, "addresses")) std::ignore = out.addresses.add(address);
    out.node = text_at(spec, "node");
    out.instance = text_at(spec, "instance");
    out.port = static_cast<std::uint16_t>(count_at(spec, "port", 0, 65535));
    out.weight = count_at(spec, "weight", 1, max_weight);
    out.site = text_at(spec, "site");
    out.rack = text_at(spec, "rack");
    out.capacity = number_at(spec, "capacity", 0);
    out.monitors = texts_at(spec, "monitors");
    if (const auto& balancer = object_at(spec, "balancer"); !balancer.empty())
        out.balancer = {{"kind", "octavia"},
                        {"source", text_at(balancer, "source")},
                        {"id", text_at(balancer, "id")},
                        {"interval", text_at(balancer, "interval")},
                        {"rise", 1},
                        {"fall", 1}};
    out.override_ = override_of(spec);
    return out;
}

PoolSpec PoolSpec::from(std::string name, const json::object& spec) {
    PoolSpec out;
    out.name = std::move(name);
    out.site = text_at(spec, "site");
    if (const auto& where = object_at(spec, "location"); where.contains("latitude") && where.contains("longitude"))
        out.location = Location{number_at(where, "latitude", 0), number_at(where, "longitude", 0)};
    out.min_healthy = amount_at(spec, "min_healthy", {});
    out.monitors = texts_at(spec, "monitors");
    out.unknown_is_up = text_at(spec, "on_unknown") != "down";
    if (const auto& guard = object_at(spec, "guard"); !guard.empty())
        out.guard = Guard{.max_ejections = amount_at(guard, "max_ejections", {}),
                          .window = duration_at(guard, "window", std::chrono::minutes(1))};
    if (spec.contains("load")) {
        const auto& load = object_at(spec, "load");
        out.load = Load{.low = number_at(load, "low", 0),
                        .high = number_at(load, "high", 0),
                        .step = percent_at(load, "step", 20),
                        .interval = duration_at(load, "interval", std::chrono::seconds(30))};
    }
    if (spec.contains("hold_down")) {
        const auto& given = object_at(spec, "hold_down");
        HoldDown rule;
        rule.changes = std::max<std::uint32_t>(1, count_at(given, "changes", rule.changes, 100));
        rule.window = duration_at(given, "window", rule.window);
        rule.hold = duration_at(given, "hold", rule.hold);
        rule.max_hold = std::max(rule.hold, duration_at(given, "max_hold", rule.max_hold));
        out.hold_down = rule;
    }
    out.override_ = override_of(spec);
    return out;
}

bool is_calculated(const json::object& monitor_spec) { return text_at(monitor_spec, "kind") == "calculated"; }

MonitorSpec MonitorSpec::from(std::string name, const json::object& spec) {
    MonitorSpec out;
    out.name = std::move(name);
    out.interval = duration_at(spec, "interval", out.interval);
    out.fast_interval = duration_at(spec, "fast_interval", {});
    out.down_interval = duration_at(spec, "down_interval", {});
    out.timeout = duration_at(spec, "timeout", std::min<Duration>(out.timeout, out.confirm_interval()));
    out.rise = static_cast<int>(count_at(spec, "rise", 2, 100));
    out.fall = static_cast<int>(count_at(spec, "fall", 3, 100));
    // A pushed status is valid for its TTL; only after that does a missing one count as a failure.
    if (health::probe_kind_of(spec) == health::ProbeKind::push) out.timeout = duration_at(spec, "ttl", std::chrono::minutes(1));
    return out;
}

LoadBalancerSpec LoadBalancerSpec::from(std::string name, const json::object& spec) {
    LoadBalancerSpec out;
    out.name = std::move(name);
    out.fqdn = lowered_name(text_at(spec, "fqdn"));
    out.zone = lowered_name(text_at(spec, "zone"));
    for (const auto& item : array_at(spec, "pools"))
        if (item.is_object())
            out.pools.push_back({.pool = text_at(item.get_object(), "pool"),
                                 .passive = text_at(item.get_object(), "tier") == "passive",
                                 .weight = count_at(item.get_object(), "weight", 1, max_weight)});
    out.steering = named(text_at(spec, "steering"), steerings, Steering::failover);
    out.answers = named(text_at(spec, "answers"), policies, Answers::all);
    out.max_answers = count_at(spec, "max_answers", 0, 1000);
    if ((out.answers == Answers::sticky || out.answers == Answers::sticky_by_name) && out.max_answers == 0) out.max_answers = 1;
    const auto& ttl = object_at(spec, "ttl");
    out.ttl_max = seconds_at(ttl, "max", 30);
    out.ttl_min = std::min(seconds_at(ttl, "min", out.ttl_max / 2), out.ttl_max);
    const auto& all_down = object_at(spec, "all_down");
    out.all_down = named(text_at(all_down, "answer"), all_downs, AllDown::all);
    for (const auto& address : texts_at(all_down, "addresses")) std::ignore = out.fallback.add(address);
    out.fallback_alias = lowered_name(text_at(all_down, "alias"));
    const auto& failback = object_at(spec, "failback");
    out.failback = named(text_at(failback, "mode"), failbacks, Failback::automatic);
    out.failback_after = duration_at(failback, "after", out.failback_after);
    out.failback_approved = time_at(failback, "approved_at");
    const auto& latency = object_at(spec, "latency");
    out.dead_band = duration_at(latency, "dead_band", out.dead_band);
    out.dead_band_share = percent_at(latency, "dead_band_share", out.dead_band_share);
    const auto take_classes = [&out](const json::array& items) {
        for (const auto& item : items) {
            if (!item.is_object()) continue;
            const auto& given = item.get_object();
            ClientClass one{.label = text_at(given, "name"),
                            .pools = texts_at(given, "pools"),
                            .strict = flag_at(given, "strict"),
                            .vantage = text_at(given, "vantage"),
                            .prefixes = texts_at(given, "prefixes")};
            out.classes.push_back(std::move(one));
        }
    };
    if (out.steering == Steering::topology) take_classes(array_at(spec, "topology"));
    if (out.steering == Steering::latency) take_classes(array_at(latency, "clients"));
    const auto& geo = object_at(spec, "geo");
    for (const auto& item : array_at(geo, "rules")) {
        if (!item.is_object()) continue;
        const auto& given = item.get_object();
        GeoRule one{.continent = text_at(given, "continent"),
                    .country = text_at(given, "country"),
                    .subdivision = text_at(given, "subdivision"),
                    .label = text_at(given, "name"),
                    .pools = texts_at(given, "pools"),
                    .strict = flag_at(given, "strict")};
        if (given.contains("asn")) one.asn = count_at(given, "asn", 0);
        out.geo.push_back(std::move(one));
    }
    out.nearest = flag_at(geo, "nearest");
    if (spec.contains("failover_within")) out.failover_within = duration_at(spec, "failover_within", Duration{});
    out.demand = number_at(spec, "demand", 0);
    return out;
}

std::string lowered_name(std::string_view fqdn) {
    if (fqdn.ends_with('.')) fqdn.remove_suffix(1);
    std::string out(fqdn);
    for (auto& c : out)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    return out;
}

} // namespace orrery::gslb
