#include "gslb/geo_classes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <unordered_map>

namespace orrery::gslb {

namespace {

constexpr std::size_t most_nearest = 3, most_orders = 1000;
/// Pairs of entries whose class is remembered: the same pair stands for thousands of networks.
constexpr std::size_t most_known = 1U << 20U;

bool fits(const GeoRule& rule, const Place& place) {
    return (rule.continent.empty() || rule.continent == place.continent) &&
           (rule.country.empty() || rule.country == place.country) &&
           (rule.subdivision.empty() || rule.subdivision == place.subdivision) && (!rule.asn || rule.asn == place.asn);
}

/// What one database does not say, the other may.
void add_to(Place& all, Place one) {
    if (all.continent.empty()) all.continent = std::move(one.continent);
    if (all.country.empty()) {
        all.country = std::move(one.country);
        all.subdivision = std::move(one.subdivision);
    }
    if (!all.asn) all.asn = one.asn;
    if (!all.location) all.location = one.location;
}

class GeoSorting {
public:
    GeoSorting(const GeoQuestion& question, std::span<const GeoDatabase* const> databases, std::size_t nearest)
        : question_(question), databases_(databases.first(std::min(databases.size(), most_geo_databases))), nearest_(nearest) {}

    /// False where there are too many orders of pools.
    bool run(GeoClasses& out) {
        dns::ClientTable table{walk(false), walk(true)};
        if (orders_.size() > most_orders) return false;
        std::vector<std::uint32_t> place_of(question_.rules.size() + 1 + orders_.size(), 0);
        for (const auto& rule : question_.rules) {
            place_of[out.classes.size() + 1] = static_cast<std::uint32_t>(out.classes.size() + 1);
            out.classes.push_back({.label = rule.label, .pools = rule.pools, .strict = rule.strict});
        }
        for (const auto& [order, number] : orders_) { // by name, so that they stand alike after every reading
            out.classes.push_back({.label = fmt::format("near {}", fmt::join(order, ", ")), .pools = order});
            place_of[number] = static_cast<std::uint32_t>(out.classes.size());
        }
        out.clients = Clients(
            std::make_shared<const dns::ClientTable>(dns::ClientTable{table.v4.mapped(place_of), table.v6.mapped(place_of)}));
        return true;
    }

private:
    using Nodes = std::array<std::uint32_t, most_geo_databases>;
    struct Step {
        Nodes nodes{};
        dns::ClientMap::Address address{};
        unsigned length = 0;
    };

    dns::ClientMap walk(bool v6) {
        dns::ClientMap out;
        const unsigned bits = v6 ? 128 : 32;
        Step first;
        std::uint64_t left = 2; // a damaged tree may lead in circles: no walk is longer than a sound tree's
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
                // What leads to the IPv4 tree (::/96, 2002::/16 and the like) says the same again.
                if (v6 && step.length > 0 && databases_[at]->has_children(node) && node == databases_[at]->root(false))
                    node = databases_[at]->empty();
                inner = inner || databases_[at]->has_children(node);
            }
            if (left > 0) --left;
            if (!inner || step.length >= bits || left == 0) {
                out.append(step.address, static_cast<std::uint8_t>(step.length), inner ? 0 : class_of(step.nodes));
                continue;
            }
            for (const auto side : {1U, 0U}) { // the left is taken off the stack first
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
        Place place;
        for (std::size_t at = 0; at < databases_.size(); ++at) add_to(place, databases_[at]->place(nodes.at(at)));
        if (known_.size() >= most_known) known_.clear();
        return known_[key] = class_of(place);
    }

    std::uint32_t class_of(const Place& place) {
        for (std::size_t at = 0; at < question_.rules.size(); ++at)
            if (fits(question_.rules[at], place)) return static_cast<std::uint32_t>(at + 1);
        if (question_.near.empty() || !place.location || orders_.size() > most_orders) return 0;
        std::vector<std::pair<double, std::string>> near;
        for (const auto& [pool, where] : question_.near) near.emplace_back(distance(*place.location, where), pool);
        std::sort(near.begin(), near.end());
        if (near.size() > nearest_) near.resize(nearest_);
        std::vector<std::string> order;
        for (auto& [ignored, pool] : near) order.push_back(std::move(pool));
        const auto next = static_cast<std::uint32_t>(question_.rules.size() + 1 + orders_.size());
        return orders_.try_emplace(std::move(order), next).first->second;
    }

    const GeoQuestion& question_;
    std::span<const GeoDatabase* const> databases_;
    std::size_t nearest_;
    std::map<std::vector<std::string>, std::uint32_t> orders_; ///< with a number of its own
    std::unordered_map<std::uint64_t, std::uint32_t> known_;
};

} // namespace

GeoQuestion GeoQuestion::of(const Rule& rule, const std::map<std::string, PoolSpec>& pools) {
    GeoQuestion out{.rules = rule.geo};
    if (!rule.nearest) return out;
    for (const auto& use : rule.pools)
        if (const auto pool = pools.find(use.pool); pool != pools.end() && pool->second.location && !use.passive)
            out.near[use.pool] = *pool->second.location;
    return out;
}

std::string GeoQuestion::key() const {
    // No name has a line break in it.
    std::string out;
    for (const auto& rule : rules)
        out += fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n\n", rule.continent, rule.country, rule.subdivision,
                           rule.asn ? std::to_string(*rule.asn) : "", rule.label, fmt::join(rule.pools, "\t"), rule.strict);
    for (const auto& [pool, where] : near) out += fmt::format("{}\n{}\n{}\n", pool, where.latitude, where.longitude);
    return out;
}

GeoClasses geo_classes(const GeoQuestion& question, std::span<const GeoDatabase* const> databases) {
    GeoClasses out;
    // Very many pools stand in very many orders: then fewer of each count.
    for (auto nearest = most_nearest; nearest > 0; --nearest)
        if (GeoSorting(question, databases, nearest).run(out)) return out;
    return out;
}

} // namespace orrery::gslb
