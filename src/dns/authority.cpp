#include "dns/authority.h"

#include "dns/authority_state.h"

#include <algorithm>
#include <random>

namespace orrery::dns {

Authority::State::State(Options options_)
    : options(std::move(options_)),
      clock(options.clock != nullptr ? *options.clock : real_clock()),
      rate_limit(options.rate_limit) {
    if (options.nsid.size() > 64) options.nsid.resize(64);
    if (options.query_log_sample_every == 0) options.query_log_sample_every = 1;
    std::random_device seed;
    std::size_t slot = 0;
    epochs.for_each([&](ThreadState& one) {
        one.slot = slot++;
        one.random = (static_cast<std::uint64_t>(seed()) << 32 | seed()) | 1;
        one.rotation = seed();
        if (options.query_log_capacity > 0) one.query_ring = std::make_unique<QueryRing>(options.query_log_capacity);
    });
    publish({});
}

ZoneState* Authority::State::zone_of(std::string_view key, std::size_t skip) const {
    for (; skip > 0 && key.size() > 1; --skip) key = parent_key(key);
    for (;;) {
        if (const auto at = zones.find(std::string(key)); at != zones.end()) return at->second.get();
        if (key.size() == 1) return nullptr;
        key = parent_key(key);
    }
}

ZoneState* Authority::State::parent_zone_of(std::string_view origin) const {
    return origin.size() > 1 ? zone_of(parent_key(origin)) : nullptr;
}

void Authority::State::publish(const std::unordered_set<ZoneState*>& touched) {
    auto next = std::make_unique<Snapshot>();
    next->names = table.version();
    next->max_labels = max_labels;
    for (const auto& [key, zone] : zones) {
        next->name_count += zone->existing_names.size();
        if (next->zones.size() <= zone->number) next->zones.resize(zone->number + 1U);
        next->zones[zone->number] = touched.contains(zone.get()) ? make_zone_view(*zone) : published->zones[zone->number];
    }
    current_snapshot.store(next.get());
    retired.push_back({epochs.advance(), table.release_garbage(), std::move(published)});
    published = std::move(next);
    reclaim();
}

void Authority::State::reclaim() {
    while (!retired.empty() && epochs.has_drained(retired.front().epoch)) retired.pop_front();
}

Authority::Authority(Options options) : state_(std::make_unique<State>(std::move(options))) {}
Authority::~Authority() = default;

Result<Unit> Authority::apply(Update update) { return state_->apply(std::move(update)); }

void Authority::suspend(bool suspended) { state_->suspended.store(suspended, std::memory_order_relaxed); }
bool Authority::is_suspended() const { return state_->suspended.load(std::memory_order_relaxed); }

std::vector<Authority::ZoneSerial> Authority::serials() const {
    const std::lock_guard lock(state_->write_mutex);
    std::vector<ZoneSerial> out;
    for (const auto& [key, zone] : state_->zones) out.push_back({zone->name, zone->serial, zone->serial_offset});
    return out;
}

std::uint64_t Authority::change_count() const { return state_->change_count; }

std::size_t Authority::name_count() const {
    const std::lock_guard lock(state_->write_mutex);
    return state_->name_count;
}

std::size_t Authority::pending_garbage() const {
    const std::lock_guard lock(state_->write_mutex);
    state_->reclaim();
    return state_->retired.size();
}

std::size_t Authority::drain_query_log(const std::function<void(const LoggedQuery&)>& visit) const {
    std::size_t count = 0;
    state_->epochs.for_each([&](const ThreadState& one) {
        if (one.query_ring) count += one.query_ring->drain(visit);
    });
    return count;
}

Authority::Statistics Authority::statistics() const {
    Statistics out;
    std::array<std::uint64_t, counted_types> types{};
    std::array<std::uint64_t, counted_rcodes> rcodes{};
    state_->epochs.for_each([&](const ThreadState& one) {
        out.queries += one.queries.get();
        out.tcp += one.tcp.get();
        out.truncated += one.truncated.get();
        out.rate_limited += one.rate_limited.get();
        out.slipped += one.slipped.get();
        out.malformed += one.malformed.get();
        out.with_client_subnet += one.with_client_subnet.get();
        out.valid_cookies += one.valid_cookies.get();
        out.signed_on_demand += one.signed_on_demand.get();
        out.signing_limited += one.signing_limited.get();
        if (one.query_ring) out.query_log_dropped += one.query_ring->dropped();
        for (std::size_t i = 0; i < types.size(); ++i) types[i] += one.by_type[i].get();
        for (std::size_t i = 0; i < rcodes.size(); ++i) rcodes[i] += one.by_rcode[i].get();
    });
    for (std::size_t i = 0; i < types.size(); ++i)
        if (types[i] > 0) out.by_type[i + 1 == types.size() ? 0xFFFF : static_cast<std::uint16_t>(i)] = types[i];
    for (std::size_t i = 0; i < rcodes.size(); ++i)
        if (rcodes[i] > 0) out.by_rcode[static_cast<std::uint16_t>(i)] = rcodes[i];
    const std::lock_guard lock(state_->write_mutex);
    for (const auto& [key, zone] : state_->zones) {
        ZoneCounts counts;
        for (const auto& one : zone->counters->slots) {
            counts.queries += one.queries.get();
            counts.nxdomain += one.nxdomain.get();
        }
        out.by_zone[zone->name.to_text()] = counts;
    }
    return out;
}

} // namespace orrery::dns
