#include "dns/answering.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace orrery::dns {

bool Answering::deny(const ZoneView& zone, const NameKey& key, const Name& owner, const Entry* entry) {
    if (!writer_.raw(Section::authority, zone.name, type::rrsig, dns_class::in, zone.negative_ttl, zone.soa_signature))
        return false;
    if (entry == nullptr && !query_.edns->compact_ok) finish.rcode = Rcode::noerror;
    const bool ours = entry != nullptr && snapshot_.zones[entry->zone].get() == &zone;
    const bool exact = ours && std::equal(entry->name().begin(), entry->name().end(), key.tail().begin(), key.tail().end());
    const bool may_have =
        entry != nullptr && entry->dynamic &&
        ((query_.type == type::a && entry->dynamic->has_v4) || (query_.type == type::aaaa && entry->dynamic->has_v6));
    const auto* ready = exact && !may_have ? entry->set(type::nsec) : nullptr;
    if (ready != nullptr) {
        RecordViews records(entry->bytes(*ready));
        RecordView record;
        records.next(record);
        return writer_.raw(Section::authority, owner, type::nsec, dns_class::in, record.ttl, record.data) &&
               sign_set(Section::authority, owner, key, *entry, *ready, zone);
    }
    std::vector<std::uint16_t> types;
    if (entry == nullptr)
        types.push_back(type::nxname);
    else if (!ours)
        types.push_back(type::ns); // a zone of ours below: of it the parent says no more than that
    else
        for (const auto& set : entry->sets())
            if (set.type != query_.type && set.type != type::cname && (set.type != type::ds || !entry->is(Entry::apex)))
                types.push_back(set.type);
    if (ours && entry->dynamic && entry->dynamic->has_v4 && query_.type != type::a) types.push_back(type::a);
    if (ours && entry->dynamic && entry->dynamic->has_v6 && query_.type != type::aaaa) types.push_back(type::aaaa);
    const auto data = make_nsec(key.tail(), std::move(types));
    return writer_.raw(Section::authority, owner, type::nsec, dns_class::in, zone.negative_ttl, data) &&
           sign(Section::authority, owner, key, zone, {key.tail(), type::nsec, zone.negative_ttl, {Bytes(data)}});
}

bool Answering::sign_set(Section section, const Name& owner, const NameKey& key, const Entry& entry, const Entry::Set& set,
                         const ZoneView& zone) {
    if (!is_signed(zone)) return true;
    if (std::equal(entry.name().begin(), entry.name().end(), key.tail().begin(), key.tail().end())) {
        RecordViews records(entry.bytes(set.signature_at, set.signature_size));
        for (RecordView record; set.signature_count > 0 && records.next(record);)
            if (!writer_.raw(section, owner, type::rrsig, dns_class::in, record.ttl, record.data)) return false;
        return true;
    }
    SetToSign to_sign{key.tail(), set.type, 0, {}};
    RecordViews records(entry.bytes(set));
    for (RecordView record; records.next(record);) {
        to_sign.ttl = record.ttl;
        to_sign.data.push_back(record.data);
    }
    return sign(section, owner, key, zone, to_sign);
}

bool Answering::sign(Section section, const Name& owner, const NameKey& key, const ZoneView& zone, const SetToSign& set) {
    if (!is_signed(zone)) return true;
    const auto now =
        static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(clock_.wall().time_since_epoch()).count());
    if (!self_.signatures) self_.signatures = std::make_unique<SignatureCache>();
    const auto digest = content_digest(set);
    auto& kept = self_.signatures->at(digest);
    const bool ours = kept.data.size() > 18 && (kept.data[16] << 8 | kept.data[17]) == zone.key->tag();
    if (!ours || kept.of != digest || now - kept.made >= options_.signature_life / 2) {
        if (self_.signing_second != now) self_.signing_second = now, self_.signed_in_it = 0;
        if (self_.signed_in_it >= options_.signatures_a_second) {
            self_.unsigned_for_load.add();
            return false;
        }
        ++self_.signed_in_it;
        auto data = make_rrsig(*zone.key, bytes_of(zone.origin), set, signing_times(now, options_.signature_life));
        if (!data.ok()) return false;
        kept = {digest, now, std::move(*data)};
        self_.signed_on_demand.add();
    }
    return writer_.raw(section, owner, type::rrsig, dns_class::in, set.ttl, kept.data);
}

} // namespace orrery::dns
