#pragma once

#include "importers/import.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Private to the importers.
namespace orrery::importers {

std::string to_lower(std::string_view text);
/// A domain name in lower case, without the trailing dot.
std::string plain_name(std::string_view name);
/// A duration for a spec: a TTL in seconds, limited to one second and one week.
std::string ttl_text(std::int64_t seconds);

/// The resources and warnings of one import.
class ResourceSet {
public:
    /// Adds a resource and returns its name: `wanted` as a valid name, with a number if another resource of the kind has it. Equal
    /// resources become one.
    std::string add(const std::string& kind, std::string_view wanted, json::object spec);
    void warn(std::string warning) { warnings_.push_back(std::move(warning)); }
    /// Empties the set.
    ImportResult finish();

private:
    using Key = std::pair<std::string, std::string>; ///< kind, name
    std::map<Key, json::object> specs_;
    std::vector<Key> order_;
    std::vector<std::string> warnings_;
};

/// A guard that withholds nothing: the other systems have no mass-failure guard, so imported answers stay as they were.
json::value no_guard();

/// A pool and its members. The n-th IPv4 and the n-th IPv6 address belong to the n-th member.
struct PoolDraft {
    std::string name;
    std::vector<std::string> v4, v6;
    std::vector<int> weights; ///< by member; empty: equal weights
    std::vector<std::string> monitors;
    json::value min_healthy;

    void add_address(std::string_view address);
    void add_weighted(std::string_view address, int weight);
    /// Adds the Pool and its Members; returns the pool's name.
    std::string add_to(ResourceSet& out) const;
    /// The spec of the n-th member.
    json::object member(const std::string& pool, std::size_t at) const;
    std::size_t member_count() const;
};

} // namespace orrery::importers
