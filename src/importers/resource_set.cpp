#include "importers/resource_set.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::importers {

namespace {

constexpr std::int64_t max_ttl_seconds = std::int64_t{86400} * 7;
constexpr std::size_t max_name_size = 200;

/// `text` with everything that cannot be in the name of a resource replaced by hyphens.
std::string resource_name(std::string_view text) {
    std::string out;
    for (const char c : to_lower(text)) {
        const bool allowed = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (allowed)
            out += c;
        else if (!out.empty() && out.back() != '-')
            out += '-';
    }
    while (!out.empty() && out.back() == '-') out.pop_back();
    return out.empty() ? "x" : out.substr(0, max_name_size);
}

} // namespace

std::string to_lower(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return out;
}

std::string plain_name(std::string_view name) {
    if (name.ends_with('.')) name.remove_suffix(1);
    return to_lower(name);
}

std::string ttl_text(std::int64_t seconds) { return fmt::format("{}s", std::clamp<std::int64_t>(seconds, 1, max_ttl_seconds)); }

std::string ResourceSet::add(const std::string& kind, std::string_view wanted, json::object spec) {
    auto name = resource_name(wanted);
    for (int number = 2; specs_.contains({kind, name}); ++number) {
        if (specs_.at({kind, name}) == spec) return name;
        name = fmt::format("{}-{}", resource_name(wanted), number);
    }
    specs_.emplace(Key(kind, name), std::move(spec));
    order_.emplace_back(kind, name);
    return name;
}

ImportResult ResourceSet::finish() {
    ImportResult out;
    out.warnings = std::move(warnings_);
    for (const auto* kind : {"Zone", "Monitor", "Pool", "Member", "LoadBalancer"})
        for (const auto& key : order_)
            if (key.first == kind)
                out.documents.push_back({{"kind", key.first}, {"name", key.second}, {"spec", std::move(specs_.at(key))}});
    specs_.clear();
    order_.clear();
    return out;
}

json::value no_guard() { return json::object{{"max_ejections", "100%"}}; }

void PoolDraft::add_address(std::string_view address) {
    (address.find(':') == std::string_view::npos ? v4 : v6).emplace_back(address);
}

void PoolDraft::add_weighted(std::string_view address, int weight) {
    add_address(address);
    if (weights.size() < member_count()) weights.push_back(weight);
}

std::size_t PoolDraft::member_count() const { return std::max(v4.size(), v6.size()); }

json::object PoolDraft::member(const std::string& pool, std::size_t at) const {
    json::array addresses;
    if (at < v4.size()) addresses.emplace_back(v4[at]);
    if (at < v6.size()) addresses.emplace_back(v6[at]);
    json::object out{{"pool", pool}, {"addresses", std::move(addresses)}};
    if (at < weights.size()) out["weight"] = weights[at];
    return out;
}

std::string PoolDraft::add_to(ResourceSet& out) const {
    json::object spec;
    if (!monitors.empty()) spec["monitors"] = json::array(monitors.begin(), monitors.end());
    if (!min_healthy.is_null()) spec["min_healthy"] = min_healthy;
    spec["guard"] = no_guard();
    const auto pool = out.add("Pool", name, std::move(spec));
    for (std::size_t at = 0; at < member_count(); ++at) out.add("Member", fmt::format("{}-{}", pool, at + 1), member(pool, at));
    return pool;
}

} // namespace orrery::importers
