#pragma once

#include "core/clock.h"
#include "core/result.h"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::health {

/// The result of one probe. Every outcome from `refused` on is evidence that something is wrong with the target. `local_error`
/// means that the prober could not probe, and is evidence of nothing.
enum class Outcome {
    ok,
    warning, ///< the target works and reports a problem (429, exit code 1)
    local_error,
    refused,
    unreachable,
    timeout_connect,
    timeout_tls, ///< connected, but the handshake did not finish in time
    tls_error,
    tls_expired,
    timeout_read,
    bad_status,
    bad_body,
    protocol,
    dns_error,
    failed, ///< a command failed, or an external source reports a failure
};
std::string_view name_of(Outcome outcome);
/// The outcome of that name; `local_error` for any other text.
Outcome outcome_from(std::string_view name);
constexpr bool is_evidence(Outcome outcome) { return outcome != Outcome::local_error; }
constexpr bool is_good(Outcome outcome) { return outcome == Outcome::ok || outcome == Outcome::warning; }

/// A figure that a probe returned: performance data of a plugin.
struct Measure {
    std::string name;
    double value = 0;
    std::string unit; ///< as the plugin printed it: "s", "%", "B", "c", or empty
    auto operator<=>(const Measure&) const = default;
};

/// What one probe found.
struct Observation {
    Outcome outcome = Outcome::local_error;
    std::string text; ///< for people: "HTTP GET http://...: 200 OK"; at most `max_text`
    WallTime at{};
    std::chrono::microseconds connect{}, tls{}, first_byte{}, total{}; ///< 0: the probe did not get that far
    std::vector<Measure> measures;
    bool cannot_run = false; ///< with `local_error`: every probe will end like this until the configuration changes
};

constexpr std::size_t max_text = 4096;

/// The text of an observation as evidence and status show it: one line of printable UTF-8 of at most 256 bytes, cut between
/// characters. Needed because the text holds foreign data: the body of a response, the output of a program.
std::string evidence_text(std::string_view text);
/// The message of an error that keeps a check from running: "there is no program x; install it".
std::string message_with_remedy(const Error& error);

} // namespace orrery::health
