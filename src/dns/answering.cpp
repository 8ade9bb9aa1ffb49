#include "dns/answering.h"

#include <algorithm>
#include <cstring>

namespace orrery::dns {

/// `deepest`: names with more labels are not there.
Located locate(const Snapshot& snapshot, const NameKey& key) {
    const auto labels = key.label_count();
    std::size_t skip = labels > snapshot.deepest ? labels - snapshot.deepest : 0;
    const Entry* entry = nullptr;
    for (; skip <= labels; ++skip) {
        entry = NameTable::find(*snapshot.names, key.hash(skip), key.tail(skip));
        if (entry != nullptr) break;
    }
    if (entry == nullptr) return {};
    while (entry->is(Entry::below_cut)) { // whatever hides it is above, and is there
        ++skip;
        if (const auto* up = NameTable::find(*snapshot.names, key.hash(skip), key.tail(skip))) entry = up;
    }
    if (skip == 0) return {Located::How::exact, entry};
    if (entry->is(Entry::cut)) return {Located::How::delegated, entry};
    if (entry->is(Entry::wildcard_child)) {
        // RFC 4592: the wildcard right below the closest encloser, and no other.
        static constexpr std::array<std::uint8_t, 2> star{1, '*'};
        std::array<std::uint8_t, Name::longest + 2> name;
        const auto tail = key.tail(skip);
        std::memcpy(name.data(), star.data(), 2);
        std::memcpy(&name[2], tail.data(), tail.size());
        const auto* wildcard =
            NameTable::find(*snapshot.names, NameKey::hash_below(key.hash(skip), star), Bytes(name).first(2 + tail.size()));
        if (wildcard != nullptr) return {Located::How::wildcard, wildcard};
    }
    return {Located::How::missing, entry};
}

void Answering::answer() {
    if (query_.dns_class == dns_class::chaos) return chaos();
    if (query_.dns_class != dns_class::in && query_.dns_class != dns_class::any)
        return refuse(Rcode::refused, Detail{extended::not_supported, "class"});
    switch (query_.type) {
    case type::axfr:
    case type::ixfr:
        if (asker_.transport == Asker::Transport::tcp) return no_transfer();
        return refuse(Rcode::notimp, Detail{extended::not_supported, "over TCP only"});
    case type::maila:
    case type::mailb:
    case type::tkey:
    case type::tsig: return refuse(Rcode::notimp, Detail{extended::not_supported, {}});
    case type::nxname: return refuse(Rcode::formerr, Detail{extended::invalid_type, {}}); // RFC 9824 3.5
    default: break;
    }
    const NameKey key(query_.name);
    const auto found = locate(snapshot_, key);
    if (found.how == Located::How::nowhere) return refuse(Rcode::refused, Detail{extended::not_authoritative, {}});
    if (auto& tally = snapshot_.zones[found.entry->zone]->tallies->each[self_.place]; true) {
        tally.queries.add();
        if (found.how == Located::How::missing) tally.nxdomain.add();
    }
    finish.authoritative = query_.dns_class == dns_class::in; // of all classes nobody knows everything
    switch (found.how) {
    case Located::How::missing: return negative(*snapshot_.zones[found.entry->zone], key, nullptr, Rcode::nxdomain);
    case Located::How::delegated: return refer(*found.entry);
    default: break;
    }
    if (found.entry->is(Entry::cut) && query_.type != type::ds) return refer(*found.entry);
    at(*found.entry, key, found.how == Located::How::wildcard);
}

void Answering::no_transfer() {
    const auto found = locate(snapshot_, NameKey(query_.name));
    if (found.how != Located::How::exact || !found.entry->is(Entry::apex))
        return refuse(Rcode::refused, Detail{extended::not_authoritative, {}});
    const auto& allowed = options_.transfer_to;
    const bool may =
        std::any_of(allowed.begin(), allowed.end(), [&](const Prefix& one) { return holds(one, asker_.address, asker_.v6); });
    refuse(Rcode::refused, may ? Detail{extended::other, "too many transfers at once"} : Detail{extended::prohibited, "transfer"});
}

void Answering::refuse(Rcode rcode, std::optional<Detail> why) {
    writer_.clear();
    if (why) detail = why;
    finish.rcode = rcode;
    finish.authoritative = false;
    kind = Kind::error;
}

void Answering::truncate() {
    writer_.clear();
    scope = 0;
    if (asker_.transport == Asker::Transport::tcp) return refuse(Rcode::servfail);
    finish.truncated = true;
}

void Answering::chaos() {
    static const auto version = {*Name::from_text("version.bind"), *Name::from_text("version.server")};
    static const auto identity = {*Name::from_text("id.server"), *Name::from_text("hostname.bind")};
    const auto is_one_of = [&](const auto& names) { return std::find(names.begin(), names.end(), query_.name) != names.end(); };
    std::string_view text;
    if (is_one_of(version)) text = options_.version;
    if (is_one_of(identity)) text = options_.identity;
    if (text.empty()) return refuse(Rcode::refused, Detail{extended::prohibited, {}});
    finish.authoritative = true;
    kind = Kind::positive;
    if (query_.type != type::txt && query_.type != type::any) return;
    std::array<std::uint8_t, 256> data{};
    const auto size = std::min<std::size_t>(text.size(), 255);
    data[0] = static_cast<std::uint8_t>(size);
    std::memcpy(&data[1], text.data(), size);
    if (!writer_.raw(Section::answer, query_.name, type::txt, dns_class::chaos, 0, Bytes(data).first(1 + size))) truncate();
}

void Answering::negative(const ZoneView& zone, const NameKey& key, const Entry* entry, Rcode rcode) {
    finish.rcode = rcode;
    kind = rcode == Rcode::nxdomain ? Kind::nxdomain : Kind::nodata;
    scope = 0;
    if (!soa(zone, key)) return truncate();
    if (is_signed(zone) && !deny(zone, key, query_.name, entry)) truncate();
}

bool Answering::soa(const ZoneView& zone, const NameKey& key) {
    std::array<std::uint8_t, 2 * Name::longest + 64> bytes;
    std::memcpy(bytes.data(), zone.negative.data(), zone.negative.size());
    const auto pointer = 12 + key.size() - zone.origin.size();
    for (std::size_t i = 0; i < zone.patch_count; ++i) {
        bytes[zone.patches[i]] = static_cast<std::uint8_t>(0xC0 | pointer >> 8);
        bytes[zone.patches[i] + 1U] = static_cast<std::uint8_t>(pointer);
    }
    return writer_.records(Section::authority, Bytes(bytes).first(zone.negative.size()), 1);
}

void Answering::refer(const Entry& cut) {
    finish.authoritative = false;
    kind = Kind::referral;
    const auto owner = plain_name(cut.name());
    const auto* set = cut.set(type::ns);
    const auto each_target = [&](auto&& see) {
        RecordViews records(cut.bytes(*set));
        for (RecordView record; records.next(record);)
            if (!see(plain_name(record.data), record.ttl)) return false;
        return true;
    };
    if (!each_target(
            [&](const Name& target, std::uint32_t ttl) { return writer_.name(Section::authority, owner, type::ns, ttl, target); }))
        return truncate();
    if (const auto& zone = *snapshot_.zones[cut.zone]; is_signed(zone)) {
        // The DS, or that there is none.
        const NameKey key(cut.name());
        const auto* proof = cut.set(type::ds) != nullptr ? cut.set(type::ds) : cut.set(type::nsec);
        if (proof == nullptr) return truncate();
        RecordViews records(cut.bytes(*proof));
        for (RecordView record; records.next(record);)
            if (!writer_.raw(Section::authority, owner, proof->type, dns_class::in, record.ttl, record.data)) return truncate();
        if (!sign_set(Section::authority, owner, key, cut, *proof, zone)) return truncate();
    }
    const bool whole = each_target([&](const Name& target, std::uint32_t) {
        const NameKey key(target);
        const auto* glue = NameTable::find(*snapshot_.names, key.hash(), key.tail());
        if (glue == nullptr || glue->zone != cut.zone) return true;
        // RFC 9471: addresses that cannot be had elsewhere are all there, or the answer is truncated.
        const bool needed = target.is_within(owner);
        for (const auto wanted : {type::a, type::aaaa})
            if (const auto* addresses = glue->set(wanted)) {
                RecordViews records(glue->bytes(*addresses));
                for (RecordView record; records.next(record);)
                    if (!writer_.raw(Section::additional, target, wanted, dns_class::in, record.ttl, record.data) && needed)
                        return false;
            }
        return true;
    });
    if (!whole) truncate();
}

Name Answering::plain_name(Bytes wire) {
    Name out;
    std::size_t place = 0;
    out.read(wire, place, Name::Pointers::no);
    return out;
}

void Answering::at(const Entry& entry, const NameKey& key, bool wild) {
    const auto* zone = snapshot_.zones[entry.zone].get();
    if (entry.is(Entry::apex) && query_.type == type::ds && entry.parent_zone != Entry::nowhere)
        zone = snapshot_.zones[entry.parent_zone].get(); // RFC 4035 3.1.4.1
    kind = Kind::positive;
    if (query_.type == type::any) return any(entry, *zone, key);
    if (query_.type == type::a || query_.type == type::aaaa) {
        const auto& quick = entry.quick[query_.type == type::a ? 0 : 1];
        if (quick.cells > 0 && !is_signed(*zone)) {
            const auto record =
                entry.drawn(quick, query_.type == type::a ? ReadyChoice::a_size : ReadyChoice::aaaa_size, self_.dice());
            if (record.empty()) return negative(*zone, key, &entry, Rcode::noerror);
            if (!writer_.records(Section::answer, record, 1)) truncate();
            return;
        }
    }
    if (entry.dynamic && (query_.type == type::a || query_.type == type::aaaa || entry.dynamic->has_alias)) {
        if (dynamic(entry, *zone, key, wild)) return;
    }
    if (const auto* set = entry.set(query_.type)) {
        if (!writer_.records(Section::answer, entry.bytes(*set), set->count) ||
            !sign_set(Section::answer, query_.name, key, entry, *set, *zone))
            truncate();
        return;
    }
    if (entry.is(Entry::alias)) return follow(entry, key, *zone);
    negative(*zone, key, &entry, Rcode::noerror);
}

void Answering::any(const Entry& entry, const ZoneView& zone, const NameKey& key) {
    if (entry.is(Entry::nothing)) return negative(zone, key, &entry, Rcode::noerror);
    if (const auto* alias = entry.set(type::cname)) {
        if (!writer_.records(Section::answer, entry.bytes(*alias), alias->count) ||
            !sign_set(Section::answer, query_.name, key, entry, *alias, zone))
            truncate();
        return;
    }
    static constexpr std::array<std::uint8_t, 21> hinfo{0xC0, 0x0C, 0,   13,  0,   1,   0,   0,   0x0E, 0x10, 0,
                                                        9,    7,    'R', 'F', 'C', '8', '4', '8', '2',  0};
    if (!writer_.records(Section::answer, hinfo, 1) ||
        !sign(Section::answer, query_.name, key, zone, {key.tail(), type::hinfo, 3600, {Bytes(hinfo).subspan(12)}}))
        truncate();
}

void Answering::follow(const Entry& first, const NameKey& first_key, const ZoneView& zone) {
    const auto* entry = &first;
    auto owner = query_.name;
    auto key = first_key;
    std::array<const Entry*, 16> seen;
    for (std::size_t links = 0; links < seen.size(); ++links) {
        if (std::find(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(links), entry) !=
            seen.begin() + static_cast<std::ptrdiff_t>(links))
            return;
        seen[links] = entry;
        const auto& link = *entry->set(type::cname);
        RecordViews records(entry->bytes(link));
        RecordView alias;
        records.next(alias);
        const auto target = plain_name(alias.data);
        if (!writer_.name(Section::answer, owner, type::cname, alias.ttl, target) ||
            !sign_set(Section::answer, owner, key, *entry, link, zone))
            return truncate();
        key = NameKey(target);
        const auto found = locate(snapshot_, key);
        if (found.how == Located::How::nowhere || found.how == Located::How::delegated || found.entry->zone != first.zone ||
            found.entry->is(Entry::cut))
            return;
        owner = target;
        entry = found.entry;
        if (found.how == Located::How::missing) return end_of_chain(zone, key, owner, nullptr, Rcode::nxdomain);
        if (entry->dynamic && (entry->dynamic->by_client || entry->dynamic->has_alias)) return;
        if (entry->is(Entry::alias)) continue;
        if (entry->dynamic && (query_.type == type::a || query_.type == type::aaaa)) return chain_dynamic(*entry, owner, key, zone);
        const auto* set = entry->set(query_.type);
        if (set == nullptr) return end_of_chain(zone, key, owner, entry, Rcode::noerror);
        RecordViews last(entry->bytes(*set));
        for (RecordView record; last.next(record);)
            if (!writer_.raw(Section::answer, owner, query_.type, dns_class::in, record.ttl, record.data)) return truncate();
        if (!sign_set(Section::answer, owner, key, *entry, *set, zone)) truncate();
        return;
    }
}

void Answering::end_of_chain(const ZoneView& zone, const NameKey& key, const Name& owner, const Entry* entry, Rcode rcode) {
    finish.rcode = rcode;
    kind = rcode == Rcode::nxdomain ? Kind::nxdomain : Kind::nodata;
    if (!writer_.soa(Section::authority, zone.name, zone.negative_ttl, zone.soa)) return truncate();
    if (is_signed(zone) && !deny(zone, key, owner, entry)) truncate();
}

} // namespace orrery::dns
