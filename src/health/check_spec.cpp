#include "health/check_spec.h"

#include "core/json_fields.h"
#include "health/probe_spec.h"
#include "health/wire_fields.h"

#include <algorithm>

namespace orrery::health {

bool CheckSpec::operator==(const CheckSpec& other) const {
    return probe == other.probe && address == other.address && port == other.port && interval == other.interval &&
           timeout == other.timeout && thresholds == other.thresholds && fast_interval == other.fast_interval &&
           down_interval == other.down_interval;
}

json::object CheckSpec::to_json() const {
    json::object out{{"probe", probe},
                     {"address", address},
                     {"port", port},
                     {"interval", to_text(interval)},
                     {"timeout", to_text(timeout)},
                     {"rise", thresholds.rise},
                     {"fall", thresholds.fall},
                     {"forgive", thresholds.forgive}};
    if (fast_interval > Duration{}) out["fast_interval"] = to_text(fast_interval);
    if (down_interval > Duration{}) out["down_interval"] = to_text(down_interval);
    return out;
}

std::uint64_t CheckSpec::digest() const {
    std::uint64_t hash = 0xcbf29ce484222325U; // FNV-1a
    for (const char c : to_json_text(to_json())) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    return hash >> 1U; // numbers of JSON are signed
}

Result<CheckSpec> CheckSpec::from_json(const json::object& value) {
    CheckSpec out;
    const auto* probe = value.if_contains("probe");
    if (probe == nullptr || !probe->is_object()) return wire_error("probe", "must be an object");
    out.probe = probe->get_object();
    if (auto errors = validate_probe(out.probe, "probe", {}); !errors.empty())
        return wire_error(errors.front().path, errors.front().message);
    out.address = text_at(value, "address");
    if (out.address.empty() || out.address.size() > 253) return wire_error("address", "must be a name or an address");
    out.port = static_cast<std::uint16_t>(wire_number(value, "port", 0, 65535));
    const auto read_time = [&](std::string_view key, Duration& into) {
        const auto parsed = parse_duration(text_at(value, key));
        if (!parsed.ok() || *parsed < std::chrono::milliseconds(100) || *parsed > std::chrono::hours(24)) return false;
        into = *parsed;
        return true;
    };
    constexpr std::string_view wrong_time = "must be a time between 100ms and 24h";
    if (!read_time("interval", out.interval)) return wire_error("interval", wrong_time);
    if (!read_time("timeout", out.timeout)) return wire_error("timeout", wrong_time);
    if (value.contains("fast_interval") && !read_time("fast_interval", out.fast_interval))
        return wire_error("fast_interval", wrong_time);
    if (value.contains("down_interval") && !read_time("down_interval", out.down_interval))
        return wire_error("down_interval", wrong_time);
    const auto threshold = [&](std::string_view key, std::int64_t default_value) {
        return static_cast<int>(std::max<std::int64_t>(1, wire_number(value, key, default_value, 1000)));
    };
    out.thresholds = {.rise = threshold("rise", 2), .fall = threshold("fall", 3), .forgive = threshold("forgive", 1)};
    return out;
}

} // namespace orrery::health
