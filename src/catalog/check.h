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

enum class CheckStatus { passing, warning, critical }; ///< in the order of trouble
std::string_view name_of(CheckStatus status);
Result<CheckStatus> parse_check_status(std::string_view text);

/// How to tell that something works, as a spec says it. The server runs tcp, http and command checks itself; a ttl check passes as
/// long as somebody says so often enough; the state of an external one is written by whoever registered it.
struct Check {
    enum class Kind { tcp, http, command, ttl, external };
    std::string id, name;
    Kind kind = Kind::external;
    std::string address;        ///< tcp, http: empty means the instance's
    std::uint16_t port = 0;     ///< 0: the instance's
    std::string url;            ///< http: instead of address, port and path
    std::string path = "/";     ///< http
    std::string method = "GET"; ///< http
    std::string body;           ///< http: sent
    std::string contains;       ///< http: must be in the answer's first 64 KiB
    std::string expect;         ///< http: "200-299,301"; empty: 2xx passes, 429 warns
    std::map<std::string, std::string> headers;
    std::vector<std::string> command; ///< argument vector, run on the node
    Duration ttl{}, interval = std::chrono::seconds(10), timeout = std::chrono::seconds(5);
    int rise = 2, fall = 3;
    CheckStatus initial = CheckStatus::critical;
    std::optional<Duration> remove_after; ///< an instance that was critical for so long is removed
    std::string notes;

    static Check from(const json::object& spec);
    /// The spec it would be read from, defaults left out.
    json::object to_json() const;
    bool operator==(const Check&) const = default;
};
std::string_view name_of(Check::Kind kind);

/// The declaration of a list of checks, for kinds that have one.
resource::Field checks_field(std::string doc);
/// What the table cannot say: what each kind of check needs, ids that occur twice, a timeout longer than the interval.
void check_checks(const json::object& spec, const std::string& path, std::vector<FieldError>& errors);

/// What is known of a check.
struct CheckResult {
    CheckStatus status = CheckStatus::critical;
    std::string output;
    WallTime since{};   ///< when it came to this status
    WallTime renewed{}; ///< ttl: when it was last said, as far as the store knows
    static CheckResult from(const json::object& status);
    json::object to_json() const;
    bool operator==(const CheckResult&) const = default;
};

} // namespace orrery::catalog
