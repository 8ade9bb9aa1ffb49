#include "core/text.h"
#include "health/lookout_state.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::health {

bool is_vantage_name(std::string_view name) {
    return !name.empty() && name.size() <= 128 &&
           std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f && c != '"'; });
}

Error told_wrong(std::string_view field, std::string_view what) {
    Error out{Code::invalid, fmt::format("{} {}", field, what)};
    out.fields.push_back({std::string(field), std::string(what)});
    return out;
}

std::int64_t told_number(const json::object& from, std::string_view key, std::int64_t otherwise, std::int64_t most) {
    const auto* value = from.if_contains(key);
    if (value == nullptr || !value->is_number()) return otherwise;
    boost::system::error_code error;
    const auto number = value->to_number<std::int64_t>(error);
    return error ? otherwise : std::clamp<std::int64_t>(number, 0, most);
}

std::string told_text(const json::object& from, std::string_view key) {
    const auto* value = from.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}

bool Wanted::operator==(const Wanted& other) const {
    return look == other.look && address == other.address && port == other.port && interval == other.interval &&
           timeout == other.timeout && thresholds.rise == other.thresholds.rise && thresholds.fall == other.thresholds.fall &&
           thresholds.forgive == other.thresholds.forgive;
}

json::object Wanted::to_json() const {
    return {{"look", look},
            {"address", address},
            {"port", port},
            {"interval", to_text(interval)},
            {"timeout", to_text(timeout)},
            {"rise", thresholds.rise},
            {"fall", thresholds.fall},
            {"forgive", thresholds.forgive}};
}

Result<Wanted> Wanted::from_json(const json::object& value) {
    Wanted out;
    const auto* look = value.if_contains("look");
    if (look == nullptr || !look->is_object()) return told_wrong("look", "must be an object");
    out.look = look->get_object();
    if (auto errors = check_look(out.look, "look", {}); !errors.empty())
        return told_wrong(errors.front().path, errors.front().message);
    out.address = told_text(value, "address");
    if (out.address.empty() || out.address.size() > 253) return told_wrong("address", "must be a name or an address");
    out.port = static_cast<std::uint16_t>(told_number(value, "port", 0, 65535));
    const auto time = [&](std::string_view key, Duration& into) {
        const auto parsed = parse_duration(told_text(value, key));
        if (!parsed.ok() || *parsed < std::chrono::milliseconds(100) || *parsed > std::chrono::hours(24)) return false;
        into = *parsed;
        return true;
    };
    if (!time("interval", out.interval)) return told_wrong("interval", "must be a time between 100ms and 24h");
    if (!time("timeout", out.timeout)) return told_wrong("timeout", "must be a time between 100ms and 24h");
    out.thresholds = {.rise = static_cast<int>(std::max<std::int64_t>(1, told_number(value, "rise", 2, 1000))),
                      .fall = static_cast<int>(std::max<std::int64_t>(1, told_number(value, "fall", 3, 1000))),
                      .forgive = static_cast<int>(std::max<std::int64_t>(1, told_number(value, "forgive", 1, 1000)))};
    return out;
}

} // namespace orrery::health
