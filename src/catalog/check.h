#pragma once

#include "core/clock.h"
#include "resource/kind.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::catalog {

namespace json = boost::json;

enum class CheckStatus { passing, warning, critical }; ///< in order of severity
std::string_view name_of(CheckStatus status);
Result<CheckStatus> parse_check_status(std::string_view text);

/// A health check as declared in a spec. The server runs tcp, http and command checks. A ttl check is passing while a client
/// reports so within each ttl. The client that registered an external check writes its state.
struct Check {
    enum class Kind { tcp, http, command, ttl, external };
    std::string id, name;
    Kind kind = Kind::external;
    std::string address;              ///< tcp, http; empty: the address of the instance
    std::uint16_t port = 0;           ///< 0: the port of the instance
    std::string url;                  ///< http: instead of address, port and path
    std::string path = "/";           ///< http
    std::string method = "GET";       ///< http
    json::value body;                 ///< http: request body, a text or {secret: NAME.KEY}; null: none
    std::string contains;             ///< http: required in the first 64 KiB of the response
    std::string expect;               ///< http: "200-299,301"; empty: 2xx passes, 429 warns
    json::object headers;             ///< http: each a text or {secret: NAME.KEY}
    std::vector<std::string> command; ///< argument vector, run on the node
    Duration ttl{}, interval = std::chrono::seconds(10), timeout = std::chrono::seconds(5);
    int rise = 2, fall = 3;
    CheckStatus initial = CheckStatus::critical;
    std::optional<Duration> remove_after; ///< an instance that is critical for this long is removed
    std::string notes;
    bool registered = false; ///< by a client, for its own instance or node; others are declared by a Service

    static Check from(const json::object& spec);
    /// The spec, without default values.
    json::object to_json() const;
    bool operator==(const Check&) const = default;
};
std::string_view name_of(Check::Kind kind);

/// The declaration of a list of checks.
resource::Field checks_field(std::string doc);
/// Validates what the declaration cannot express: required fields by kind of check, duplicate ids, a timeout longer than the
/// interval. `registered`: see Check; such checks may use GET and HEAD only.
void check_checks(const json::object& spec, const std::string& path, bool registered, std::vector<FieldError>& errors);
/// Why a check must not run; empty if it may.
std::string refusal_of(const Check& check);

/// The result of a check.
struct CheckResult {
    CheckStatus status = CheckStatus::critical;
    std::string output;
    WallTime since{};   ///< time of the change to this status; empty: no result yet
    WallTime renewed{}; ///< ttl: time of the last stored report
    std::string error;  ///< why the check cannot run; the status is then the previous or initial one, and no evidence
    static CheckResult from(const json::object& status);
    json::object to_json() const;
    bool operator==(const CheckResult&) const = default;
};

} // namespace orrery::catalog
