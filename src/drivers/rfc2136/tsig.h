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
/// From what stands in a key file of BIND or Knot: "orrery-key.", "hmac-sha256", base64. `invalid` names the field, never the
/// secret.
Result<TsigKey> tsig_key(std::string_view name, std::string_view algorithm, std::string_view secret);

constexpr std::uint16_t tsig_fudge = 300; ///< seconds by which clocks may differ

/// Signs a whole message: adds the record at its end. Returns the MAC, which the answer's signature depends on. `request_mac`: of
/// the message that this one answers.
std::vector<std::uint8_t> tsig_sign(std::vector<std::uint8_t>& message, const TsigKey& key, WallTime now,
                                    dns::Bytes request_mac = {});

/// What an answer's signature is worth.
struct TsigVerdict {
    enum class What {
        good,
        absent,    ///< it is not signed at all
        complains, ///< the server says that ours was not good; it does not sign that
        bad,       ///< another key, a wrong MAC, another time, or not where it should be
    };
    What what = What::bad;
    std::string why;
};
/// `request_mac`: of the message that this answers. Reads nothing past the end.
TsigVerdict tsig_verify(dns::Bytes answer, const TsigKey& key, dns::Bytes request_mac, WallTime now);

} // namespace orrery::drivers
