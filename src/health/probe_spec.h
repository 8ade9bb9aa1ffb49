#pragma once

#include "core/text.h"
#include "health/probe_kind.h"
#include "health/probes/http_probe.h"
#include "health/probes/programs.h"
#include "health/sources/passive_checks.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Probes as data: the fields of a Monitor's spec, and the form that is sent to other vantages.
namespace orrery::health {

/// Returns the current value of "NAME.KEY" of a Secret. `not_found`: there is no such value.
using SecretReader = std::function<Result<std::string>(std::string_view named)>;

/// What probes need to be made. Everything must outlive the probes.
struct ProbeDeps {
    std::shared_ptr<net::TlsContext> tls;             ///< null: the authorities of the system
    Programs* programs = nullptr;                     ///< null: this vantage runs no programs
    std::map<std::string, std::string> program_paths; ///< the programs that checks may run, by the name that checks use
    std::vector<std::string> plugin_folders;          ///< checks may also run any program in these folders
    net::OutboundRulesPtr outbound;                   ///< null: every address is permitted
    PassiveChecks* passive = nullptr;                 ///< null: this vantage has no external health sources
    SecretReader secrets;                             ///< null: this vantage does not know the values of Secrets
};

/// octavia, prometheus, push: an external source or a client supplies the result.
bool is_passive(const json::object& spec);
/// plugin, exec: needs a program that not every vantage has.
bool runs_program(const json::object& spec);

/// Validates the fields of a probe and names each wrong one by its path below `at` ("spec"). A field that the kind does not have is
/// wrong. The fields in `others` (interval, rise, ...) are not validated here. Pure.
std::vector<FieldError> validate_probe(const json::object& spec, std::string_view at, const std::vector<std::string_view>& others);

/// `headers`, `body` and `ca` may name a value of a Secret instead of a text: {secret: NAME.KEY}. The value is filled in only where
/// a probe is made: {secret, value}, or {secret, error} if it does not exist.
bool names_secrets(const json::object& spec);
json::object with_secret_values(json::object spec, const SecretReader& secrets);
/// The spec for a vantage that must not have the values; `reason` says why the check cannot run there.
json::object without_secret_values(json::object spec, std::string_view reason);

/// Makes the probe of one address. `port`: the port of the target, for specs without one. `invalid`: the spec is not a valid probe.
/// `unsupported`: this vantage cannot run it. `unavailable`: a value of a Secret is missing.
Result<ProbePtr> probe_from(const json::object& spec, const std::string& address, std::uint16_t port, const ProbeDeps& deps);

/// The options of a probe of kind http or https, with the values of Secrets that are filled in.
Result<HttpProbeOptions> http_probe_options(const json::object& spec, const std::string& address, std::uint16_t port);
/// Only the headers and the body of such a probe.
Result<HttpProbeOptions> http_headers_and_body(const json::object& spec);

/// Parses ranges of HTTP status codes, "200-299,301".
Result<std::vector<std::pair<int, int>>> parse_status_codes(std::string_view text);

} // namespace orrery::health
