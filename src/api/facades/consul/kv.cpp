#include "api/facades/consul/kv.h"

#include "api/facades/consul/kv_encoding.h"
#include "api/facades/consul/kv_state.h"

#include <fmt/format.h>

/// The index of keys and sessions in memory, and its queries. Writes are in kv_transaction.cpp and kv_sessions.cpp.
namespace orrery::api::consul {

namespace {

constexpr std::size_t max_tombstones = 10'000, max_tree_revisions = 10'000;

Revision revision_of(const store::Event& event) {
    return event.revision != 0 ? event.revision : event.record ? event.record->modified : 1;
}

} // namespace

json::object kv_evidence(const std::string& peer, json::object fields) {
    if (!peer.empty()) fields["peer"] = peer;
    return fields;
}

KeyValues::State::State(asio::any_io_executor executor, store::Store& store_, const Clock& clock_)
    : store(store_), clock(clock_), changed(std::move(executor)) {
    revision = sessions_revision = floor = std::max<Revision>(1, store.revision());
    loading = true;
    observers.push_back(store.observe(kv_prefix, [this](const store::Event& event) { key_changed(event); }));
    observers.push_back(store.observe(session_prefix, [this](const store::Event& event) { session_changed(event); }));
    loading = false;
}

void KeyValues::State::key_changed(const store::Event& event) {
    revision = std::max(revision, revision_of(event));
    tree_revisions.clear();
    auto known = by_store_key.find(event.key);
    if (!event.record) {
        if (known == by_store_key.end()) return;
        const auto key = known->second;
        remove_holder(key);
        entries.erase(key);
        by_store_key.erase(known);
        if (tombstones.size() >= max_tombstones) {
            tombstones.clear();
            floor = revision;
        }
        tombstones[key] = revision_of(event);
    } else if (auto entry = read_entry(*event.record)) {
        const auto key = entry->key;
        remove_holder(key);
        by_store_key[event.key] = key;
        tombstones.erase(key);
        if (!entry->session.empty()) locked_keys[entry->session].insert(key);
        entries[key] = std::move(*entry);
    }
    if (!loading) changed.notify_all();
}

void KeyValues::State::remove_holder(const std::string& key) {
    const auto at_key = entries.find(key);
    if (at_key == entries.end() || at_key->second.session.empty()) return;
    const auto holder = locked_keys.find(at_key->second.session);
    if (holder == locked_keys.end()) return;
    holder->second.erase(key);
    if (holder->second.empty()) locked_keys.erase(holder);
}

void KeyValues::State::session_changed(const store::Event& event) {
    sessions_revision = std::max(sessions_revision, revision_of(event));
    const auto id = event.key.substr(session_prefix.size());
    if (!event.record) {
        if (const auto ended = sessions.find(id); ended != sessions.end()) {
            ended_sessions[id] = ended->second;
            sessions.erase(ended);
        }
    } else if (auto session = read_session(*event.record)) {
        sessions[id] = std::move(*session);
    }
    if (!loading) changed.notify_all();
}

KeyValues::KeyValues(asio::any_io_executor executor, store::Store& store, const Clock& clock)
    : state_(std::make_unique<State>(std::move(executor), store, clock)) {}
KeyValues::~KeyValues() { state_->observers.clear(); }

const Entry* KeyValues::find(std::string_view key) const {
    const auto at = state_->entries.find(key);
    return at == state_->entries.end() ? nullptr : &at->second;
}

std::vector<const Entry*> KeyValues::tree(std::string_view prefix) const {
    std::vector<const Entry*> out;
    for (auto at = state_->entries.lower_bound(prefix); at != state_->entries.end() && at->first.starts_with(prefix); ++at)
        out.push_back(&at->second);
    return out;
}

const Session* KeyValues::session(std::string_view id) const {
    const auto at = state_->sessions.find(id);
    return at == state_->sessions.end() ? nullptr : &at->second;
}

std::vector<const Session*> KeyValues::sessions() const {
    std::vector<const Session*> out;
    for (const auto& [id, session] : state_->sessions) out.push_back(&session);
    return out;
}

Revision KeyValues::tree_revision(std::string_view prefix) const {
    auto& known = state_->tree_revisions;
    if (const auto at = known.find(prefix); at != known.end()) return at->second;
    Revision last = 0;
    for (auto at = state_->entries.lower_bound(prefix); at != state_->entries.end() && at->first.starts_with(prefix); ++at)
        last = std::max(last, at->second.modified);
    for (auto at = state_->tombstones.lower_bound(prefix); at != state_->tombstones.end() && at->first.starts_with(prefix); ++at)
        last = std::max(last, at->second);
    last = last == 0 ? state_->revision : std::max(last, state_->floor);
    if (known.size() < max_tree_revisions) known.emplace(prefix, last);
    return last;
}

Revision KeyValues::key_revision(std::string_view key) const {
    const auto* entry = find(key);
    return entry != nullptr ? entry->modified : state_->revision;
}

Revision KeyValues::revision() const { return state_->revision; }
Revision KeyValues::sessions_revision() const { return state_->sessions_revision; }
Notifier& KeyValues::changed() { return state_->changed; }

} // namespace orrery::api::consul
