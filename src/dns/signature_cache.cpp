#include "dns/signature_cache.h"

#include <algorithm>

namespace orrery::dns {

std::vector<std::uint8_t> ZoneSignatureCache::get(const SigningKey& key, Bytes zone, const RrsetToSign& rrset, std::uint32_t now,
                                                  std::uint32_t lifetime) {
    CachedSignature uncached;
    auto& cached = rrset.type == type::soa ? uncached : signatures_[rrset_digest(rrset)];
    // The unsigned difference is also large for a signature from the future, after the wall clock stepped back.
    if (!is_signed_by(cached.data, key) || now - cached.made >= lifetime / 2) {
        cached.data = make_rrsig(key, zone, rrset, signature_validity(now, lifetime)).value_or({});
        cached.made = now;
    }
    oldest_ = std::min(oldest_, cached.made);
    return cached.data;
}

void ZoneSignatureCache::remove_expired(std::uint32_t now, std::uint32_t lifetime) {
    std::erase_if(signatures_, [&](const auto& one) { return now - one.second.made >= lifetime / 2; });
}

Result<std::vector<std::uint8_t>> TransferSignatureCache::get(const SigningKey& key, Bytes zone, const RrsetToSign& rrset,
                                                              std::uint32_t now, std::uint32_t lifetime) {
    const auto digest = rrset_digest(rrset);
    {
        const std::lock_guard lock(mutex_);
        if (const auto at = signatures_.find(digest); at != signatures_.end()) {
            const auto& signature = at->second.signature;
            // A quarter of the lifetime, not half: a secondary may serve the signature for another quarter before it transfers the
            // zone again (see Authority::refresh_signatures).
            if (is_signed_by(signature.data, key) && now - signature.made < lifetime / 4) {
                at->second.last_transfer = transfer_;
                return signature.data;
            }
        }
    }
    TRY(auto data, make_rrsig(key, zone, rrset, signature_validity(now, lifetime)));
    const std::lock_guard lock(mutex_);
    // Every change of a zone makes a new SOA.
    if (rrset.type != type::soa) signatures_.insert_or_assign(digest, Used{{data, now}, transfer_});
    return data;
}

void TransferSignatureCache::begin_transfer() {
    const std::lock_guard lock(mutex_);
    ++transfer_;
    std::erase_if(signatures_, [this](const auto& one) { return one.second.last_transfer + 2 <= transfer_; });
}

} // namespace orrery::dns
