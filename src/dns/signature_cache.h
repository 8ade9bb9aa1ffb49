#pragma once

#include "dns/dnssec.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

/// The caches of DNSSEC signatures. All are keyed by the digest of the signed content, so a change signs only what changed:
/// - ZoneSignatureCache: signatures made when an entry is built, before the first query;
/// - OnDemandSignatureCache: signatures made for a response (wildcards, denials, random subsets), one cache per answering thread;
/// - TransferSignatureCache: signatures of the last zone transfer.
namespace orrery::dns {

struct CachedSignature {
    std::vector<std::uint8_t> data; ///< RRSIG RDATA
    std::uint32_t made = 0;         ///< Unix time in seconds
};

/// Signatures of RRsets that are known in advance. Used by the writer only, under its mutex.
class ZoneSignatureCache {
public:
    /// RRSIG RDATA, from the cache or made now; empty if signing failed. A signature is renewed after half of its lifetime. SOA
    /// signatures are not cached: every change of a zone makes a new SOA.
    std::vector<std::uint8_t> get(const SigningKey& key, Bytes zone, const RrsetToSign& rrset, std::uint32_t now,
                                  std::uint32_t lifetime);
    /// Starts tracking the age of the signatures that `get` returns.
    void reset_oldest(std::uint32_t now) { oldest_ = now; }
    /// When the oldest signature since `reset_oldest` was made.
    std::uint32_t oldest() const { return oldest_; }
    /// Removes signatures that are past half of their lifetime.
    void remove_expired(std::uint32_t now, std::uint32_t lifetime);

private:
    std::map<RrsetDigest, CachedSignature> signatures_;
    std::uint32_t oldest_ = 0;
};

/// Signatures made while answering: direct-mapped, of fixed size. Belongs to one thread.
class OnDemandSignatureCache {
public:
    struct Slot {
        RrsetDigest digest{};
        CachedSignature signature;
        /// Holds a signature of this content that is younger than half of its lifetime.
        bool is_current(const RrsetDigest& wanted, const SigningKey& key, std::uint32_t now, std::uint32_t lifetime) const {
            return is_signed_by(signature.data, key) && digest == wanted && now - signature.made < lifetime / 2;
        }
    };
    Slot& slot(const RrsetDigest& digest) { return slots_[(digest[0] | digest[1] << 8) % slots_.size()]; }

private:
    std::array<Slot, 2048> slots_;
};

/// Signatures of a zone's last transfer; the next transfer signs only what changed. Thread-safe.
class TransferSignatureCache {
public:
    /// RRSIG RDATA, from the cache or made now. `lifetime`: seconds that a signature is valid.
    Result<std::vector<std::uint8_t>> get(const SigningKey& key, Bytes zone, const RrsetToSign& rrset, std::uint32_t now,
                                          std::uint32_t lifetime);
    /// Call at the start of a transfer: removes signatures that neither the last nor the previous transfer used.
    void begin_transfer();

private:
    struct Hash {
        std::size_t operator()(const RrsetDigest& digest) const {
            std::size_t out = 0;
            std::memcpy(&out, digest.data(), sizeof out);
            return out;
        }
    };
    struct Used {
        CachedSignature signature;
        std::uint32_t last_transfer = 0;
    };
    mutable std::mutex mutex_;
    std::unordered_map<RrsetDigest, Used, Hash> signatures_;
    std::uint32_t transfer_ = 0;
};

} // namespace orrery::dns
