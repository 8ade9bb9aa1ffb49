#include "gslb/stored_watcher.h"

#include "gslb/read.h"
#include "resource/object.h"

namespace orrery::gslb {

namespace {

constexpr std::string_view members_prefix = "members/";

} // namespace

StoredWatcher::StoredWatcher(store::Store& store) : store_(store) {
    observed_ = store.observe(members_prefix, [this](const store::Event& event) {
        const auto member = event.key.substr(members_prefix.size());
        if (watched_.contains(member)) tell(member, event.record.get());
    });
}
StoredWatcher::~StoredWatcher() = default;

void StoredWatcher::watch(const std::string& member, Target) {
    watched_.insert(member);
    tell(member, store_.find(std::string(members_prefix) + member).get());
}

void StoredWatcher::forget(const std::string& member) { watched_.erase(member); }
void StoredWatcher::report_to(OnSignal on_signal) { on_signal_ = std::move(on_signal); }
void StoredWatcher::report_places_to(OnPlace on_place) { on_place_ = std::move(on_place); }

void StoredWatcher::tell(const std::string& member, const store::Record* record) const {
    if (record == nullptr || !on_signal_) return;
    const auto object = resource::from_stored(*record);
    if (!object.ok()) return;
    Signal signal;
    signal.monitored = true;
    const auto verdict = text_at(object->status, "verdict");
    for (const auto one : {Health::up, Health::degraded, Health::down})
        if (name_of(one) == verdict) signal.standing = one;
    signal.words = text_at(object->status, "why");
    // By a person or by whoever knows it: a person's word is above this one here as it is there.
    signal.drains = text_at(object->status, "state") == "drained";
    if (object->status.contains("share")) signal.share = number_at(object->status, "share", 1);
    on_signal_(member, std::move(signal));
    // Whoever can ask where a load balancer is has said so there.
    Addresses addresses;
    for (const auto& text : texts_at(object->status, "addresses")) std::ignore = addresses.add(text);
    if (!addresses.empty() && on_place_) on_place_(member, addresses);
}

} // namespace orrery::gslb
