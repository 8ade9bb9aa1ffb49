#include "gslb/name_service.h"

#include "core/log.h"
#include "gslb/model.h"
#include "gslb/read.h"
#include "gslb/zone.h"
#include "resource/object.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

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
        : resources(resources_), leadership(leadership_), clock(clock_), authority(std::move(authority_)), to_write(executor) {}

    struct Held {
        std::string resource; ///< the Zone
        dns::Name origin;
        std::string key;   ///< the Secret that it is signed with
        json::object spec; ///< as loaded
        std::string trouble;
        bool loaded = false;
        std::int64_t served = 0; ///< names
    };
    struct Named {
        dns::Name name;
        std::shared_ptr<const dns::Tailored> answers;
        std::string zone;    ///< that it is served in; empty: it is not served
        std::string trouble; ///< why not
        bool served() const { return !zone.empty(); }
    };

    resource::Resources& resources;
    store::Leadership& leadership;
    Clock& clock;
    std::shared_ptr<dns::Authority> authority;
    std::map<std::string, Held> zones; ///< by resource
    std::map<std::string, Named> names;
    std::uint64_t revision = 0;
    OnStanding on_standing;
    Notifier to_write;
    std::set<std::string> statuses; ///< Zones whose status is to be written
    std::vector<std::shared_ptr<void>> observed;

    /// The store's, so that servers that share one have the same; never the same twice.
    std::uint64_t next_revision() {
        revision = std::max<std::uint64_t>(revision + 1, static_cast<std::uint64_t>(resources.store().revision()));
        return revision;
    }

    /// The Zone that holds a name most closely.
    const Held* zone_for(const dns::Name& name) const {
        const Held* best = nullptr;
        for (const auto& [key, zone] : zones)
            if (zone.loaded && name.is_within(zone.origin) &&
                (best == nullptr || zone.origin.label_count() > best->origin.label_count()))
                best = &zone;
        return best;
    }

    void say(const std::string& fqdn, Named& of, const std::string& zone, std::string trouble) {
        if (of.zone == zone && of.trouble == trouble) return;
        settle_in(of, zone);
        of.trouble = std::move(trouble);
        if (on_standing) on_standing(fqdn);
    }
    void settle_in(Named& of, const std::string& zone) {
        for (const auto& [which, more] : {std::pair(of.zone, -1), std::pair(zone, 1)})
            if (const auto held = zones.find(which); held != zones.end()) {
                held->second.served += more;
                statuses.insert(which);
            }
        of.zone = zone;
        to_write.notify_all();
    }

    /// All in one step; where that is refused, one by one, so that one wrong name is the only one.
    void put(const std::vector<std::string>& which) {
        dns::Authority::Update update{.revision = next_revision()};
        std::vector<std::pair<std::string, std::string>> ready; ///< with its zone
        for (const auto& fqdn : which) {
            auto& one = names.at(fqdn);
            const auto* zone = zone_for(one.name);
            if (zone == nullptr) {
                say(fqdn, one, {}, "there is no Zone here that holds it");
                continue;
            }
            update.names.emplace_back(one.name, *one.answers);
            ready.emplace_back(fqdn, zone->resource);
        }
        if (ready.empty()) return;
        if (authority->apply(std::move(update)).ok()) {
            for (const auto& [fqdn, zone] : ready) say(fqdn, names.at(fqdn), zone, {});
            return;
        }
        for (const auto& [fqdn, zone] : ready) {
            auto& one = names.at(fqdn);
            dns::Authority::Update alone{.revision = next_revision()};
            alone.names.emplace_back(one.name, *one.answers);
            const auto done = authority->apply(std::move(alone));
            // What it answered before is no longer true.
            if (!done.ok() && one.served()) drop({one.name});
            say(fqdn, one, done.ok() ? zone : std::string(), done.ok() ? std::string() : done.error().message);
        }
    }

    void drop(const std::vector<dns::Name>& which) {
        if (which.empty()) return;
        dns::Authority::Update update{.revision = next_revision(), .without_names = which};
        if (const auto done = authority->apply(std::move(update)); !done.ok())
            log::error(Context::background(), "names are still answered that should not be: {}", done.error().text());
    }

    std::vector<std::string> within(const dns::Name& origin) const {
        std::vector<std::string> out;
        for (const auto& [fqdn, one] : names)
            if (one.name.is_within(origin)) out.push_back(fqdn);
        return out;
    }

    void take(const std::string& resource, const store::Record* record, bool anew = false) {
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
        load(resource, *record, anew);
        statuses.insert(resource);
        to_write.notify_all();
    }

    static dns::Name origin_in(const store::Record& record) {
        const auto object = resource::from_stored(record);
        if (!object.ok()) return {};
        return dns::Name::from_text(lowered_name(text_at(object->spec, "origin"))).value_or(dns::Name());
    }

    void load(const std::string& resource, const store::Record& record, bool anew) {
        auto& held = zones[resource];
        held.resource = resource;
        const auto object = resource::from_stored(record);
        if (!anew && object.ok() && held.loaded && held.spec == object->spec) return;
        held.trouble.clear();
        auto zone = object.ok() ? zone_of(object->spec) : Result<dns::Zone>(object.error());
        if (!zone.ok()) {
            held.trouble = zone.error().message;
            return;
        }
        held.origin = zone->origin;
        held.spec = object->spec;
        held.key = text_at(object->spec, "signing_key");
        dns::Authority::Update update{.revision = next_revision()};
        if (held.key.empty()) {
            update.keys.emplace_back(held.origin, nullptr);
        } else if (auto key = key_of(held.key); key.ok()) {
            update.keys.emplace_back(held.origin, std::move(*key));
        } else {
            held.trouble = fmt::format("it is not signed anew: {}", key.error().message);
        }
        update.zones.push_back(std::move(*zone));
        auto again = update;
        const auto inside = within(held.origin);
        auto done = authority->apply(std::move(update));
        if (!done.ok()) {
            // A record now stands where a name is decided: the zone as it is written goes first.
            for (const auto& fqdn : inside)
                if (auto& one = names.at(fqdn); one.zone == resource) {
                    again.without_names.push_back(one.name);
                    settle_in(one, {});
                }
            done = authority->apply(std::move(again));
        }
        if (!done.ok()) {
            held.trouble = done.error().message;
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
        dns::Authority::Update update{.revision = next_revision()};
        update.without_zones.push_back(held.origin);
        if (const auto done = authority->apply(std::move(update)); !done.ok())
            log::error(Context::background(), "zone {} is still answered for: {}", held.origin.to_text(), done.error().text());
        const auto inside = within(held.origin);
        for (const auto& fqdn : inside)
            if (auto& one = names.at(fqdn); one.zone == held.resource) settle_in(one, {});
        put(inside); // a zone above may hold them now
    }

    Result<std::shared_ptr<const dns::SigningKey>> key_of(const std::string& secret) const {
        TRY(const auto pem, resources.reveal(*resources.registry().find("Secret"), secret, "spec.values.private_key"));
        return dns::SigningKey::from_pem(pem);
    }

    void secret_changed(const std::string& secret) {
        std::vector<std::string> signed_by;
        for (const auto& [resource, zone] : zones)
            if (zone.key == secret) signed_by.push_back(resource);
        for (const auto& resource : signed_by)
            if (const auto record = resources.find(*resources.registry().find("Zone"), resource))
                take(resource, record.get(), true);
    }

    Task<Unit> write_status(Context ctx, std::string resource, store::Fence fence) {
        const auto& kind = *resources.registry().find("Zone");
        const auto held = zones.find(resource);
        const auto record = resources.find(kind, resource);
        if (held == zones.end() || !record) co_return Unit{};
        CO_TRY(const auto object, resource::from_stored(*record));
        json::object status{{"state", held->second.loaded ? "served" : "refused"}, {"names", held->second.served}};
        if (!held->second.trouble.empty()) status["why"] = held->second.trouble;
        if (const auto ds = authority->ds_of(held->second.origin); ds.ok()) status["ds"] = ds_text(*ds);
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
    const auto observe = [&](std::string prefix, auto take) {
        state->observed.push_back(resources.store().observe(
            prefix, [size = prefix.size(), take](const store::Event& event) { take(event.key.substr(size), event.record.get()); }));
    };
    observe("secrets/", [state](const std::string& name, const store::Record*) { state->secret_changed(name); });
    observe("zones/", [state](const std::string& name, const store::Record* record) { state->take(name, record); });
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
            state_->settle_in(known->second, {});
            state_->names.erase(known);
            continue;
        }
        const auto name = dns::Name::from_text(change.fqdn);
        if (!name.ok()) continue; // the kind takes none that is no name
        auto& one = state_->names[change.fqdn];
        one.name = *name;
        one.answers = std::move(change.answers);
        put.push_back(change.fqdn);
    }
    state_->drop(drop);
    std::erase_if(put, [&](const std::string& fqdn) { return !state_->names.contains(fqdn); });
    state_->put(put);
}

