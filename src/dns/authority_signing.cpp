#include "dns/authority_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace orrery::dns {

std::uint32_t Authority::State::now() const {
    return static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(clock.wall().time_since_epoch()).count());
}

std::vector<std::uint8_t> Authority::State::signature(const ZoneState& zone, const RrsetToSign& rrset) const {
    return zone_signatures.get(*zone.key, bytes_of(zone.origin), rrset, now(), options.signature_lifetime);
}

void Authority::State::add_nsec(const ZoneState& zone, const NameKey& name, const Entry& entry, std::vector<Entry::Rrset>& rrsets,
                                std::vector<std::uint8_t>& bytes) const {
    std::vector<std::uint16_t> types;
    for (const auto& rrset : rrsets) {
        const bool is_parents = rrset.type == type::ds && entry.is(Entry::apex);
        const bool is_glue = entry.is(Entry::cut) && rrset.type != type::ns && rrset.type != type::ds;
        if (!is_parents && !is_glue) types.push_back(rrset.type);
    }
    if (entry.dynamic && entry.dynamic->has_v4) types.push_back(type::a);
    if (entry.dynamic && entry.dynamic->has_v6) types.push_back(type::aaaa);
    const auto& soa = *find_rrset(zone.static_records.at(zone.origin), type::soa);
    const auto ttl = std::min(soa.ttl, read32(soa.data[0], soa.data[0].size() - 4)); // RFC 9077
    Entry::Rrset nsec{.type = type::nsec, .count = 1, .offset = static_cast<std::uint32_t>(bytes.size())};
    append_record(bytes, type::nsec, ttl, make_compact_nsec(name.suffix(), std::move(types)));
    nsec.size = static_cast<std::uint32_t>(bytes.size()) - nsec.offset;
    rrsets.push_back(nsec);
}

void Authority::State::sign_rrsets(const ZoneState& zone, const NameKey& name, const Entry& entry,
                                   std::vector<Entry::Rrset>& rrsets, std::vector<std::uint8_t>& bytes) const {
    const auto* parent = entry.parent_zone != Entry::no_zone ? zone_of(parent_key(name.text())) : nullptr;
    for (auto& rrset : rrsets) {
        // RFC 4035 section 2.2: the NS RRset at a delegation and glue are not signed.
        if (entry.is(Entry::cut) && rrset.type != type::ds && rrset.type != type::nsec) continue;
        const bool is_parents = entry.is(Entry::apex) && rrset.type == type::ds;
        const auto* signer = is_parents ? parent : &zone;
        if (signer == nullptr || !signer->key) continue;
        RrsetToSign to_sign{name.suffix(), rrset.type, 0, {}};
        RecordViews records(Bytes(bytes).subspan(rrset.offset, rrset.size));
        for (RecordView record; records.next(record);) {
            to_sign.ttl = record.ttl;
            to_sign.data.push_back(record.data);
        }
        const auto data = signature(*signer, to_sign);
        rrset.signature_offset = static_cast<std::uint32_t>(bytes.size());
        append_record(bytes, type::rrsig, to_sign.ttl, data);
        rrset.signature_size = static_cast<std::uint16_t>(bytes.size() - rrset.signature_offset);
        rrset.signature_count = 1;
    }
}

void Authority::State::sign_dynamic_name(const ZoneState& zone, const NameKey& name, CompiledDynamicName& dynamic) const {
    for (auto& compiled : dynamic.answer_sets)
        for (auto* family : {&compiled.v4, &compiled.v6}) {
            if (family->record_count == 0) continue;
            const bool is_weighted = compiled.answer_set.policy == SelectionPolicy::weighted;
            RrsetToSign all{name.suffix(), family == &compiled.v4 ? type::a : type::aaaa, compiled.answer_set.ttl, {}};
            RecordViews records(family->records);
            for (RecordView record; records.next(record);) {
                all.data.push_back(record.data);
                if (is_weighted)
                    family->record_signatures.push_back(signature(zone, {all.owner, all.type, all.ttl, {record.data}}));
            }
            if (!is_weighted) family->signature = signature(zone, all);
        }
}

std::size_t Authority::State::refresh_signatures(std::size_t max_names) {
    const std::lock_guard lock(write_mutex);
    const auto time = now();
    std::unordered_set<ZoneState*> touched;
    std::size_t renewed = 0;
    for (const auto& [origin, zone] : zones) {
        const auto* parent = parent_zone_of(origin); // signs the DS records
        if (!zone->key && (parent == nullptr || !parent->key)) continue;
        for (const auto& [key, name] : zone->existing_names) {
            if (renewed >= max_names) break;
            if (name.signed_at == 0 || time - name.signed_at < options.signature_lifetime / 2) continue;
            rebuild_entry(*zone, key);
            touched.insert(zone.get());
            ++renewed;
        }
    }
    if (!options.transfer_to.empty())
        for (const auto& [origin, zone] : zones)
            if (zone->key && time - zone->serial_set_at >= options.signature_lifetime / 4) {
                set_serial(*zone, zone->serial + 1);
                rebuild_entry(*zone, origin);
                touched.insert(zone.get());
            }
    if (!touched.empty()) publish(touched);
    zone_signatures.remove_expired(time, options.signature_lifetime);
    return renewed;
}

std::size_t Authority::refresh_signatures(std::size_t max_names) { return state_->refresh_signatures(max_names); }

Result<std::vector<std::uint8_t>> Authority::ds_of(const Name& origin) const {
    const std::lock_guard lock(state_->write_mutex);
    const auto at = state_->zones.find(NameKey(origin).text());
    if (at == state_->zones.end() || !at->second->key)
        return Error{Code::not_found, fmt::format("there is no signed zone {}", origin.to_text())};
    return at->second->key->ds(origin);
}

} // namespace orrery::dns
