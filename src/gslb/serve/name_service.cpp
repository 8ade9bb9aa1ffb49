#include "gslb/serve/name_service.h"

#include "core/json_fields.h"
#include "core/log.h"
#include "gslb/model/specs.h"
#include "gslb/serve/zone_records.h"
#include "gslb/serve/zone_serials.h"
#include "resource/object.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace orrery::gslb {

namespace {

constexpr auto gather_statuses = std::chrono::milliseconds(500);
constexpr auto refresh_every = std::chrono::minutes(1);

/// A DS record's data as people write it: "12345 13 2 49FD46...".
std::string ds_text(const std::vector<std::uint8_t>& data) {
    if (data.size() < 5) return {};
    auto out = fmt::format("{} {} {} ", data[0] << 8U | data[1], data[2], data[3]);
    for (std::size_t at = 4; at < data.size(); ++at) out += fmt::format("{:02X}", data[at]);
    return out;
}

} // namespace

struct NameService::State {
    State(asio::any_io_executor executor, resource::Resources& resources_, store::Leadership& leadership_, Clock& clock_,
          std::shared_ptr<dns::Authority> authority_)
        : resources(resources_),
          leadership(leadership_),
          clock(clock_),
          authority(std::move(authority_)),
          serials(resources_.store()),
          to_write(executor) {}

    struct Held {
        std::string resource; ///< the Zone
        dns::Name origin;
        std::string key;   ///< the Secret that it is signed with
        json::object spec; ///< as loaded
        std::string error;
        bool unsigned_now = false;              ///< its signing key cannot be used
        std::vector<dns::Name> without_address; ///< name servers within the zone without an address record
        bool loaded = false;
        std::int64_t served = 0; ///< names
    };
    struct Named {
        dns::Name name;
        std::shared_ptr<const dns::DynamicName> answers;
        std::string zone;  ///< the Zone that serves it; empty: it is not served
        std::string error; ///< why not
        std::string wanted_zone;
        bool served() const { return !zone.empty(); }
    };

    resource::Resources& resources;
    store::Leadership& leadership;
    Clock& clock;
    std::shared_ptr<dns::Authority> authority;
    std::map<std::string, Held> zones; ///< by resource
    std::map<std::string, Named> names;
    ZoneSerials serials;
    std::vector<dns::SecondaryAhead> ahead;                    ///< secondaries with later serials than ours
    std::map<std::string, std::vector<std::string>> published; ///< the zones of each Publisher
    OnStatusChange on_status_change;
    Notifier to_write;
    std::set<std::string> statuses; ///< Zones whose status is to be written
    std::vector<std::shared_ptr<void>> observed;

    /// The Zone with the longest matching origin.
    const Held* zone_for(const dns::Name& name) const {
        const Held* best = nullptr;
        for (const auto& [key, zone] : zones)
            if (zone.loaded && name.is_within(zone.origin) &&
                (best == nullptr || zone.origin.label_count() > best->origin.label_count()))
                best = &zone;
        return best;
    }

    void set_served(const std::string& fqdn, Named& of, const std::string& zone, std::string error) {
        if (of.zone == zone && of.error == error) return;
        move_to_zone(of, zone);
        of.error = std::move(error);
        if (on_status_change) on_status_change(fqdn);
    }
    void move_to_zone(Named& of, const std::string& zone) {
        for (const auto& [which, more] : {std::pair(of.zone, -1), std::pair(zone, 1)})
            if (const auto held = zones.find(which); held != zones.end()) {
                held->second.served += more;
                statuses.insert(which);
            }
        of.zone = zone;
        to_write.notify_all();
    }