json::array NameService::standing(const std::string& fqdn) const {
    const auto found = state_->names.find(fqdn);
    if (found == state_->names.end()) return {};
    json::object out{{"path", "this server"}, {"state", found->second.served() ? "IN_SYNC" : "ERROR"}};
    if (!found->second.trouble.empty()) out["why"] = found->second.trouble;
    return {std::move(out)};
}

void NameService::report_to(OnStanding on_standing) { state_->on_standing = std::move(on_standing); }

asio::awaitable<void> NameService::run(Context ctx) {
    const auto state = state_;
    auto refreshed = state->clock.steady();
    while (true) {
        if (state->statuses.empty() || !state->leadership.leads()) {
            // What is signed is signed anew whoever leads.
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
        for (const auto& resource : std::exchange(state->statuses, {})) {
            const auto written = co_await state->write_status(ctx, resource, *fence);
            if (written.ok()) continue;
            if (written.error().code == Code::cancelled) co_return;
            state->statuses.insert(resource);
        }
    }
}

std::size_t NameService::zones() const { return state_->zones.size(); }
std::size_t NameService::names() const {
    std::size_t out = 0;
    for (const auto& [fqdn, one] : state_->names) out += one.served() ? 1 : 0;
    return out;
}

} // namespace orrery::gslb
