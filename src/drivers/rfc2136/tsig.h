#pragma once

#include "core/clock.h"
#include "dns/name.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Transaction signatures, RFC 8945.
namespace orrery::drivers {

enum class TsigAlgorithm { hmac_sha1, hmac_sha256, hmac_sha384, hmac_sha512 };

struct TsigKey {
    dns::Name name;
    TsigAlgorithm algorithm = TsigAlgorithm::hmac_sha256;
    std::vector<std::uint8_t> secret;
};
/// Makes a key of the fields of a key file of BIND or Knot: "orrery-key.", "hmac-sha256", base64. `invalid` names the field, never
/// the secret.
Result<TsigKey> tsig_key(std::string_view name, std::string_view algorithm, std::string_view secret);

constexpr std::uint16_t tsig_fudge = 300; ///< seconds by which clocks may differ

/// Signs a whole message: appends the TSIG record. Returns the MAC, which the signature of the answer covers. `request_mac` is the
/// MAC of the request, where the message is an answer.
std::vector<std::uint8_t> tsig_sign(std::vector<std::uint8_t>& message, const TsigKey& key, WallTime now,
                                    dns::Bytes request_mac = {});

/// The result of the verification of an answer.
struct TsigVerdict {
    enum class Status {
        valid,
        unsigned_, ///< the answer has no signature
        rejected,  ///< the server rejected the signature of our request; it does not sign such an answer
        invalid,   ///< another key, a wrong MAC, another time, or a signature that is not the last record
    };
    Status status = Status::invalid;
    std::string message;
};
/// Verifies an answer. `request_mac` is the MAC of the request. Reads nothing past the end.
TsigVerdict tsig_verify(dns::Bytes answer, const TsigKey& key, dns::Bytes request_mac, WallTime now);

} // namespace orrery::drivers
