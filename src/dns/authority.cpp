#include "dns/authority.h"

#include "dns/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>

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

Statics statics_of(const Zone& zone) {
    Statics out;
    for (const auto& record : zone.records) {
        auto& sets = out[NameKey(record.owner).text()];
        auto set = std::find_if(sets.begin(), sets.end(), [&](const StaticSet& one) { return one.type == record.type; });
        if (set == sets.end()) set = sets.insert(sets.end(), {record.type, record.ttl, {}});
        set->data.push_back(record.data);
    }
    return out;
}

bool is_below(std::string_view key, std::string_view zone) {
    while (key.size() > zone.size()) key = above(key);
    return key == zone;
}

/// One choice for all that gives all its candidates: as good as static, and quicker.
bool is_plain(const Tailored& tailored) {
    const auto& first = tailored.choices.front();
    return tailored.choices.size() == 1 && tailored.by_client.empty() && first.picking == Picking::all && first.most == 0 &&
           !first.alias && !first.candidates.empty();
}

Result<Unit> check_tailored(const std::string& name, const Tailored& tailored) {
    const auto bad = [&](std::string what) { return Error{Code::invalid, fmt::format("{}: {}", name, what)}; };
    if (tailored.choices.empty()) return bad("there is no choice for it");
    if (tailored.choices.size() > Authority::max_choices) return bad(fmt::format("over {} choices", Authority::max_choices));
    if (tailored.by_client.size() > Authority::max_rules) return bad(fmt::format("over {} rules by client", Authority::max_rules));
    for (const auto& choice : tailored.choices) {
        if (choice.candidates.size() > Authority::max_candidates)
            return bad(fmt::format("over {} candidates in a choice", Authority::max_candidates));
        if (choice.alias && !choice.candidates.empty()) return bad("a choice has an alias and addresses");
        if (choice.ttl > 0x7FFFFFFF) return bad("a TTL is over 2147483647");
    }
    for (const auto& rule : tailored.by_client) {
        if (rule.choice >= tailored.choices.size()) return bad("a rule leads to a choice that is not there");
        if (rule.prefix.length > (rule.prefix.v6 ? 128 : 32)) return bad("a prefix is longer than an address");
    }
    return Unit{};
}

/// Why the name cannot be dynamic beside these static records; empty if it can.
std::string hindrance(const Tailored& tailored, const std::string& key, const std::string& origin, const Statics& statics) {
    const bool alias =
        std::any_of(tailored.choices.begin(), tailored.choices.end(), [](const Choice& one) { return one.alias.has_value(); });
    if (alias && key == origin) return "the origin of a zone cannot have an alias";
    for (std::string_view up = key; up.size() > origin.size(); up = above(up)) {
        const auto at = statics.find(std::string(up));
        if (at != statics.end() && set_in(at->second, type::ns) != nullptr)
            return fmt::format("{} is delegated", name_of_key(up).to_text());
    }
    const auto at = statics.find(key);
    if (at == statics.end()) return {};
    if (alias) return "its zone has records at it, and an alias stands alone";
    for (const auto wanted : {type::a, type::aaaa, type::cname})
        if (set_in(at->second, wanted) != nullptr) return fmt::format("its zone has {} records at it", type_name(wanted));
    return {};
}

} // namespace

Name name_of_key(std::string_view key) {
    Name out;
    std::size_t at = 0;
    out.read(bytes_of(key), at, Name::Pointers::no);
    return out;
}

Authority::State::State(Options options_)
    : options(std::move(options_)),
      clock(options.clock != nullptr ? *options.clock : real_clock()),
      rate_limit(options.rate_limit) {
    if (options.nsid.size() > 64) options.nsid.resize(64);
    std::random_device seed;
    std::size_t place = 0;
    epochs.each([&](Answerer& one) {
        one.place = place++;
        one.random = (static_cast<std::uint64_t>(seed()) << 32 | seed()) | 1;
        one.turn = seed();
        if (options.query_log > 0) one.log = std::make_unique<QueryRing>(options.query_log);
    });
    publish({});
}

ZoneState* Authority::State::zone_of(std::string_view key, std::size_t skip) const {
    for (; skip > 0 && key.size() > 1; --skip) key = above(key);
    for (;;) {
        if (const auto at = zones.find(std::string(key)); at != zones.end()) return at->second.get();
        if (key.size() == 1) return nullptr;
        key = above(key);
    }
}

