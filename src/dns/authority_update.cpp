#include "dns/authority_state.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::dns {

namespace {

StaticRecords static_records_of(const Zone& zone) {
    StaticRecords out;
    for (const auto& record : zone.records) {
        auto& rrsets = out[NameKey(record.owner).text()];
        auto rrset = std::find_if(rrsets.begin(), rrsets.end(), [&](const StaticRrset& one) { return one.type == record.type; });
        if (rrset == rrsets.end()) rrset = rrsets.insert(rrsets.end(), {record.type, record.ttl, {}});
        rrset->data.push_back(record.data);
    }
    return out;
}

Result<Unit> check_dynamic_name(const std::string& name, const DynamicName& dynamic_name) {
    const auto bad = [&](std::string problem) { return Error{Code::invalid, fmt::format("{}: {}", name, problem)}; };
    const auto& answer_sets = dynamic_name.answer_sets;
    if (answer_sets.empty()) return bad("it has no answer set");
    if (answer_sets.size() > Authority::max_answer_sets) return bad(fmt::format("over {} answer sets", Authority::max_answer_sets));
    if (dynamic_name.client_rules.size() > Authority::max_rules)
        return bad(fmt::format("over {} client rules", Authority::max_rules));
    for (const auto& answer_set : answer_sets) {
        if (answer_set.candidates.size() > Authority::max_candidates)
            return bad(fmt::format("over {} candidates in an answer set", Authority::max_candidates));
        if (answer_set.alias && !answer_set.candidates.empty()) return bad("an answer set has an alias and addresses");
        if (answer_set.ttl > 0x7FFFFFFF) return bad("a TTL is over 2147483647");
        if (answer_set.extended_error.size() > 64) return bad("the text of an extended error is over 64 bytes");
    }
    if (const auto& clients = dynamic_name.clients) {
        if (!dynamic_name.client_rules.empty()) return bad("it has both client rules and a client table");
        if (std::max(clients->v4.max_answer_set(), clients->v6.max_answer_set()) >= answer_sets.size())
            return bad("the client table refers to an answer set that does not exist");
    }
    for (const auto& rule : dynamic_name.client_rules) {
        if (rule.answer_set >= answer_sets.size()) return bad("a client rule refers to an answer set that does not exist");
        if (rule.prefix.length > (rule.prefix.v6 ? 128 : 32)) return bad("a prefix is longer than an address");
    }
    return Unit{};
}

/// The conflict of a dynamic name with the static records of its zone; empty if there is none.
std::string conflict_of(const DynamicName& dynamic_name, const std::string& key, const std::string& origin,
                        const StaticRecords& static_records) {
    const auto& answer_sets = dynamic_name.answer_sets;
    const bool has_alias =
        std::any_of(answer_sets.begin(), answer_sets.end(), [](const AnswerSet& one) { return one.alias.has_value(); });
    if (has_alias && key == origin) return "the origin of a zone cannot have an alias";
    for (std::string_view up = key; up.size() > origin.size(); up = parent_key(up)) {
        const auto at = static_records.find(std::string(up));
        if (at != static_records.end() && find_rrset(at->second, type::ns) != nullptr)
            return fmt::format("{} is delegated", name_from_key(up).to_text());
    }
    const auto at = static_records.find(key);
    if (at == static_records.end()) return {};
    if (has_alias) return "its zone has records at the same name, and an alias allows no other records";
    for (const auto wanted : {type::a, type::aaaa, type::cname})
        if (find_rrset(at->second, wanted) != nullptr) return fmt::format("its zone has {} records at it", type_name(wanted));
    return {};
}

} // namespace

Result<Unit> Authority::State::validate(const Update& update, const StagedZones& staged) const {
    std::unordered_set<std::string> removed_zones, changed_names;
    for (const auto& name : update.removed_zones) removed_zones.insert(NameKey(name).text());
    const auto deepest_zone = [&](std::string_view key) -> std::optional<std::string> {
        for (;;) {
            std::string here(key);
            if (staged.contains(here) || (zones.contains(here) && !removed_zones.contains(here))) return here;
            if (key.size() == 1) return std::nullopt;
            key = parent_key(key);
        }
    };
    const auto static_records_at = [&](const std::string& origin) -> const StaticRecords& {
        const auto at = staged.find(origin);
        return at != staged.end() ? at->second : zones.at(origin)->static_records;
    };
    for (const auto& name : update.removed_names) changed_names.insert(NameKey(name).text());
    for (const auto& [name, signing_key] : update.signing_keys)
        if (const auto key = NameKey(name).text(); !staged.contains(key) && (!zones.contains(key) || removed_zones.contains(key)))
            return Error{Code::invalid, fmt::format("there is no zone {} to sign", name.to_text()), "add the zone first"};
    for (const auto& [name, dynamic_name] : update.dynamic_names) {
        TRY(std::ignore, check_dynamic_name(name.to_text(), dynamic_name));
        const auto key = NameKey(name).text();
        changed_names.insert(key);
        const auto origin = deepest_zone(key);
        if (!origin)
            return Error{Code::invalid, fmt::format("{} is in no zone of this server", name.to_text()), "add its zone first"};
        if (const auto conflict = conflict_of(dynamic_name, key, *origin, static_records_at(*origin)); !conflict.empty())
            return Error{Code::invalid, fmt::format("{} cannot be a dynamic name: {}", name.to_text(), conflict)};
    }
    // Existing dynamic names must not conflict with new or changed zones.
    for (const auto& [origin, static_records] : staged) {
        const auto* before = zone_of(origin);
        if (before == nullptr || removed_zones.contains(before->origin)) continue;
        for (const auto& [key, dynamic_name] : before->dynamic_names) {
            if (changed_names.contains(key) || deepest_zone(key) != origin) continue;
            if (const auto conflict = conflict_of(*dynamic_name, key, origin, static_records); !conflict.empty())
                return Error{Code::invalid, fmt::format("the zone {} conflicts with the dynamic name {}: {}",
                                                        name_from_key(origin).to_text(), name_from_key(key).to_text(), conflict)};
        }
    }
    return Unit{};
}

