#include "dns/authority_state.h"

#include <algorithm>

namespace orrery::dns {

namespace {

/// Does the dynamic name give all its candidates to all clients? Its records are then served like static ones, which is faster.
bool is_static_equivalent(const DynamicName& dynamic_name) {
    const auto& first = dynamic_name.answer_sets.front();
    return dynamic_name.answer_sets.size() == 1 && dynamic_name.client_rules.empty() && first.policy == SelectionPolicy::all &&
           first.max_answers == 0 && !first.alias && !first.candidates.empty() && first.extended_error.empty();
}

/// An entry under construction.
struct EntryParts {
    Entry fields;
    std::vector<Entry::Rrset> rrsets;
    std::vector<std::uint8_t> bytes;

    void set_flag(Entry::Flag flag) { fields.flags = static_cast<std::uint8_t>(fields.flags | flag); }
    void add_rrset(std::uint16_t record_type, std::uint32_t ttl, const std::vector<std::vector<std::uint8_t>>& records) {
        Entry::Rrset rrset{.type = record_type, .offset = static_cast<std::uint32_t>(bytes.size())};
        for (const auto& data : records) {
            append_record(bytes, record_type, ttl, Bytes(data));
            ++rrset.count;
        }
        rrset.size = static_cast<std::uint32_t>(bytes.size()) - rrset.offset;
        rrsets.push_back(rrset);
    }
    void add_encoded_rrset(std::uint16_t record_type, const CompiledAnswerSet::Family& family) {
        if (family.record_count == 0) return;
        rrsets.push_back({.type = record_type,
                          .count = family.record_count,
                          .offset = static_cast<std::uint32_t>(bytes.size()),
                          .size = static_cast<std::uint32_t>(family.records.size())});
        bytes.insert(bytes.end(), family.records.begin(), family.records.end());
    }
    void add_inline_tables(const CompiledDynamicName& dynamic);
};

/// Adds the fast path of Entry::InlineTable if the dynamic name qualifies for it.
void EntryParts::add_inline_tables(const CompiledDynamicName& dynamic) {
    const auto& compiled = dynamic.answer_sets.front();
    const auto& answer_set = compiled.answer_set;
    if (dynamic.answer_sets.size() != 1 || dynamic.depends_on_client || dynamic.has_alias ||
        answer_set.policy != SelectionPolicy::weighted || answer_set.candidates.empty() || !answer_set.extended_error.empty())
        return;
    for (std::size_t i = 0; i < 2; ++i) {
        const auto& family = i == 0 ? compiled.v4 : compiled.v6;
        if (family.record_count == 0) continue;
        const auto& cells = family.alias_table.cells();
        fields.inline_tables[i] = {static_cast<std::uint32_t>(bytes.size()), static_cast<std::uint16_t>(cells.size())};
        for (std::size_t k = 0; k < cells.size(); ++k) {
            // A cell that keeps everything (2^32) has itself as the other, so the clamp to 32 bits changes nothing.
            const Entry::InlineTable::Cell cell{static_cast<std::uint32_t>(std::min<std::uint64_t>(cells[k].keep, 0xFFFFFFFF)),
                                                family.record_of[k], family.record_of[cells[k].other]};
            const auto* from = reinterpret_cast<const std::uint8_t*>(&cell);
            bytes.insert(bytes.end(), from, from + sizeof cell);
        }
        bytes.insert(bytes.end(), family.records.begin(), family.records.end());
    }
}

void set_flags(const ZoneState& zone, const std::string& key, EntryParts& parts) {
    if (key == zone.origin) parts.set_flag(Entry::apex);
    if (zone.cuts.contains(key)) parts.set_flag(Entry::cut);
    for (std::string_view up = key; up.size() > zone.origin.size();) {
        up = parent_key(up);
        if (zone.cuts.contains(std::string(up))) parts.set_flag(Entry::below_cut);
    }
    if (zone.existing_names.contains(std::string("\1*") + key)) parts.set_flag(Entry::has_wildcard_child);
    if (is_wildcard_key(key)) parts.set_flag(Entry::is_wildcard);
}

void add_static_records(const ZoneState& zone, const std::string& key, EntryParts& parts) {
    const auto at = zone.static_records.find(key);
    if (at == zone.static_records.end()) return;
    for (const auto& rrset : at->second) {
        if (rrset.type == type::cname) parts.set_flag(Entry::has_cname);
        if (rrset.type == type::soa) {
            auto data = rrset.data;
            write32(data[0], data[0].size() - soa_serial_from_end, zone.serial);
            parts.add_rrset(rrset.type, rrset.ttl, data);
        } else if (!(parts.fields.is(Entry::apex) && rrset.type == type::ds)) {
            parts.add_rrset(rrset.type, rrset.ttl, rrset.data);
        }
    }
}

/// The DS records at the apex come from the parent zone.
void add_parent_ds(const ZoneState& parent, const std::string& key, EntryParts& parts) {
    parts.fields.parent_zone = parent.number;
    const auto at = parent.static_records.find(key);
    if (at == parent.static_records.end()) return;
    if (const auto* ds = find_rrset(at->second, type::ds)) parts.add_rrset(ds->type, ds->ttl, ds->data);
}

/// DNSKEY, CDNSKEY and CDS of the zone's key replace those of the zone file.
void add_key_records(const ZoneState& zone, EntryParts& parts) {
    const auto ttl = find_rrset(zone.static_records.at(zone.origin), type::soa)->ttl;
    const auto replace = [&](std::uint16_t record_type, std::vector<std::uint8_t> data) {
        std::erase_if(parts.rrsets, [&](const Entry::Rrset& rrset) { return rrset.type == record_type; });
        parts.add_rrset(record_type, ttl, {std::move(data)});
    };
    replace(type::dnskey, zone.key->dnskey());
    replace(type::cdnskey, zone.key->dnskey());
    replace(type::cds, zone.key->ds(zone.name));
}

} // namespace

void Authority::State::replace_static_records(ZoneState& zone, StaticRecords static_records, Dirty& dirty) {
    const auto before = std::exchange(zone.static_records, std::move(static_records));
    std::unordered_set<std::string> cuts;
    for (const auto& [key, rrsets] : zone.static_records)
        if (key != zone.origin && find_rrset(rrsets, type::ns) != nullptr) cuts.insert(key);
    if (cuts != zone.cuts) { // names below a cut may become visible or occluded
        rebuild_existing_names(zone, dirty);
        return;
    }
    for (const auto& [key, rrsets] : before)
        if (!zone.static_records.contains(key)) update_existing_name(zone, key, dirty);
    for (const auto& [key, rrsets] : zone.static_records) {
        const auto old = before.find(key);
        if (old == before.end() || old->second != rrsets) update_existing_name(zone, key, dirty);
    }
}

void Authority::State::rebuild_existing_names(ZoneState& zone, Dirty& dirty) {
    const auto before = std::exchange(zone.existing_names, {});
    name_count -= before.size();
    zone.cuts.clear();
    for (const auto& [key, rrsets] : zone.static_records)
        if (key != zone.origin && find_rrset(rrsets, type::ns) != nullptr) zone.cuts.insert(key);
    for (const auto& [key, rrsets] : zone.static_records) update_existing_name(zone, key, dirty);
    for (const auto& [key, dynamic_name] : zone.dynamic_names) update_existing_name(zone, key, dirty);
    // The names between this zone and its child zones exist as empty non-terminals.
    for (const auto& [key, other] : zones)
        if (other.get() != &zone && other && key.size() > zone.origin.size() && is_at_or_below(key, zone.origin) &&
            parent_zone_of(key) == &zone)
            add_child(zone, std::string(parent_key(key)), dirty);
    for (const auto& [key, name] : before)
        if (!zone.existing_names.contains(key)) dirty.names[&zone].insert(key);
    for (const auto& [key, name] : zone.existing_names) dirty.names[&zone].insert(key);
}

void Authority::State::add_child(ZoneState& zone, const std::string& key, Dirty& dirty) {
    const auto [at, is_new] = zone.existing_names.try_emplace(key);
    ++at->second.children;
    if (!is_new) return;
    ++name_count;
    dirty.names[&zone].insert(key);
    if (key != zone.origin) add_child(zone, std::string(parent_key(key)), dirty);
}

void Authority::State::remove_child(ZoneState& zone, const std::string& key, Dirty& dirty) {
    const auto at = zone.existing_names.find(key);
    if (at == zone.existing_names.end()) return;
    if (at->second.children > 0) --at->second.children;
    if (at->second.children > 0 || at->second.has_data) return;
    zone.existing_names.erase(at);
    --name_count;
    dirty.names[&zone].insert(key);
    if (key != zone.origin) remove_child(zone, std::string(parent_key(key)), dirty);
}

void Authority::State::update_existing_name(ZoneState& zone, const std::string& key, Dirty& dirty) {
    if (auto* holder = zone_of(key); holder != &zone) {
        // The name belongs to a child zone; only DS records at its apex come from this zone.
        if (holder != nullptr && holder->origin == key) dirty.names[holder].insert(key);
        return;
    }
    dirty.names[&zone].insert(key);
    if (is_wildcard_key(key)) dirty.names[&zone].insert(std::string(parent_key(key)));
    if (zone.static_records.contains(key) || zone.dynamic_names.contains(key)) {
        const auto [at, is_new] = zone.existing_names.try_emplace(key);
        at->second.has_data = true;
        if (!is_new) return;
        ++name_count;
        if (key != zone.origin) add_child(zone, std::string(parent_key(key)), dirty);
        return;
    }
    const auto at = zone.existing_names.find(key);
    if (at == zone.existing_names.end()) return;
    at->second.has_data = false;
    if (at->second.children > 0) return;
    zone.existing_names.erase(at);
    --name_count;
    if (key != zone.origin) remove_child(zone, std::string(parent_key(key)), dirty);
}

void Authority::State::rebuild_entry(ZoneState& zone, const std::string& key) {
    const NameKey name(bytes_of(key));
    if (!zone.existing_names.contains(key)) {
        // Keep the entry if the name now belongs to a child zone.
        const auto* current = table.find(name.hash(), bytes_of(key));
        if (current != nullptr && current->zone == zone.number) table.erase(name.hash(), bytes_of(key));
        return;
    }
    zone_signatures.reset_oldest(now());
    EntryParts parts;
    auto& entry = parts.fields;
    entry.hash = name.hash();
    entry.zone = zone.number;
    set_flags(zone, key, parts);
    add_static_records(zone, key, parts);
    const auto* parent = entry.is(Entry::apex) ? parent_zone_of(key) : nullptr;
    if (parent != nullptr) add_parent_ds(*parent, key, parts);
    if (zone.key && entry.is(Entry::apex)) add_key_records(zone, parts);
    if (const auto at = zone.dynamic_names.find(key); at != zone.dynamic_names.end()) {
        auto dynamic = std::make_unique<CompiledDynamicName>(at->second);
        if (is_static_equivalent(*at->second)) {
            parts.add_encoded_rrset(type::a, dynamic->answer_sets.front().v4);
            parts.add_encoded_rrset(type::aaaa, dynamic->answer_sets.front().v6);
        } else {
            if (zone.key && !entry.is(Entry::is_wildcard)) sign_dynamic_name(zone, name, *dynamic);
            parts.add_inline_tables(*dynamic);
            entry.dynamic = std::move(dynamic);
        }
    }
    if (parts.rrsets.empty() && !entry.dynamic) parts.set_flag(Entry::empty_non_terminal);
    if (!entry.is(Entry::below_cut) && (zone.key || (parent != nullptr && parent->key))) {
        if (zone.key) add_nsec(zone, name, entry, parts.rrsets, parts.bytes);
        sign_rrsets(zone, name, entry, parts.rrsets, parts.bytes);
        zone.existing_names.at(key).signed_at = zone_signatures.oldest();
    }
    max_labels = std::max(max_labels, name.label_count());
    table.set(make_entry(table.memory(), std::move(entry), name.suffix(), parts.rrsets, parts.bytes));
}

std::shared_ptr<const ZoneView> Authority::State::make_zone_view(const ZoneState& zone) const {
    auto out = std::make_shared<ZoneView>();
    out->origin = zone.origin;
    out->name = zone.name;
    out->counters = zone.counters;
    const auto& soa = *find_rrset(zone.static_records.at(zone.origin), type::soa);
    const Bytes data(soa.data[0]);
    auto& bytes = out->negative;
    const auto ttl = std::min(soa.ttl, read32(data, data.size() - 4)); // RFC 2308 section 3
    out->negative_ttl = ttl;
    append_record(bytes, type::soa, ttl, {});
    out->pointer_offsets[out->pointer_count++] = 0;
    std::size_t at = 0;
    for (int i = 0; i < 2; ++i) {
        Name name;
        name.read(data, at, Name::Pointers::no);
        (i == 0 ? out->soa.mname : out->soa.rname) = name;
        if (is_at_or_below(NameKey(name).text(), zone.origin) && zone.origin.size() > 1) {
            const auto own_labels = name.wire().first(name.size() - zone.origin.size());
            bytes.insert(bytes.end(), own_labels.begin(), own_labels.end());
            out->pointer_offsets[out->pointer_count++] = static_cast<std::uint16_t>(bytes.size());
            bytes.insert(bytes.end(), {0xC0, 0});
        } else {
            bytes.insert(bytes.end(), name.wire().begin(), name.wire().end());
        }
    }
    bytes.insert(bytes.end(), data.end() - soa_serial_from_end, data.end());
    write32(bytes, bytes.size() - soa_serial_from_end, zone.serial);
    out->soa.serial = zone.serial;
    out->soa.refresh = read32(data, at + 4);
    out->soa.retry = read32(data, at + 8);
    out->soa.expire = read32(data, at + 12);
    out->soa.minimum = read32(data, at + 16);
    if (zone.key) {
        auto with_serial = soa.data[0];
        write32(with_serial, with_serial.size() - soa_serial_from_end, zone.serial);
        out->key = zone.key;
        out->soa_signature = signature(zone, {bytes_of(zone.origin), type::soa, soa.ttl, {Bytes(with_serial)}});
    }
    bytes[10] = static_cast<std::uint8_t>((bytes.size() - 12) >> 8);
    bytes[11] = static_cast<std::uint8_t>(bytes.size() - 12);
    return out;
}

} // namespace orrery::dns
