#include "gslb/clients/geo_classes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <unordered_map>

namespace orrery::gslb {

namespace {

constexpr std::size_t max_nearest = 3, max_orders = 1000;
/// Cached classes of entry pairs: one pair occurs in thousands of networks.
constexpr std::size_t max_known = 1U << 20U;

bool fits(const GeoRule& rule, const GeoLocation& place) {
    return (rule.continent.empty() || rule.continent == place.continent) &&
           (rule.country.empty() || rule.country == place.country) &&
           (rule.subdivision.empty() || rule.subdivision == place.subdivision) && (!rule.asn || rule.asn == place.asn);
}

/// Fills fields that one database lacks from the other.
void add_to(GeoLocation& all, GeoLocation one) {
    if (all.continent.empty()) all.continent = std::move(one.continent);
    if (all.country.empty()) {
        all.country = std::move(one.country);
        all.subdivision = std::move(one.subdivision);
    }
    if (!all.asn) all.asn = one.asn;
    if (!all.location) all.location = one.location;
}

class GeoClassBuilder {
public:
    GeoClassBuilder(const GeoQuery& query, std::span<const MaxmindDatabase* const> databases, std::size_t nearest)
        : query_(query), databases_(databases.first(std::min(databases.size(), max_geo_databases))), nearest_(nearest) {}

    /// False if there are too many orders of pools.
    bool run(GeoClasses& out) {
        dns::ClientTable table{walk(false), walk(true)};
        if (orders_.size() > max_orders) return false;
        std::vector<std::uint32_t> index_of(query_.rules.size() + 1 + orders_.size(), 0);
        for (const auto& rule : query_.rules) {
            index_of[out.classes.size() + 1] = static_cast<std::uint32_t>(out.classes.size() + 1);
            out.classes.push_back({.label = rule.label, .pools = rule.pools, .strict = rule.strict});
        }
        for (const auto& [order, number] : orders_) { // by name, so that the order is the same after every load
            out.classes.push_back({.label = fmt::format("near {}", fmt::join(order, ", ")), .pools = order});
            index_of[number] = static_cast<std::uint32_t>(out.classes.size());
        }
        out.clients = ClientClasses(
            std::make_shared<const dns::ClientTable>(dns::ClientTable{table.v4.mapped(index_of), table.v6.mapped(index_of)}));
        return true;
    }

private:
    using Nodes = std::array<std::uint32_t, max_geo_databases>;
    struct Step {
        Nodes nodes{};
        dns::ClientMap::Address address{};
        unsigned length = 0;
    };

    dns::ClientMap walk(bool v6) {
        dns::ClientMap out;
        const unsigned bits = v6 ? 128 : 32;
        Step first;
        std::uint64_t left = 2; // a damaged tree may have cycles: limit the walk to the size of a valid tree
        for (std::size_t at = 0; at < databases_.size(); ++at) {
            first.nodes.at(at) = databases_[at]->root(v6);
            left += std::uint64_t{databases_[at]->nodes()} * 2;
        }
        std::vector<Step> steps{first};
        while (!steps.empty()) {
            auto step = steps.back();
            steps.pop_back();
            bool inner = false;
            for (std::size_t at = 0; at < databases_.size(); ++at) {
                auto& node = step.nodes.at(at);
                // Links to the IPv4 tree (::/96, 2002::/16 and similar) repeat it: skip them.
                if (v6 && step.length > 0 && databases_[at]->has_children(node) && node == databases_[at]->root(false))
                    node = databases_[at]->empty();
                inner = inner || databases_[at]->has_children(node);
            }
            if (left > 0) --left;
            if (!inner || step.length >= bits || left == 0) {
                out.append(step.address, static_cast<std::uint8_t>(step.length), inner ? 0 : class_of(step.nodes));
                continue;
            }
            for (const auto side : {1U, 0U}) { // the left child is popped first
                auto below = step;
                for (std::size_t at = 0; at < databases_.size(); ++at)
                    if (auto& node = below.nodes.at(at); databases_[at]->has_children(node))
                        node = databases_[at]->child(node, side);
                if (side == 1) {
                    auto& byte = below.address.at(step.length / 8);
                    byte = static_cast<std::uint8_t>(byte | 1U << (7U - step.length % 8));
                }
                ++below.length;
                steps.push_back(below);
            }
        }
        return out;
    }

    std::uint32_t class_of(const Nodes& nodes) {
        const auto key = std::uint64_t{nodes[0]} << 32U | nodes[1];
        if (const auto found = known_.find(key); found != known_.end()) return found->second;
        GeoLocation place;
        for (std::size_t at = 0; at < databases_.size(); ++at) add_to(place, databases_[at]->location_of(nodes.at(at)));
        if (known_.size() >= max_known) known_.clear();
        return known_[key] = class_of(place);
    }

    std::uint32_t class_of(const GeoLocation& place) {
        for (std::size_t at = 0; at < query_.rules.size(); ++at)
            if (fits(query_.rules[at], place)) return static_cast<std::uint32_t>(at + 1);
        if (query_.near.empty() || !place.location || orders_.size() > max_orders) return 0;
        std::vector<std::pair<double, std::string>> near;
        for (const auto& [pool, where] : query_.near) near.emplace_back(distance(*place.location, where), pool);
        std::sort(near.begin(), near.end());
        if (near.size() > nearest_) near.resize(nearest_);
        std::vector<std::string> order;
        for (auto& [ignored, pool] : near) order.push_back(std::move(pool));
        const auto next = static_cast<std::uint32_t>(query_.rules.size() + 1 + orders_.size());
        return orders_.try_emplace(std::move(order), next).first->second;
    }

    const GeoQuery& query_;
    std::span<const MaxmindDatabase* const> databases_;
    std::size_t nearest_;
    std::map<std::vector<std::string>, std::uint32_t> orders_; ///< with a number of its own
    std::unordered_map<std::uint64_t, std::uint32_t> known_;
};

} // namespace

GeoQuery GeoQuery::of(const LoadBalancerSpec& rule, const std::map<std::string, PoolSpec>& pools) {
    GeoQuery out{.rules = rule.geo};
    if (!rule.nearest) return out;
    for (const auto& use : rule.pools)
        if (const auto pool = pools.find(use.pool); pool != pools.end() && pool->second.location && !use.passive)
            out.near[use.pool] = *pool->second.location;
    return out;
}

std::string GeoQuery::key() const {
    // Names contain no line break.
    std::string out;
    for (const auto& rule : rules)
        out += fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n\n", rule.continent, rule.country, rule.subdivision,
                           rule.asn ? std::to_string(*rule.asn) : "", rule.label, fmt::join(rule.pools, "\t"), rule.strict);
    for (const auto& [pool, where] : near) out += fmt::format("{}\n{}\n{}\n", pool, where.latitude, where.longitude);
    return out;
}

GeoClasses geo_classes(const GeoQuery& query, std::span<const MaxmindDatabase* const> databases) {
    GeoClasses out;
    // Many pools have many orders: then use fewer of each.
    for (auto nearest = max_nearest; nearest > 0; --nearest)
        if (GeoClassBuilder(query, databases, nearest).run(out)) return out;
    return out;
}

} // namespace orrery::gslb
