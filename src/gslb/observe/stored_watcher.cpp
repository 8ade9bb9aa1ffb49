#include "gslb/observe/stored_watcher.h"

#include "core/json_fields.h"
#include "resource/object.h"

namespace orrery::gslb {

namespace {

constexpr std::string_view members_prefix = "members/";

} // namespace

StoredWatcher::StoredWatcher(store::Store& store) : store_(store) {
    observed_ = store.observe(members_prefix, [this](const store::Event& event) {
        const auto member = event.key.substr(members_prefix.size());
        if (watched_.contains(member)) report(member, event.record.get());
    });
}
StoredWatcher::~StoredWatcher() = default;

void StoredWatcher::watch(const std::string& member, Target) {
    watched_.insert(member);
    report(member, store_.find(std::string(members_prefix) + member).get());
}

void StoredWatcher::forget(const std::string& member) { watched_.erase(member); }
void StoredWatcher::report_to(OnHealth on_health) { on_health_ = std::move(on_health); }
void StoredWatcher::report_addresses_to(OnAddresses on_addresses) { on_addresses_ = std::move(on_addresses); }

void StoredWatcher::report(const std::string& member, const store::Record* record) const {
    if (record == nullptr || !on_health_) return;
    const auto object = resource::from_stored(*record);
    if (!object.ok()) return;
    MemberHealth health;
    health.monitored = true;
    health.state = health::health_state_from(text_at(object->status, "verdict"));
    health.message = text_at(object->status, "message");
    // Drained by an override or by the member's source: an override takes precedence here as on the leader.
    health.drains = text_at(object->status, "state") == "drained";
    if (object->status.contains("share")) health.share = number_at(object->status, "share", 1);
    on_health_(member, std::move(health));
    // The leader stores the addresses that the source reports.
    Addresses addresses;
    for (const auto& text : texts_at(object->status, "addresses")) std::ignore = addresses.add(text);
    if (!addresses.empty() && on_addresses_) on_addresses_(member, addresses);
}

} // namespace orrery::gslb
