#include "dns/authority.h"

#include "dns/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace orrery::dns {

namespace {

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
        if (choice.remark.size() > 64) return bad("a remark is over 64 bytes");
    }
    if (tailored.clients) {
        if (!tailored.by_client.empty()) return bad("clients are told apart in two ways");
        if (std::max(tailored.clients->v4.greatest(), tailored.clients->v6.greatest()) >= tailored.choices.size())
            return bad("some clients have a choice that is not there");
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

Authority::State::State(Options options_)
    : options(std::move(options_)),
      clock(options.clock != nullptr ? *options.clock : real_clock()),
      rate_limit(options.rate_limit) {
    if (options.nsid.size() > 64) options.nsid.resize(64);
    if (options.query_log_every == 0) options.query_log_every = 1;
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
            std::string here(key);
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
        ++changes;
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
    for (auto* zone : dirty.zones) set_serial(*zone, static_cast<std::uint32_t>(update.revision));
    for (const auto& [zone, keys] : dirty.names)
        for (const auto& key : keys) remake(*zone, key);
    publish(dirty.zones);
    return Unit{};
}

void Authority::State::set_serial(ZoneState& zone, std::uint32_t wanted) {
    const bool later = zone.changed_at == 0 || static_cast<std::int32_t>(wanted - zone.serial) > 0;
    zone.serial = later ? wanted : zone.serial + 1;
    zone.changed_at = now();
    ++changes;
}

void Authority::State::publish(const std::unordered_set<ZoneState*>& touched) {
    auto next = std::make_unique<Snapshot>();
    next->names = table.version();
    next->deepest = deepest;
    for (const auto& [key, zone] : zones) {
        next->name_count += zone->places.size();
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

std::vector<Authority::ZoneSerial> Authority::serials() const {
    const std::lock_guard lock(state_->writing);
    std::vector<ZoneSerial> out;
    for (const auto& [key, zone] : state_->zones) out.push_back({zone->name, zone->serial});
    return out;
}

std::uint64_t Authority::changes() const { return state_->changes; }

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
