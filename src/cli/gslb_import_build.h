#pragma once

#include "cli/gslb_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

/// Private to the importers: resources in the making.
namespace orrery::cli {

inline std::string lowered(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return out;
}
/// Without the last dot, in lower case.
inline std::string plain_name(std::string_view name) {
    if (name.ends_with('.')) name.remove_suffix(1);
    return lowered(name);
}
/// What may name a resource.
inline std::string resource_name(std::string_view text) {
    std::string out;
    for (const char c : lowered(text)) {
        const bool fits = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (fits)
            out += c;
        else if (!out.empty() && out.back() != '-')
            out += '-';
    }
    while (!out.empty() && out.back() == '-') out.pop_back();
    return out.empty() ? "x" : out.substr(0, 200);
}

/// Collects resources by kind; equal ones are one, and others of the same name get a number.
class Collected {
public:
    /// The name it has got.
    std::string add(const std::string& kind, std::string_view wanted, json::object spec) {
        auto name = resource_name(wanted);
        for (int at = 2; all_.contains({kind, name}); ++at) {
            if (all_.at({kind, name}) == spec) return name;
            name = fmt::format("{}-{}", resource_name(wanted), at);
        }
        all_.emplace(std::pair(kind, name), std::move(spec));
        order_.emplace_back(kind, name);
        return name;
    }
    void leave_out(std::string words) { left_out_.push_back(std::move(words)); }

    Imported take() {
        Imported out;
        out.left_out = std::move(left_out_);
        for (const auto* kind : {"Zone", "Monitor", "Pool", "Member", "LoadBalancer"})
            for (const auto& key : order_)
                if (key.first == kind) out.documents.push_back({{"kind", key.first}, {"name", key.second}, {"spec", all_.at(key)}});
        return out;
    }

private:
    std::map<std::pair<std::string, std::string>, json::object> all_;
    std::vector<std::pair<std::string, std::string>> order_;
    std::vector<std::string> left_out_;
};

/// A pool with a member for each address; IPv4 and IPv6 addresses that stand at the same place of their lists are one member's.
struct PoolDraft {
    std::string name;
    std::vector<std::string> v4, v6;
    std::vector<int> weights; ///< by place; empty: all the same
    std::vector<std::string> monitors;
    json::value min_healthy;

    std::string add_to(Collected& to) const {
        json::object spec;
        if (!monitors.empty()) spec["monitors"] = json::array(monitors.begin(), monitors.end());
        if (!min_healthy.is_null()) spec["min_healthy"] = min_healthy;
        const auto pool = to.add("Pool", name, std::move(spec));
        for (std::size_t at = 0; at < std::max(v4.size(), v6.size()); ++at) {
            json::array addresses;
            if (at < v4.size()) addresses.emplace_back(v4[at]);
            if (at < v6.size()) addresses.emplace_back(v6[at]);
            json::object member{{"pool", pool}, {"addresses", std::move(addresses)}};
            if (at < weights.size()) member["weight"] = weights[at];
            to.add("Member", fmt::format("{}-{}", pool, at + 1), std::move(member));
        }
        return pool;
    }
    void add_address(std::string_view address) { (address.find(':') == std::string_view::npos ? v4 : v6).emplace_back(address); }
};

/// Seconds of a TTL as zone files have it: "300", "5m", "1h30m"; a week at most.
std::int64_t seconds_of(std::string_view text, std::int64_t otherwise);

/// The Zone of a zone file: its records but those of the types (in lower case) that are balanced, the SOA, and the apex's NS, which
/// become the nameservers.
void add_zone_of(Collected& to, std::string_view text, std::string_view zone, const std::set<std::string_view>& dynamic);

} // namespace orrery::cli
