#pragma once

#include "core/result.h"
#include "dns/message.h"
#include "dns/name.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::dns {

/// A zone's key, the only one it has (a CSK): ECDSA on P-256 with SHA-256 (algorithm 13, RFC 6605). Immutable; any thread may sign.
class SigningKey {
public:
    static constexpr std::uint8_t algorithm = 13;
    /// `invalid` for what is no private key on P-256 in PEM. The message never has anything of the key.
    static Result<std::shared_ptr<const SigningKey>> from_pem(std::string_view pem);
    /// A new one, in PEM: for setting up, and for tests.
    static Result<std::string> generate_pem();
    ~SigningKey();
    SigningKey(const SigningKey&) = delete;
    SigningKey& operator=(const SigningKey&) = delete;

    const std::vector<std::uint8_t>& dnskey() const { return dnskey_; } ///< the record's data: also of CDNSKEY
    std::uint16_t tag() const { return tag_; }
    std::vector<std::uint8_t> ds(const Name& zone) const; ///< SHA-256: also of CDS
    using Signature = std::array<std::uint8_t, 64>;
    Result<Signature> sign(Bytes message) const;

private:
    SigningKey() = default;
    struct Key;
    std::unique_ptr<Key> key_;
    std::vector<std::uint8_t> dnskey_;
    std::uint16_t tag_ = 0;
};

struct SigningTimes {
    std::uint32_t inception = 0, expiration = 0;
};
/// For signatures made now: valid from an hour ago, and made anew at half their life.
SigningTimes signing_times(std::uint32_t now, std::uint32_t life);

/// A set of records to be signed.
struct SetToSign {
    Bytes owner; ///< in lower case, as on the wire
    std::uint16_t type = 0;
    std::uint32_t ttl = 0;
    std::vector<Bytes> data;
};
/// Of what a signature would cover, all but its times: signatures are cached by it. The same whatever the order of the records.
using ContentDigest = std::array<std::uint8_t, 16>;
ContentDigest content_digest(const SetToSign& set);
/// The data of the RRSIG record (RFC 4034 3): names in the data in lower case, records in order. An owner that begins with "*" is
/// signed as the wildcard it is.
Result<std::vector<std::uint8_t>> make_rrsig(const SigningKey& key, Bytes zone, const SetToSign& set, SigningTimes times);

/// The data of an NSEC record that says of this name, and of no other, which types there are (RFC 9824): the next name is the very
/// next there could be.
std::vector<std::uint8_t> make_nsec(Bytes owner, std::vector<std::uint16_t> types);
/// The same with `next` as the next name of the zone, as in a zone that is signed whole (RFC 4034 4).
std::vector<std::uint8_t> make_nsec_to(Bytes next, std::vector<std::uint16_t> types);
/// The order of names that NSEC goes by (RFC 4034 6.1); both in lower case, as on the wire.
bool canonically_before(Bytes one, Bytes other);

} // namespace orrery::dns
