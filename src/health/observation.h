#pragma once

#include "core/clock.h"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::health {

/// What one look found. Everything from `refused` on is evidence that something is wrong there; `local_error` says only that this
/// server could not look, and is evidence of nothing.
enum class Outcome {
    ok,
    warning, ///< it works, and says that something is not well (429, exit code 1)
    local_error,
    refused,
    unreachable,
    timeout_connect,
    tls_error,
    tls_expired,
    timeout_read,
    bad_status,
    bad_body,
    protocol,
    dns_error,
    failed, ///< a command that ended badly
};
std::string_view name_of(Outcome outcome);
constexpr bool is_evidence(Outcome outcome) { return outcome != Outcome::local_error; }
constexpr bool is_good(Outcome outcome) { return outcome == Outcome::ok || outcome == Outcome::warning; }

/// A figure that a look brought along: performance data of a plugin.
struct Measure {
    std::string name;
    double value = 0;
    std::string unit; ///< as it was given: "s", "%", "B", "c", or empty
    auto operator<=>(const Measure&) const = default;
};

/// One look at one target.
struct Observation {
    Outcome outcome = Outcome::local_error;
    std::string text; ///< for people: "HTTP GET http://...: 200 OK"; at most 4 KiB
    WallTime at{};
    std::chrono::microseconds connect{}, tls{}, first_byte{}, total{}; ///< 0: it did not come so far
    std::vector<Measure> measures;
};

constexpr std::size_t longest_text = 4096;

} // namespace orrery::health
