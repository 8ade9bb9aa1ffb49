#include "dns/response_builder.h"
#include "dns/zone_state.h"

#include <algorithm>
#include <chrono>

namespace orrery::dns {

namespace {

bool is_entry_of(const Entry& entry, const NameKey& key) {
    return std::equal(entry.name().begin(), entry.name().end(), key.suffix().begin(), key.suffix().end());
}

} // namespace

bool ResponseBuilder::write_denial(const ZoneView& zone, const NameKey& key, const Name& owner, const Entry* entry) {
    if (!writer_.raw(Section::authority, zone.name, type::rrsig, dns_class::in, zone.negative_ttl, zone.soa_signature))
        return false;
    if (entry == nullptr && !query_.edns->compact_ok) header.rcode = Rcode::noerror;
    return write_nsec(Section::authority, zone, key, owner, entry, false);
}

void ResponseBuilder::build_proof(const ZoneView& zone, const NameKey& key, const Entry* entry) {
    kind = Kind::positive;
    if (!write_nsec(Section::answer, zone, key, query_.name, entry, query_.type == type::rrsig)) truncate();
}

std::vector<std::uint16_t> ResponseBuilder::nsec_types(const Entry* entry, bool is_in_zone) const {
    if (entry == nullptr) return {type::nxname};
    if (!is_in_zone) return {type::ns}; // a child zone served here: the parent proves only the delegation
    std::vector<std::uint16_t> types;
    for (const auto& rrset : entry->rrsets())
        if (rrset.type != query_.type && (rrset.type != type::cname || is_proof_query()) &&
            (rrset.type != type::ds || !entry->is(Entry::apex)))
            types.push_back(rrset.type);
    if (entry->dynamic && entry->dynamic->has_v4 && query_.type != type::a) types.push_back(type::a);
    if (entry->dynamic && entry->dynamic->has_v6 && query_.type != type::aaaa) types.push_back(type::aaaa);
    return types;
}

bool ResponseBuilder::write_nsec(Section section, const ZoneView& zone, const NameKey& key, const Name& owner, const Entry* entry,
                                 bool signature_only) {
    const bool is_in_zone = entry != nullptr && snapshot_.zones[entry->zone].get() == &zone;
    const bool is_exact = is_in_zone && is_entry_of(*entry, key);
    // The stored NSEC lists A or AAAA for a dynamic name that has no such address for this client.
    const bool denies_dynamic_type =
        entry != nullptr && entry->dynamic &&
        ((query_.type == type::a && entry->dynamic->has_v4) || (query_.type == type::aaaa && entry->dynamic->has_v6));
    const auto* stored = is_exact && !denies_dynamic_type ? entry->rrset(type::nsec) : nullptr;
    if (stored != nullptr) {
        RecordViews records(entry->bytes(*stored));
        RecordView record;
        records.next(record);
        return (signature_only || writer_.raw(section, owner, type::nsec, dns_class::in, record.ttl, record.data)) &&
               write_signatures(section, owner, key, *entry, *stored, zone);
    }
    const auto data = make_compact_nsec(key.suffix(), nsec_types(entry, is_in_zone));
    return (signature_only || writer_.raw(section, owner, type::nsec, dns_class::in, zone.negative_ttl, data)) &&
           sign_on_demand(section, owner, key, zone, {key.suffix(), type::nsec, zone.negative_ttl, {Bytes(data)}});
}

bool ResponseBuilder::write_signatures(Section section, const Name& owner, const NameKey& key, const Entry& entry,
                                       const Entry::Rrset& rrset, const ZoneView& zone) {
    if (!is_signed(zone)) return true;
    if (is_entry_of(entry, key)) {
        RecordViews records(entry.bytes(rrset.signature_offset, rrset.signature_size));
        for (RecordView record; rrset.signature_count > 0 && records.next(record);)
            if (!writer_.raw(section, owner, type::rrsig, dns_class::in, record.ttl, record.data)) return false;
        return true;
    }
    RrsetToSign to_sign{key.suffix(), rrset.type, 0, {}};
    RecordViews records(entry.bytes(rrset));
    for (RecordView record; records.next(record);) {
        to_sign.ttl = record.ttl;
        to_sign.data.push_back(record.data);
    }
    return sign_on_demand(section, owner, key, zone, to_sign);
}

bool ResponseBuilder::sign_on_demand(Section section, const Name& owner, const NameKey& key, const ZoneView& zone,
                                     const RrsetToSign& rrset) {
    if (!is_signed(zone)) return true;
    const auto now =
        static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(clock_.wall().time_since_epoch()).count());
    if (!self_.signature_cache) self_.signature_cache = std::make_unique<OnDemandSignatureCache>();
    const auto digest = rrset_digest(rrset);
    auto& cached = self_.signature_cache->slot(digest);
    if (!cached.is_current(digest, *zone.key, now, options_.signature_lifetime)) {
        if (self_.signing_second != now) self_.signing_second = now, self_.signatures_this_second = 0;
        if (self_.signatures_this_second >= options_.max_signatures_per_second) {
            self_.signing_limited.add();
            return false;
        }
        ++self_.signatures_this_second;
        auto data = make_rrsig(*zone.key, bytes_of(zone.origin), rrset, signature_validity(now, options_.signature_lifetime));
        if (!data.ok()) return false;
        cached = {digest, {std::move(*data), now}};
        self_.signed_on_demand.add();
    }
    return writer_.raw(section, owner, type::rrsig, dns_class::in, rrset.ttl, cached.signature.data);
}

} // namespace orrery::dns