    /// Applies all names in one update; if that is refused, one by one, so that one invalid name does not affect the others.
    void put(const std::vector<std::string>& which) {
        dns::Authority::Update update{.revision = serials.next()};
        std::vector<std::pair<std::string, std::string>> ready; ///< with its zone
        for (const auto& fqdn : which) {
            auto& one = names.at(fqdn);
            const auto* zone = zone_for(one.name);
            if (zone == nullptr) {
                set_served(fqdn, one, {}, "no Zone of this server contains the name");
                continue;
            }
            update.dynamic_names.emplace_back(one.name, *one.answers);
            ready.emplace_back(fqdn, zone->resource);
        }
        if (ready.empty()) return;
        if (authority->apply(std::move(update)).ok()) {
            for (const auto& [fqdn, zone] : ready) set_served(fqdn, names.at(fqdn), zone, {});
            return;
        }
        for (const auto& [fqdn, zone] : ready) {
            auto& one = names.at(fqdn);
            dns::Authority::Update alone{.revision = serials.next()};
            alone.dynamic_names.emplace_back(one.name, *one.answers);
            const auto done = authority->apply(std::move(alone));
            // The previous answer is outdated.
            if (!done.ok() && one.served()) drop({one.name});
            set_served(fqdn, one, done.ok() ? zone : std::string(), done.ok() ? std::string() : done.error().message);
        }
    }

    void publisher_changed(const std::string& name, const store::Record* record) {
        published.erase(name);
        if (record != nullptr)
            if (const auto object = resource::from_stored(*record); object.ok()) published[name] = texts_at(object->spec, "zones");
        for (const auto& [fqdn, one] : names)
            if (!one.served() && on_status_change) on_status_change(fqdn);
    }
    /// A name that Publishers serve needs no Zone here.
    bool is_published_elsewhere(const Named& of) const {
        return std::any_of(published.begin(), published.end(), [&](const auto& one) {
            return std::find(one.second.begin(), one.second.end(), of.wanted_zone) != one.second.end();
        });
    }

    void drop(const std::vector<dns::Name>& which) {
        if (which.empty()) return;
        dns::Authority::Update update{.revision = serials.next(), .removed_names = which};
        if (const auto done = authority->apply(std::move(update)); !done.ok())
            log::error(Context::background(), "names not removed from the DNS server: {}", done.error().text());
    }

    std::vector<std::string> within(const dns::Name& origin) const {
        std::vector<std::string> out;
        for (const auto& [fqdn, one] : names)
            if (one.name.is_within(origin)) out.push_back(fqdn);
        return out;
    }

    void apply_event(const std::string& resource, const store::Record* record, bool reload = false) {
        if (const auto known = zones.find(resource); known != zones.end()) {
            const bool moved = record == nullptr || !(origin_in(*record) == known->second.origin);
            if (moved) unload(known->second);
            if (record == nullptr) {
                zones.erase(known);
                statuses.erase(resource);
                return;
            }
        }
        if (record == nullptr) return;
        load(resource, *record, reload);
        statuses.insert(resource);
        to_write.notify_all();
    }

    static dns::Name origin_in(const store::Record& record) {
        const auto object = resource::from_stored(record);
        if (!object.ok()) return {};
        return dns::Name::from_text(lowered_name(text_at(object->spec, "origin"))).value_or(dns::Name());
    }

    void load(const std::string& resource, const store::Record& record, bool reload) {
        auto& held = zones[resource];
        held.resource = resource;
        const auto object = resource::from_stored(record);
        if (!reload && object.ok() && held.loaded && held.spec == object->spec) return;
        held.error.clear();
        held.unsigned_now = false;
        auto zone = object.ok() ? zone_of(object->spec) : Result<dns::Zone>(object.error());
        if (!zone.ok()) {
            held.error = zone.error().message;
            return;
        }
        held.origin = zone->origin;
        held.spec = object->spec;
        held.key = text_at(object->spec, "signing_key");
        held.without_address = servers_without_address(*zone);
        dns::Authority::Update update{.revision = serials.next()};
        if (held.key.empty()) {
            update.signing_keys.emplace_back(held.origin, nullptr);
        } else if (auto key = signing_key_of(resources, held.key); key.ok()) {
            update.signing_keys.emplace_back(held.origin, std::move(*key));
        } else {
            held.unsigned_now = true;
            held.error = fmt::format("not signed with the present key: {}", key.error().message);
        }
        update.zones.push_back(std::move(*zone));
        auto retry = update;
        const auto inside = within(held.origin);
        auto done = authority->apply(std::move(update));
        if (!done.ok()) {
            // A static record now exists at the name of a load balancer: the static record wins.
            for (const auto& fqdn : inside)
                if (auto& one = names.at(fqdn); one.zone == resource) {
                    retry.removed_names.push_back(one.name);
                    move_to_zone(one, {});
                }
            done = authority->apply(std::move(retry));
        }
        if (!done.ok()) {
            held.error = done.error().message;
            return;
        }
        held.loaded = true;
        std::vector<std::string> missing;
        for (const auto& fqdn : inside)
            if (names.at(fqdn).zone != resource) missing.push_back(fqdn);
        put(missing);
    }

