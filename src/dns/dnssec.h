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

/// The key of a signed zone: a combined signing key (CSK), ECDSA P-256 with SHA-256 (algorithm 13, RFC 6605). Immutable; any thread
/// may sign.
class SigningKey {
public:
    static constexpr std::uint8_t algorithm = 13;
    /// `invalid` if `pem` is not a P-256 private key. The error message contains no part of the key.
    static Result<std::shared_ptr<const SigningKey>> from_pem(std::string_view pem);
    /// Generates a key, in PEM.
    static Result<std::string> generate_pem();
    ~SigningKey();
    SigningKey(const SigningKey&) = delete;
    SigningKey& operator=(const SigningKey&) = delete;

    const std::vector<std::uint8_t>& dnskey() const { return dnskey_; } ///< RDATA of DNSKEY and CDNSKEY
    std::uint16_t tag() const { return tag_; }
    std::vector<std::uint8_t> ds(const Name& zone) const; ///< RDATA of DS and CDS, with SHA-256
    using Signature = std::array<std::uint8_t, 64>;
    Result<Signature> sign(Bytes message) const;

private:
    SigningKey() = default;
    struct Key;
    std::unique_ptr<Key> key_;
    std::vector<std::uint8_t> dnskey_;
    std::uint16_t tag_ = 0;
};

struct SignatureValidity {
    std::uint32_t inception = 0, expiration = 0;
};
/// The validity of a signature made at `now`. Inception is one hour earlier, to tolerate clock skew.
SignatureValidity signature_validity(std::uint32_t now, std::uint32_t lifetime);

struct RrsetToSign {
    Bytes owner; ///< lower case, wire format
    std::uint16_t type = 0;
    std::uint32_t ttl = 0;
    std::vector<Bytes> data; ///< RDATA of each record
};
/// A digest of everything that a signature covers except its validity; the key of the signature caches. The order of the records
/// does not matter.
using RrsetDigest = std::array<std::uint8_t, 16>;
RrsetDigest rrset_digest(const RrsetToSign& rrset);

/// RDATA of the RRSIG record (RFC 4034 section 3), over the canonical form of the RRset. An owner that starts with "*" is signed as
/// a wildcard.
Result<std::vector<std::uint8_t>> make_rrsig(const SigningKey& key, Bytes zone, const RrsetToSign& rrset,
                                             SignatureValidity validity);
/// Was this RRSIG RDATA made with `key`? Compares key tags.
bool is_signed_by(Bytes rrsig, const SigningKey& key);

/// RDATA of an NSEC record for compact denial (RFC 9824): it lists the types of `owner`, and the next name is the immediate
/// successor of `owner`, so that the record covers no other name.
std::vector<std::uint8_t> make_compact_nsec(Bytes owner, std::vector<std::uint16_t> types);
/// RDATA of an NSEC record in a conventional chain (RFC 4034 section 4). `next`: the next name of the zone.
std::vector<std::uint8_t> make_nsec(Bytes next, std::vector<std::uint16_t> types);
/// Canonical order of names (RFC 4034 section 6.1). Both names are lower case, wire format.
bool canonical_less(Bytes one, Bytes other);

} // namespace orrery::dns
