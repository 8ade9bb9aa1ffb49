#include "dns/snapshot.h"

#include <algorithm>
#include <cstring>

namespace orrery::dns {

std::uint32_t read32(Bytes bytes, std::size_t at) {
    return std::uint32_t{bytes[at]} << 24 | std::uint32_t{bytes[at + 1]} << 16 | std::uint32_t{bytes[at + 2]} << 8 | bytes[at + 3];
}

const StaticSet* set_in(const StaticSets& sets, std::uint16_t wanted) {
    for (const auto& set : sets)
        if (set.type == wanted) return &set;
    return nullptr;
}

namespace {

void write32(std::span<std::uint8_t> bytes, std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::uint8_t>(value >> 8 * (3 - i));
}

/// One choice for all that gives all its candidates: as good as static, and quicker.
bool is_plain(const Tailored& tailored) {
    const auto& first = tailored.choices.front();
    return tailored.choices.size() == 1 && tailored.by_client.empty() && first.picking == Picking::all && first.most == 0 &&
           !first.alias && !first.candidates.empty() && first.remark.empty();
}

void make_quick(const Dynamic& dynamic, Entry& entry, std::vector<std::uint8_t>& bytes) {
    const auto& ready = dynamic.choices.front();
    if (dynamic.choices.size() != 1 || dynamic.by_client || dynamic.has_alias || ready.choice.picking != Picking::one ||
        ready.choice.candidates.empty() || !ready.choice.remark.empty())
        return;
    const auto& cells = ready.table.cells();
    for (std::size_t i = 0; i < 2; ++i) {
        const auto& family = i == 0 ? ready.v4 : ready.v6;
        if (family.all_count == 0) continue;
        entry.quick[i] = {static_cast<std::uint32_t>(bytes.size()), static_cast<std::uint16_t>(cells.size())};
        for (std::size_t k = 0; k < cells.size(); ++k) {
            // One that keeps everything has itself as the other.
            const Entry::Quick::Cell cell{static_cast<std::uint32_t>(std::min<std::uint64_t>(cells[k].keep, 0xFFFFFFFF)),
                                          family.place_of[k], family.place_of[cells[k].other]};
            const auto* from = reinterpret_cast<const std::uint8_t*>(&cell);
            bytes.insert(bytes.end(), from, from + sizeof cell);
        }
        bytes.insert(bytes.end(), family.all.begin(), family.all.end());
    }
}

} // namespace

Name name_of_key(std::string_view key) {
    Name out;
    std::size_t at = 0;
    out.read(bytes_of(key), at, Name::Pointers::no);
    return out;
}

bool is_below(std::string_view key, std::string_view zone) {
    while (key.size() > zone.size()) key = above(key);
    return key == zone;
}

void Authority::State::replace_statics(ZoneState& zone, Statics statics, Dirty& dirty) {
    const auto before = std::exchange(zone.statics, std::move(statics));
    std::unordered_set<std::string> cuts;
    for (const auto& [key, sets] : zone.statics)
        if (key != zone.origin && set_in(sets, type::ns) != nullptr) cuts.insert(key);
    if (cuts != zone.cuts) { // what was hidden may be seen, and the other way round
        rebuild_places(zone, dirty);
        return;
    }
    for (const auto& [key, sets] : before)
        if (!zone.statics.contains(key)) update_place(zone, key, dirty);
    for (const auto& [key, sets] : zone.statics) {
        const auto was = before.find(key);
        if (was == before.end() || was->second != sets) update_place(zone, key, dirty);
    }
}

void Authority::State::rebuild_places(ZoneState& zone, Dirty& dirty) {
    const auto before = std::exchange(zone.places, {});
    names -= before.size();
    zone.cuts.clear();
    for (const auto& [key, sets] : zone.statics)
        if (key != zone.origin && set_in(sets, type::ns) != nullptr) zone.cuts.insert(key);
    for (const auto& [key, sets] : zone.statics) update_place(zone, key, dirty);
    for (const auto& [key, tailored] : zone.dynamics) update_place(zone, key, dirty);
    // Names between us and zones below us exist, even if only for that.
    for (const auto& [key, other] : zones)
        if (other.get() != &zone && other && key.size() > zone.origin.size() && is_below(key, zone.origin) &&
            zone_of(above(key)) == &zone)
            add_below(zone, std::string(above(key)), dirty);
    for (const auto& [key, place] : before)
        if (!zone.places.contains(key)) dirty.names[&zone].insert(key);
    for (const auto& [key, place] : zone.places) dirty.names[&zone].insert(key);
}

/// One more right below `key`.
void Authority::State::add_below(ZoneState& zone, const std::string& key, Dirty& dirty) {
    const auto [at, is_new] = zone.places.try_emplace(key);
    ++at->second.children;
    if (!is_new) return;
    ++names;
    dirty.names[&zone].insert(key);
    if (key != zone.origin) add_below(zone, std::string(above(key)), dirty);
}

void Authority::State::drop_below(ZoneState& zone, const std::string& key, Dirty& dirty) {
    const auto at = zone.places.find(key);
    if (at == zone.places.end()) return;
    if (at->second.children > 0) --at->second.children;
    if (at->second.children > 0 || at->second.data) return;
    zone.places.erase(at);
    --names;
    dirty.names[&zone].insert(key);
    if (key != zone.origin) drop_below(zone, std::string(above(key)), dirty);
}

/// After static or dynamic data at a name came, went or changed.
void Authority::State::update_place(ZoneState& zone, const std::string& key, Dirty& dirty) {
    if (auto* holder = zone_of(key); holder != &zone) {
        // Of a zone below: only its DS is ours to say.
        if (holder != nullptr && holder->origin == key) dirty.names[holder].insert(key);
        return;
    }
    const auto has_data = zone.statics.contains(key) || zone.dynamics.contains(key);
    dirty.names[&zone].insert(key);
    if (key.size() > 2 && key[0] == 1 && key[1] == '*') dirty.names[&zone].insert(std::string(above(key)));
    if (has_data) {
        const auto [at, is_new] = zone.places.try_emplace(key);
        at->second.data = true;
        if (!is_new) return;
        ++names;
        if (key != zone.origin) add_below(zone, std::string(above(key)), dirty);
        return;
    }
    const auto at = zone.places.find(key);
    if (at == zone.places.end()) return;
    at->second.data = false;
    if (at->second.children > 0) return;
    zone.places.erase(at);
    --names;
    if (key != zone.origin) drop_below(zone, std::string(above(key)), dirty);
}

/// Makes the entry of a name anew, or takes it away.
void Authority::State::remake(ZoneState& zone, const std::string& key) {
    const NameKey name(bytes_of(key));
    if (!zone.places.contains(key)) {
        // Unless a zone below has it now.
        const auto* there = table.find(name.hash(), bytes_of(key));
        if (there != nullptr && there->zone == zone.number) table.erase(name.hash(), bytes_of(key));
        return;
    }
    oldest_signature = now();
    Entry entry;
    entry.hash = name.hash();
    entry.zone = zone.number;
    std::vector<Entry::Set> sets;
    std::vector<std::uint8_t> bytes;
    const auto flag = [&](Entry::Flag which) { entry.flags = static_cast<std::uint8_t>(entry.flags | which); };
    const auto add = [&](std::uint16_t record_type, std::uint32_t ttl, const auto& all_data) {
        Entry::Set set{.type = record_type, .at = static_cast<std::uint32_t>(bytes.size())};
        for (const auto& data : all_data) {
            append_record(bytes, record_type, ttl, Bytes(data));
            ++set.count;
        }
        set.size = static_cast<std::uint32_t>(bytes.size()) - set.at;
        sets.push_back(set);
    };
    if (key == zone.origin) flag(Entry::apex);
    if (zone.cuts.contains(key)) flag(Entry::cut);
    for (std::string_view up = key; up.size() > zone.origin.size();) {
        up = above(up);
        if (zone.cuts.contains(std::string(up))) flag(Entry::below_cut);
    }
    if (zone.places.contains(std::string("\1*") + key)) flag(Entry::wildcard_child);
    if (key.size() > 2 && key[0] == 1 && key[1] == '*') flag(Entry::is_wildcard);
    if (const auto at = zone.statics.find(key); at != zone.statics.end())
        for (const auto& set : at->second) {
            if (set.type == type::cname) flag(Entry::alias);
            if (set.type == type::soa) {
                auto data = set.data;
                write32(data[0], data[0].size() - 20, zone.serial);
                add(set.type, set.ttl, data);
            } else if (!(entry.is(Entry::apex) && set.type == type::ds)) {
                add(set.type, set.ttl, set.data);
            }
        }
    if (entry.is(Entry::apex) && key.size() > 1)
        if (const auto* parent = zone_of(above(key))) {
            entry.parent_zone = parent->number;
            if (const auto at = parent->statics.find(key); at != parent->statics.end())
                if (const auto* ds = set_in(at->second, type::ds)) add(ds->type, ds->ttl, ds->data);
        }
    if (zone.key && entry.is(Entry::apex)) {
        const auto ttl = set_in(zone.statics.at(zone.origin), type::soa)->ttl;
        const auto own = [&](std::uint16_t record_type, std::vector<std::uint8_t> data) {
            std::erase_if(sets, [&](const Entry::Set& set) {
                return set.type == record_type;
            }); // what the file says of other keys does not hold here
            add(record_type, ttl, std::vector<std::vector<std::uint8_t>>{std::move(data)});
        };
        own(type::dnskey, zone.key->dnskey());
        own(type::cdnskey, zone.key->dnskey());
        own(type::cds, zone.key->ds(zone.name));
    }
    if (const auto at = zone.dynamics.find(key); at != zone.dynamics.end()) {
        auto dynamic = std::make_unique<Dynamic>(at->second);
        if (is_plain(*at->second)) {
            const auto& choice = dynamic->choices.front();
            const auto move = [&](std::uint16_t record_type, const ReadyChoice::Family& family) {
                if (family.all_count == 0) return;
                sets.push_back({.type = record_type,
                                .count = family.all_count,
                                .at = static_cast<std::uint32_t>(bytes.size()),
                                .size = static_cast<std::uint32_t>(family.all.size())});
                bytes.insert(bytes.end(), family.all.begin(), family.all.end());
            };
            move(type::a, choice.v4);
            move(type::aaaa, choice.v6);
        } else {
            if (zone.key && !entry.is(Entry::is_wildcard)) sign_dynamic(zone, name, *dynamic);
            make_quick(*dynamic, entry, bytes);
            entry.dynamic = std::move(dynamic);
        }
    }
    if (sets.empty() && !entry.dynamic) flag(Entry::nothing);
    if (!entry.is(Entry::below_cut)) {
        const auto* parent = entry.parent_zone != Entry::nowhere ? zone_of(above(key)) : nullptr;
        if (zone.key || (parent != nullptr && parent->key)) {
            sign_sets(zone, name, entry, sets, bytes);
            zone.places.at(key).signed_at = oldest_signature;
        }
    }
    deepest = std::max(deepest, name.label_count());
    table.set(make_entry(table.memory(), std::move(entry), name.tail(), sets, bytes));
}

std::shared_ptr<const ZoneView> Authority::State::view_of(const ZoneState& zone) const {
    auto out = std::make_shared<ZoneView>();
    out->origin = zone.origin;
    out->name = zone.name;
    out->tallies = zone.tallies;
    const auto& soa = *set_in(zone.statics.at(zone.origin), type::soa);
    const Bytes data(soa.data[0]);
    auto& bytes = out->negative;
    const auto ttl = std::min(soa.ttl, read32(data, data.size() - 4)); // RFC 2308 3
    out->negative_ttl = ttl;
    append_record(bytes, type::soa, ttl, {});
    out->patches[out->patch_count++] = 0;
    std::size_t at = 0;
    for (int i = 0; i < 2; ++i) {
        Name name;
        name.read(data, at, Name::Pointers::no);
        (i == 0 ? out->soa.mname : out->soa.rname) = name;
        const NameKey lowered(name);
        if (is_below(lowered.text(), zone.origin) && zone.origin.size() > 1) {
            const auto own = name.wire().first(name.size() - zone.origin.size());
            bytes.insert(bytes.end(), own.begin(), own.end());
            out->patches[out->patch_count++] = static_cast<std::uint16_t>(bytes.size());
            bytes.insert(bytes.end(), {0xC0, 0});
        } else {
            bytes.insert(bytes.end(), name.wire().begin(), name.wire().end());
        }
    }
    bytes.insert(bytes.end(), data.end() - 20, data.end());
    write32(bytes, bytes.size() - 20, zone.serial);
    out->soa.serial = zone.serial;
    out->soa.refresh = read32(data, at + 4);
    out->soa.retry = read32(data, at + 8);
    out->soa.expire = read32(data, at + 12);
    out->soa.minimum = read32(data, at + 16);
    if (zone.key) {
        auto with_serial = soa.data[0];
        write32(with_serial, with_serial.size() - 20, zone.serial);
        out->key = zone.key;
        out->soa_signature = signature(zone, {bytes_of(zone.origin), type::soa, soa.ttl, {Bytes(with_serial)}});
    }
    bytes[10] = static_cast<std::uint8_t>((bytes.size() - 12) >> 8);
    bytes[11] = static_cast<std::uint8_t>(bytes.size() - 12);
    return out;
}

} // namespace orrery::dns