    void unload(Held& held) {
        if (!std::exchange(held.loaded, false)) return;
        dns::Authority::Update update{.revision = serials.next()};
        update.removed_zones.push_back(held.origin);
        if (const auto done = authority->apply(std::move(update)); !done.ok())
            log::error(Context::background(), "zone not removed from the DNS server: zone={}: {}", held.origin.to_text(),
                       done.error().text());
        const auto inside = within(held.origin);
        for (const auto& fqdn : inside)
            if (auto& one = names.at(fqdn); one.zone == held.resource) move_to_zone(one, {});
        put(inside); // a parent zone may contain them
    }

    void secret_changed(const std::string& secret) {
        std::vector<std::string> signed_by;
        for (const auto& [resource, zone] : zones)
            if (zone.key == secret) signed_by.push_back(resource);
        for (const auto& resource : signed_by)
            if (const auto record = resources.find(*resources.registry().find("Zone"), resource))
                apply_event(resource, record.get(), true);
    }

    void add_secondaries(const dns::Name& origin, json::object& status) const {
        json::array secondaries, warnings = array_at(status, "warnings");
        for (const auto& one : ahead) {
            if (!(one.zone == origin)) continue;
            secondaries.push_back(json::object{{"address", one.secondary}, {"serial", one.serial}});
            warnings.emplace_back(one.message());
        }
        if (secondaries.empty()) return;
        status["secondaries_ahead"] = std::move(secondaries);
        status["warnings"] = std::move(warnings);
    }

    Task<Unit> write_status(Context ctx, std::string resource, store::Fence fence) {
        const auto& kind = *resources.registry().find("Zone");
        const auto held = zones.find(resource);
        const auto record = resources.find(kind, resource);
        if (held == zones.end() || !record) co_return Unit{};
        CO_TRY(const auto object, resource::from_stored(*record));
        const auto& zone = held->second;
        const auto ds = authority->ds_of(zone.origin);
        json::object status{{"state", !zone.loaded                    ? "refused"
                                      : zone.unsigned_now && !ds.ok() ? "unsigned"
                                                                      : "served"},
                            {"names", zone.served}};
        json::array warnings;
        for (const auto& server : zone.without_address)
            if (const auto known = names.find(server.lowered()); known == names.end() || !known->second.served())
                warnings.emplace_back(fmt::format("name server {} is in the zone and has no address there: add an A or AAAA record",
                                                  server.to_text()));
        if (!warnings.empty()) status["warnings"] = std::move(warnings);
        if (!held->second.error.empty()) status["message"] = held->second.error;
        if (ds.ok()) status["ds"] = ds_text(*ds);
        add_secondaries(zone.origin, status);
        if (object.status == status) co_return Unit{};
        auto written = co_await resources.set_status(ctx, kind, resource, std::move(status), {.fence = &fence});
        if (!written.ok() && written.error().code != Code::not_found) co_return std::move(written).error();
        co_return Unit{};
    }
};

NameService::NameService(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership,
                         Clock& clock, std::shared_ptr<dns::Authority> authority)
    : state_(std::make_shared<State>(std::move(executor), resources, leadership, clock, std::move(authority))) {
    auto* state = state_.get();
    const auto observe = [&](std::string prefix, auto apply_event) {
        state->observed.push_back(resources.store().observe(prefix, [size = prefix.size(), apply_event](const store::Event& event) {
            apply_event(event.key.substr(size), event.record.get());
        }));
    };
    observe("secrets/", [state](const std::string& name, const store::Record*) { state->secret_changed(name); });
    observe("publishers/",
            [state](const std::string& name, const store::Record* record) { state->publisher_changed(name, record); });
    observe("zones/", [state](const std::string& name, const store::Record* record) { state->apply_event(name, record); });
}

