#pragma once

#include "core/clock.h"
#include "core/text.h"
#include "health/health_state_machine.h"

#include <cstdint>
#include <string>

namespace orrery::health {

/// A configured probe with intervals and thresholds, as data: another vantage can run it.
struct CheckSpec {
    json::object probe;  ///< see probe_spec.h
    std::string address; ///< host name or address
    std::uint16_t port = 0;
    Duration interval = std::chrono::seconds(10);
    Duration timeout = std::chrono::seconds(5);
    Thresholds thresholds;
    Duration fast_interval{}; ///< while results point to a change; 0: the interval
    Duration down_interval{}; ///< after ten minutes down; 0: the interval

    json::object to_json() const;
    /// Reads a spec from another process; every value is bounded. `invalid` names the field.
    static Result<CheckSpec> from_json(const json::object& value);
    /// Equal for equal specs on every server.
    std::uint64_t digest() const;
    bool operator==(const CheckSpec&) const;
};

} // namespace orrery::health
