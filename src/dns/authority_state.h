#pragma once

#include "dns/authority.h"
#include "dns/epoch.h"
#include "dns/snapshot.h"
#include "dns/zone_state.h"

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace orrery::dns {

/// Implementation of Authority: the current snapshot for readers, and the writer's zones from which the next snapshot is built.
/// The parts are in authority_update.cpp (validate and apply updates), authority_entries.cpp (build entries),
/// authority_signing.cpp (DNSSEC), authority_transfer.cpp (AXFR) and authority_respond.cpp (queries).
struct Authority::State {
    explicit State(Options options_);

    Options options;
    const Clock& clock;
    mutable Epochs<ThreadState> epochs;
    mutable RateLimit rate_limit;
    std::atomic<const Snapshot*> current_snapshot{nullptr};
    std::atomic<std::uint64_t> change_count{0};
    std::atomic<bool> suspended{false};
    std::shared_ptr<std::atomic<int>> active_transfers = std::make_shared<std::atomic<int>>(0);

    // --- Writer: protected by write_mutex ------------------------------------------------------------------------------

    mutable std::mutex write_mutex;
    std::unordered_map<std::string, std::unique_ptr<ZoneState>> zones; ///< by origin
    NameTable table;
    std::unique_ptr<const Snapshot> published;
    std::size_t max_labels = 0;
    /// Data that was replaced in one epoch and waits until all readers of that epoch have left.
    struct Retired {
        std::uint64_t epoch = 0;
        NameTable::Garbage garbage;
        std::unique_ptr<const Snapshot> snapshot;
    };
    std::deque<Retired> retired;
    std::size_t name_count = 0;
    mutable ZoneSignatureCache zone_signatures;

    std::uint32_t now() const; ///< Unix time in seconds
    /// The deepest zone that contains the name without its first `skip` labels, or null.
    ZoneState* zone_of(std::string_view key, std::size_t skip = 0) const;
    ZoneState* parent_zone_of(std::string_view origin) const; ///< the served zone above an origin, or null

    // --- Updates -------------------------------------------------------------------------------------------------------

    /// Names whose entries, and zones whose SOA, must be rebuilt.
    struct Dirty {
        std::unordered_map<ZoneState*, std::unordered_set<std::string>> names;
        std::unordered_set<ZoneState*> zones;
        void add_zone(ZoneState& zone) {
            zones.insert(&zone);
            names[&zone].insert(zone.origin);
        }
    };
    using StagedZones = std::unordered_map<std::string, StaticRecords>; ///< validated zones of an update, by origin

    Result<Unit> apply(Update update);
    Result<Unit> validate(const Update& update, const StagedZones& staged) const;
    void remove_zone(const std::string& key, Dirty& dirty);
    void add_zone(const std::string& key, StaticRecords static_records, Dirty& dirty);
    void set_signing_key(ZoneState& zone, std::shared_ptr<const SigningKey> key, Dirty& dirty);
    std::uint32_t unused_zone_number() const;
    /// Sets the serial to `wanted`, or to the next one if `wanted` is not later than the current serial (RFC 1982).
    void set_serial(ZoneState& zone, std::uint32_t wanted);
    /// Publishes a new snapshot and retires the old one. `touched`: zones whose ZoneView must be rebuilt.
    void publish(const std::unordered_set<ZoneState*>& touched);
    /// Frees retired data that no reader can refer to.
    void reclaim();

    // --- Existing names and entries ------------------------------------------------------------------------------------

    void replace_static_records(ZoneState& zone, StaticRecords static_records, Dirty& dirty);
    void rebuild_existing_names(ZoneState& zone, Dirty& dirty);
    /// Call after static or dynamic data at a name was added, removed or changed.
    void update_existing_name(ZoneState& zone, const std::string& key, Dirty& dirty);
    void add_child(ZoneState& zone, const std::string& key, Dirty& dirty);
    void remove_child(ZoneState& zone, const std::string& key, Dirty& dirty);
    /// Replaces or removes the table entry of a name.
    void rebuild_entry(ZoneState& zone, const std::string& key);
    std::shared_ptr<const ZoneView> make_zone_view(const ZoneState& zone) const;

    // --- DNSSEC --------------------------------------------------------------------------------------------------------

    /// RRSIG RDATA, from the cache or made now.
    std::vector<std::uint8_t> signature(const ZoneState& zone, const RrsetToSign& rrset) const;
    /// Appends an NSEC RRset to an entry in a signed zone.
    void add_nsec(const ZoneState& zone, const NameKey& name, const Entry& entry, std::vector<Entry::Rrset>& rrsets,
                  std::vector<std::uint8_t>& bytes) const;
    /// Appends the signatures of an entry's RRsets.
    void sign_rrsets(const ZoneState& zone, const NameKey& name, const Entry& entry, std::vector<Entry::Rrset>& rrsets,
                     std::vector<std::uint8_t>& bytes) const;
    void sign_dynamic_name(const ZoneState& zone, const NameKey& name, CompiledDynamicName& dynamic) const;
    std::size_t refresh_signatures(std::size_t max_names);
};

} // namespace orrery::dns