Result<Unit> Authority::State::check(const Update& update, const std::unordered_map<std::string, Statics>& staged) const {
    std::unordered_set<std::string> gone_zones, changed_names;
    for (const auto& name : update.without_zones) gone_zones.insert(NameKey(name).text());
    const auto deepest_zone = [&](std::string_view key) -> std::optional<std::string> {
        for (;;) {
            const std::string here(key);
            if (staged.contains(here) || (zones.contains(here) && !gone_zones.contains(here))) return here;
            if (key.size() == 1) return std::nullopt;
            key = above(key);
        }
    };
    const auto statics_at = [&](const std::string& origin) -> const Statics& {
        const auto at = staged.find(origin);
        return at != staged.end() ? at->second : zones.at(origin)->statics;
    };
    for (const auto& name : update.without_names) changed_names.insert(NameKey(name).text());
    for (const auto& [name, signing] : update.keys)
        if (const auto key = NameKey(name).text(); !staged.contains(key) && (!zones.contains(key) || gone_zones.contains(key)))
            return Error{Code::invalid, fmt::format("there is no zone {} to sign", name.to_text()), "add the zone first"};
    for (const auto& [name, tailored] : update.names) {
        TRY(std::ignore, check_tailored(name.to_text(), tailored));
        const auto key = NameKey(name).text();
        changed_names.insert(key);
        const auto origin = deepest_zone(key);
        if (!origin) return Error{Code::invalid, fmt::format("{} is in none of our zones", name.to_text()), "add its zone first"};
        if (const auto why = hindrance(tailored, key, *origin, statics_at(*origin)); !why.empty())
            return Error{Code::invalid, fmt::format("{} cannot be a dynamic name: {}", name.to_text(), why)};
    }
    // Dynamic names that stay must get along with zones that come.
    for (const auto& [origin, statics] : staged) {
        const auto* before = zone_of(origin);
        if (before == nullptr || gone_zones.contains(before->origin)) continue;
        for (const auto& [key, tailored] : before->dynamics) {
            if (changed_names.contains(key) || deepest_zone(key) != origin) continue;
            if (const auto why = hindrance(*tailored, key, origin, statics); !why.empty())
                return Error{Code::invalid, fmt::format("the zone {} does not go with the dynamic name {}: {}",
                                                        name_of_key(origin).to_text(), name_of_key(key).to_text(), why)};
        }
    }
    return Unit{};
}