void Authority::State::remove_zone(const std::string& key, Dirty& dirty) {
    const auto at = zones.find(key);
    if (at == zones.end()) return;
    const auto removed = std::move(at->second);
    zones.erase(at);
    for (const auto& [name, ignored] : removed->existing_names) table.erase(NameKey(bytes_of(name)).hash(), bytes_of(name));
    name_count -= removed->existing_names.size();
    ++change_count;
    dirty.names.erase(removed.get());
    dirty.zones.erase(removed.get());
    if (auto* parent = parent_zone_of(removed->origin)) {
        rebuild_existing_names(*parent, dirty);
        dirty.add_zone(*parent);
    }
}

std::uint32_t Authority::State::unused_zone_number() const {
    std::unordered_set<std::uint32_t> used;
    for (const auto& [key, zone] : zones)
        if (zone) used.insert(zone->number);
    std::uint32_t out = 0;
    while (used.contains(out)) ++out;
    return out;
}

void Authority::State::add_zone(const std::string& key, StaticRecords static_records, Dirty& dirty) {
    const auto number = unused_zone_number();
    auto& zone = zones[key];
    zone = std::make_unique<ZoneState>();
    zone->number = number;
    zone->origin = key;
    zone->name = name_from_key(key);
    zone->counters = std::make_shared<ZoneCounters>(epochs.slot_count());
    if (auto* parent = parent_zone_of(key)) {
        // Dynamic names of the parent at or below the origin move to the new zone.
        std::erase_if(parent->dynamic_names, [&](auto& one) {
            if (!is_at_or_below(one.first, key)) return false;
            zone->dynamic_names.emplace(one.first, std::move(one.second));
            return true;
        });
        rebuild_existing_names(*parent, dirty);
        dirty.add_zone(*parent);
    }
    zone->static_records = std::move(static_records);
    rebuild_existing_names(*zone, dirty);
    dirty.add_zone(*zone);
}

void Authority::State::set_signing_key(ZoneState& zone, std::shared_ptr<const SigningKey> key, Dirty& dirty) {
    zone.key = std::move(key);
    rebuild_existing_names(zone, dirty);
    dirty.add_zone(zone);
    // The apex of a child zone holds the DS records, which this zone signs.
    for (const auto& [origin, other] : zones)
        if (other.get() != &zone && parent_zone_of(origin) == &zone) dirty.names[other.get()].insert(origin);
}

Result<Unit> Authority::State::apply(Update update) {
    StagedZones staged;
    for (auto& zone : update.zones) {
        auto checked = check_zone(zone);
        if (!checked.ok()) return std::move(checked).error().within(fmt::format("zone {}", zone.origin.to_text()));
        staged.insert_or_assign(NameKey(zone.origin).text(), static_records_of(zone));
    }
    const std::lock_guard lock(write_mutex);
    TRY(std::ignore, validate(update, staged));

    Dirty dirty;
    for (const auto& name : update.removed_zones)
        if (const auto key = NameKey(name).text(); !staged.contains(key)) remove_zone(key, dirty);
    for (auto& [key, static_records] : staged) {
        const auto at = zones.find(key);
        if (at == zones.end()) {
            add_zone(key, std::move(static_records), dirty);
        } else {
            dirty.add_zone(*at->second);
            replace_static_records(*at->second, std::move(static_records), dirty);
        }
    }
    for (const auto& zone : update.zones) zones.at(NameKey(zone.origin).text())->serial_offset = zone.serial_offset;
    for (const auto& name : update.removed_names) {
        const auto key = NameKey(name).text();
        auto* zone = zone_of(key);
        if (zone == nullptr || zone->dynamic_names.erase(key) == 0) continue;
        update_existing_name(*zone, key, dirty);
        dirty.add_zone(*zone);
    }
    for (auto& [name, dynamic_name] : update.dynamic_names) {
        const auto key = NameKey(name).text();
        auto* zone = zone_of(key);
        zone->dynamic_names[key] = std::make_shared<const DynamicName>(std::move(dynamic_name));
        update_existing_name(*zone, key, dirty);
        dirty.add_zone(*zone);
    }
    for (const auto& [name, key] : update.signing_keys) set_signing_key(*zones.at(NameKey(name).text()), key, dirty);
    for (auto* zone : dirty.zones) set_serial(*zone, static_cast<std::uint32_t>(update.revision) + zone->serial_offset);
    for (const auto& [zone, keys] : dirty.names)
        for (const auto& key : keys) rebuild_entry(*zone, key);
    publish(dirty.zones);
    return Unit{};
}

void Authority::State::set_serial(ZoneState& zone, std::uint32_t wanted) {
    const bool is_later = zone.serial_set_at == 0 || static_cast<std::int32_t>(wanted - zone.serial) > 0;
    zone.serial = is_later ? wanted : zone.serial + 1;
    zone.serial_set_at = now();
    ++change_count;
}

} // namespace orrery::dns
