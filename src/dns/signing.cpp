#include "dns/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace orrery::dns {

std::uint32_t Authority::State::now() const {
    return static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(clock.wall().time_since_epoch()).count());
}

std::vector<std::uint8_t> Authority::State::signature(const ZoneState& zone, const SetToSign& set) const {
    MadeSignature passing;
    auto& made = set.type == type::soa ? passing : made_signatures[content_digest(set)];
    const auto time = now();
    // Also one that was made with another key, or in what is now the future.
    const auto tag_at = std::size_t{16};
    const bool ours = made.data.size() > tag_at + 2 && (made.data[tag_at] << 8 | made.data[tag_at + 1]) == zone.key->tag();
    if (!ours || time - made.made >= options.signature_life / 2) {
        made.data = make_rrsig(*zone.key, bytes_of(zone.origin), set, signing_times(time, options.signature_life)).value_or({});
        made.made = time;
    }
    oldest_signature = std::min(oldest_signature, made.made);
    return made.data;
}

void Authority::State::sign_sets(const ZoneState& zone, const NameKey& name, const Entry& entry, std::vector<Entry::Set>& sets,
                                 std::vector<std::uint8_t>& bytes) const {
    const auto* parent = entry.parent_zone != Entry::nowhere ? zone_of(above(name.text())) : nullptr;
    if (zone.key) {
        std::vector<std::uint16_t> types;
        for (const auto& set : sets)
            if (set.type != type::ds || !entry.is(Entry::apex))
                if (!entry.is(Entry::cut) || set.type == type::ns || set.type == type::ds) types.push_back(set.type);
        if (entry.dynamic && entry.dynamic->has_v4) types.push_back(type::a);
        if (entry.dynamic && entry.dynamic->has_v6) types.push_back(type::aaaa);
        const auto& soa = *set_in(zone.statics.at(zone.origin), type::soa);
        const auto ttl = std::min(soa.ttl, read32(soa.data[0], soa.data[0].size() - 4)); // RFC 9077
        Entry::Set nsec{.type = type::nsec, .count = 1, .at = static_cast<std::uint32_t>(bytes.size())};
        append_record(bytes, type::nsec, ttl, make_nsec(name.tail(), std::move(types)));
        nsec.size = static_cast<std::uint32_t>(bytes.size()) - nsec.at;
        sets.push_back(nsec);
    }
    for (auto& set : sets) {
        const bool of_parent = entry.is(Entry::apex) && set.type == type::ds;
        // RFC 4035 2.2: the NS set at a delegation, and glue beside it, are not ours to sign.
        if (entry.is(Entry::cut) && set.type != type::ds && set.type != type::nsec) continue;
        const auto* signer = of_parent ? parent : &zone;
        if (signer == nullptr || !signer->key) continue;
        SetToSign to_sign{name.tail(), set.type, 0, {}};
        RecordViews records(Bytes(bytes).subspan(set.at, set.size));
        for (RecordView record; records.next(record);) {
            to_sign.ttl = record.ttl;
            to_sign.data.push_back(record.data);
        }
        const auto data = signature(*signer, to_sign);
        set.signature_at = static_cast<std::uint32_t>(bytes.size());
        append_record(bytes, type::rrsig, to_sign.ttl, data);
        set.signature_size = static_cast<std::uint16_t>(bytes.size() - set.signature_at);
        set.signature_count = 1;
    }
}

void Authority::State::sign_dynamic(const ZoneState& zone, const NameKey& name, Dynamic& dynamic) const {
    for (auto& ready : dynamic.choices)
        for (auto* family : {&ready.v4, &ready.v6}) {
            if (family->all_count == 0) continue;
            SetToSign all{name.tail(), family == &ready.v4 ? type::a : type::aaaa, ready.choice.ttl, {}};
            RecordViews records(family->all);
            for (RecordView record; records.next(record);) {
                all.data.push_back(record.data);
                if (ready.choice.picking == Picking::one)
                    family->signatures.push_back(signature(zone, {all.owner, all.type, all.ttl, {record.data}}));
            }
            if (ready.choice.picking != Picking::one) family->signature = signature(zone, all);
        }
}

std::size_t Authority::refresh_signatures(std::size_t most) {
    auto& state = *state_;
    const std::lock_guard lock(state.writing);
    const auto now = state.now();
    const auto old = [&](std::uint32_t made) { return now - made >= state.options.signature_life / 2; };
    std::unordered_set<ZoneState*> touched;
    std::size_t done = 0;
    for (const auto& [origin, zone] : state.zones) {
        const auto* parent = origin.size() > 1 ? state.zone_of(above(origin)) : nullptr; // it signs our DS
        if (!zone->key && (parent == nullptr || !parent->key)) continue;
        for (const auto& [key, place] : zone->places) {
            if (done >= most) break;
            if (place.signed_at == 0 || !old(place.signed_at)) continue;
            state.remake(*zone, key);
            touched.insert(zone.get());
            ++done;
        }
    }
    if (!state.options.transfer_to.empty())
        for (const auto& [origin, zone] : state.zones)
            if (zone->key && now - zone->changed_at >= state.options.signature_life / 4) {
                state.set_serial(*zone, zone->serial + 1);
                state.remake(*zone, origin);
                touched.insert(zone.get());
            }
    if (!touched.empty()) state.publish(touched);
    std::erase_if(state.made_signatures, [&](const auto& one) { return old(one.second.made); });
    return done;
}

Result<std::vector<std::uint8_t>> Authority::ds_of(const Name& origin) const {
    const std::lock_guard lock(state_->writing);
    const auto at = state_->zones.find(NameKey(origin).text());
    if (at == state_->zones.end() || !at->second->key)
        return Error{Code::not_found, fmt::format("{} is no signed zone", origin.to_text())};
    return at->second->key->ds(origin);
}

} // namespace orrery::dns