Result<Unit> Authority::State::apply(Update update) {
    std::unordered_map<std::string, Statics> staged;
    for (auto& zone : update.zones) {
        auto checked = check_zone(zone);
        if (!checked.ok()) return std::move(checked).error().within(fmt::format("zone {}", zone.origin.to_text()));
        staged.insert_or_assign(NameKey(zone.origin).text(), statics_of(zone));
    }
    const std::lock_guard lock(writing);
    TRY(std::ignore, check(update, staged));

    Dirty dirty;
    const auto touch = [&](ZoneState& zone) {
        dirty.zones.insert(&zone);
        dirty.names[&zone].insert(zone.origin);
    };
    for (const auto& name : update.without_zones) {
        const auto key = NameKey(name).text();
        const auto at = zones.find(key);
        if (at == zones.end() || staged.contains(key)) continue;
        const auto gone = std::move(at->second);
        zones.erase(at);
        for (const auto& [place, ignored] : gone->places) table.erase(NameKey(bytes_of(place)).hash(), bytes_of(place));
        names -= gone->places.size();
        dirty.names.erase(gone.get());
        dirty.zones.erase(gone.get());
        if (auto* parent = gone->origin.size() > 1 ? zone_of(above(gone->origin)) : nullptr) {
            rebuild_places(*parent, dirty);
            touch(*parent);
        }
    }
    for (auto& [key, statics] : staged) {
        auto& zone = zones[key];
        if (zone) {
            touch(*zone);
            replace_statics(*zone, std::move(statics), dirty);
            continue;
        }
        zone = std::make_unique<ZoneState>();
        zone->origin = key;
        zone->name = name_of_key(key);
        zone->tallies = std::make_shared<ZoneTallies>(epochs.places());
        std::unordered_set<std::uint32_t> taken;
        for (const auto& [other, state] : zones)
            if (state && state != zone) taken.insert(state->number);
        while (taken.contains(zone->number)) ++zone->number;
        if (auto* parent = key.size() > 1 ? zone_of(above(key)) : nullptr) {
            // What was the parent's below here is the new zone's now.
            std::erase_if(parent->dynamics, [&](auto& one) {
                if (!is_below(one.first, key)) return false;
                zone->dynamics.emplace(one.first, std::move(one.second));
                return true;
            });
            rebuild_places(*parent, dirty);
            touch(*parent);
        }
        zone->statics = std::move(statics);
        rebuild_places(*zone, dirty);
        touch(*zone);
    }
    for (const auto& name : update.without_names) {
        const auto key = NameKey(name).text();
        auto* zone = zone_of(key);
        if (zone == nullptr || zone->dynamics.erase(key) == 0) continue;
        update_place(*zone, key, dirty);
        touch(*zone);
    }
    for (auto& [name, tailored] : update.names) {
        const auto key = NameKey(name).text();
        auto* zone = zone_of(key);
        zone->dynamics[key] = std::make_shared<const Tailored>(std::move(tailored));
        update_place(*zone, key, dirty);
        touch(*zone);
    }
    for (const auto& [name, key] : update.keys) {
        auto& zone = *zones.at(NameKey(name).text());
        zone.key = key;
        rebuild_places(zone, dirty);
        touch(zone);
        // A zone below has our signature of its DS.
        for (const auto& [below, other] : zones)
            if (other.get() != &zone && below.size() > 1 && zone_of(above(below)) == &zone) dirty.names[other.get()].insert(below);
    }
    for (auto* zone : dirty.zones) zone->serial = static_cast<std::uint32_t>(update.revision);
    for (const auto& [zone, keys] : dirty.names)
        for (const auto& key : keys) remake(*zone, key);
    publish(dirty.zones);
    return Unit{};
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
        auto dynamic = std::make_unique<Dynamic>(*at->second);
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
    table.set(make_entry(std::move(entry), name.tail(), sets, bytes));
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

void Authority::State::publish(const std::unordered_set<ZoneState*>& touched) {
    auto next = std::make_unique<Snapshot>();
    next->names = table.version();
    next->deepest = deepest;
    for (const auto& [key, zone] : zones) {
        if (next->zones.size() <= zone->number) next->zones.resize(zone->number + 1U);
        next->zones[zone->number] = touched.contains(zone.get()) ? view_of(*zone) : published->zones[zone->number];
    }
    current.store(next.get());
    retired.push_back({epochs.turn(), table.take_garbage(), std::move(published)});
    published = std::move(next);
    tidy();
}

void Authority::State::tidy() {
    while (!retired.empty() && epochs.passed(retired.front().turn)) retired.pop_front();
}

Authority::Authority(Options options) : state_(std::make_unique<State>(std::move(options))) {}
Authority::~Authority() = default;

Result<Unit> Authority::apply(Update update) { return state_->apply(std::move(update)); }

std::size_t Authority::name_count() const {
    const std::lock_guard lock(state_->writing);
    return state_->names;
}

std::size_t Authority::waiting_garbage() const {
    const std::lock_guard lock(state_->writing);
    state_->tidy();
    return state_->retired.size();
}

std::size_t Authority::take_queries(const std::function<void(const Asked&)>& see) const {
    std::size_t count = 0;
    state_->epochs.each([&](const Answerer& one) {
        if (!one.log) return;
        auto at = one.log->tail.load(std::memory_order_relaxed);
        for (const auto end = one.log->head.load(std::memory_order_acquire); at != end; ++at, ++count)
            see(one.log->all[at % one.log->all.size()]);
        one.log->tail.store(at, std::memory_order_release);
    });
    return count;
}

Authority::Statistics Authority::statistics() const {
    Statistics out;
    std::array<std::uint64_t, counted_types> types{};
    std::array<std::uint64_t, counted_rcodes> rcodes{};
    state_->epochs.each([&](const Answerer& one) {
        out.queries += one.queries.get();
        out.tcp += one.tcp.get();
        out.truncated += one.truncated.get();
        out.limited += one.limited.get();
        out.slipped += one.slipped.get();
        out.malformed += one.malformed.get();
        out.with_subnet += one.with_subnet.get();
        out.valid_cookies += one.valid_cookies.get();
        out.signed_on_demand += one.signed_on_demand.get();
        out.unsigned_for_load += one.unsigned_for_load.get();
        if (one.log) out.unlogged += one.log->unlogged.get();
        for (std::size_t i = 0; i < types.size(); ++i) types[i] += one.by_type[i].get();
        for (std::size_t i = 0; i < rcodes.size(); ++i) rcodes[i] += one.by_rcode[i].get();
    });
    for (std::size_t i = 0; i < types.size(); ++i)
        if (types[i] > 0) out.by_type[i + 1 == types.size() ? 0xFFFF : static_cast<std::uint16_t>(i)] = types[i];
    for (std::size_t i = 0; i < rcodes.size(); ++i)
        if (rcodes[i] > 0) out.by_rcode[static_cast<std::uint16_t>(i)] = rcodes[i];
    const std::lock_guard lock(state_->writing);
    for (const auto& [key, zone] : state_->zones) {
        ZoneCounts counts;
        for (const auto& one : zone->tallies->each) {
            counts.queries += one.queries.get();
            counts.nxdomain += one.nxdomain.get();
        }
        out.by_zone[zone->name.to_text()] = counts;
    }
    return out;
}

} // namespace orrery::dns