NameService::~NameService() { state_->observed.clear(); }

void NameService::serve(std::vector<Change> changes) {
    std::vector<std::string> put;
    std::vector<dns::Name> drop;
    for (auto& change : changes) {
        const auto known = state_->names.find(change.fqdn);
        if (!change.answers) {
            if (known == state_->names.end()) continue;
            if (known->second.served()) drop.push_back(known->second.name);
            state_->move_to_zone(known->second, {});
            state_->names.erase(known);
            continue;
        }
        const auto name = dns::Name::from_text(change.fqdn);
        if (!name.ok()) continue; // the kind accepts valid names only
        auto& one = state_->names[change.fqdn];
        one.name = *name;
        one.answers = std::move(change.answers);
        one.wanted_zone = change.zone;
        put.push_back(change.fqdn);
    }
    state_->drop(drop);
    std::erase_if(put, [&](const std::string& fqdn) { return !state_->names.contains(fqdn); });
    state_->put(put);
}

json::array NameService::publication_status(const std::string& fqdn) const {
    const auto found = state_->names.find(fqdn);
    if (found == state_->names.end()) return {};
    if (!found->second.served() && state_->zone_for(found->second.name) == nullptr && state_->is_published_elsewhere(found->second))
        return {};
    json::object out{{"target", "this server"}, {"state", found->second.served() ? "IN_SYNC" : "ERROR"}};
    if (!found->second.error.empty()) out["message"] = found->second.error;
    return {std::move(out)};
}

void NameService::report_to(OnStatusChange on_status_change) { state_->on_status_change = std::move(on_status_change); }

asio::awaitable<void> NameService::run(Context ctx) {
    const auto state = state_;
    auto refreshed = state->clock.steady();
    while (true) {
        if (state->statuses.empty() || !state->leadership.leads()) {
            // Every server renews its signatures, not only the leader.
            const auto deadline = ctx.without_deadline().with_deadline(state->clock.steady() + refresh_every);
            auto once = [](std::shared_ptr<State> self) -> Task<Unit> {
                co_return co_await self->to_write.wait(Context::background());
            };
            const auto woken = co_await within_deadline(deadline, once(state), state->clock);
            if (!woken.ok() && woken.error().code != Code::timeout) co_return;
        }
        if (state->clock.steady() - refreshed >= refresh_every) {
            refreshed = state->clock.steady();
            state->authority->refresh_signatures();
        }
        if (!(co_await state->clock.sleep(gather_statuses)).ok()) co_return;
        const auto fence = state->leadership.fence();
        if (!fence) continue;
        if (state->serials.needs_reserve())
            if (const auto reserved = co_await state->serials.reserve(ctx, state->clock, *fence); !reserved.ok()) {
                if (reserved.error().code == Code::cancelled) co_return;
                log::warn(ctx, "zone serials not reserved: {}", reserved.error().text());
            }
        for (const auto& resource : std::exchange(state->statuses, {})) {
            const auto written = co_await state->write_status(ctx, resource, *fence);
            if (written.ok()) continue;
            if (written.error().code == Code::cancelled) co_return;
            state->statuses.insert(resource);
        }
    }
}

std::uint64_t NameService::upcoming_serial() const { return state_->serials.upcoming(); }

void NameService::set_secondaries_ahead(std::vector<dns::SecondaryAhead> ahead) {
    ahead.swap(state_->ahead);
    for (const auto& [resource, zone] : state_->zones) {
        const auto concerned = [&](const dns::SecondaryAhead& one) { return one.zone == zone.origin; };
        if (std::any_of(ahead.begin(), ahead.end(), concerned) ||
            std::any_of(state_->ahead.begin(), state_->ahead.end(), concerned))
            state_->statuses.insert(resource);
    }
    state_->to_write.notify_all();
}

std::size_t NameService::zones() const { return state_->zones.size(); }
std::size_t NameService::names() const {
    std::size_t out = 0;
    for (const auto& [fqdn, one] : state_->names) out += one.served() ? 1 : 0;
    return out;
}

} // namespace orrery::gslb
