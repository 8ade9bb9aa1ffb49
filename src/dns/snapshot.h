#pragma once

#include "dns/authority.h"
#include "dns/epoch.h"
#include "dns/name_table.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

/// What Authority is made of: the snapshot that answers are read from, and what the next one is made from.
namespace orrery::dns {

/// A number that one thread at a time counts up and any may read.
class Tally {
public:
    void add(std::uint64_t by = 1) { value_.store(value_.load(std::memory_order_relaxed) + by, std::memory_order_relaxed); }
    std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::uint64_t> value_{0};
};

constexpr std::size_t counted_types = 259, counted_rcodes = 24;

/// Signatures that were made on demand, by content: direct-mapped, of fixed size.
struct SignatureCache {
    struct One {
        ContentDigest of{};
        std::uint32_t made = 0;
        std::vector<std::uint8_t> data; ///< of the RRSIG record
    };
    std::array<One, 2048> all;
    One& at(const ContentDigest& digest) { return all[(digest[0] | digest[1] << 8) % all.size()]; }
};

/// Questions on their way from one who answers to one who writes them down.
struct QueryRing {
    explicit QueryRing(std::size_t size) : all(size) {}
    void push(const Authority::Asked& one) {
        const auto put = head.load(std::memory_order_relaxed);
        if (put - tail.load(std::memory_order_acquire) == all.size()) return unlogged.add();
        all[put % all.size()] = one;
        head.store(put + 1, std::memory_order_release);
    }
    std::vector<Authority::Asked> all;
    std::atomic<std::uint64_t> head{0}, tail{0};
    Tally unlogged;
};

/// What a thread that answers has for itself.
struct Answerer {
    std::size_t place = 0;
    std::uint64_t random = 0;
    std::uint32_t turn = 0;
    std::unique_ptr<SignatureCache> signatures; ///< made when first needed
    std::unique_ptr<QueryRing> log;             ///< if there is one
    std::uint32_t log_in = 0;                   ///< the next one to be kept comes after so many
    std::uint32_t signing_second = 0, signed_in_it = 0;
    Tally signed_on_demand, unsigned_for_load;
    Tally queries, tcp, truncated, limited, slipped, malformed, with_subnet, valid_cookies;
    std::array<Tally, counted_types> by_type;
    std::array<Tally, counted_rcodes> by_rcode;

    std::uint64_t dice() { // xorshift64*
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        return random * 0x2545F4914F6CDD1DU;
    }
};

struct ZoneTallies {
    explicit ZoneTallies(std::size_t places) : each(places) {}
    struct alignas(64) One {
        Tally queries, nxdomain;
    };
    std::vector<One> each;
};

/// A zone as answers need it.
struct ZoneView {
    std::string origin; ///< in lower case, as on the wire
    Name name;
    Writer::Soa soa;
    std::uint32_t negative_ttl = 0;
    /// The SOA record for negative answers. Its owner, and tails of the names in it, are pointers to where the zone's name stands
    /// in the question: `patches` says where.
    std::vector<std::uint8_t> negative;
    std::array<std::uint16_t, 3> patches{};
    std::size_t patch_count = 0;
    std::shared_ptr<ZoneTallies> tallies;
    std::shared_ptr<const SigningKey> key;   ///< of a signed zone
    std::vector<std::uint8_t> soa_signature; ///< the data of the SOA's RRSIG
};

struct Snapshot {
    const NameTable::Root* names = nullptr;
    std::vector<std::shared_ptr<const ZoneView>> zones; ///< by number; nothing where there is none any more
    std::size_t name_count = 0;
    std::size_t deepest = 0; ///< labels of the deepest name: nothing need be looked for below
};

/// Static records of one type at one name.
struct StaticSet {
    std::uint16_t type = 0;
    std::uint32_t ttl = 0;
    std::vector<std::vector<std::uint8_t>> data;
    bool operator==(const StaticSet&) const = default;
};
using StaticSets = std::vector<StaticSet>;

/// Signatures of a zone's last transfer, by content: the next one signs what has changed. Any thread may ask.
class TransferSignatures {
public:
    /// The data of the RRSIG, as it was made or made now. `life`: seconds that a signature is valid for.
    Result<std::vector<std::uint8_t>> get(const SigningKey& key, Bytes zone, const SetToSign& set, std::uint32_t now,
                                          std::uint32_t life);
    /// A transfer begins; what neither it nor the one before used is forgotten.
    void begin();

private:
    struct Hash {
        std::size_t operator()(const ContentDigest& of) const {
            std::size_t out = 0;
            std::memcpy(&out, of.data(), sizeof out);
            return out;
        }
    };
    struct One {
        std::vector<std::uint8_t> data;
        std::uint32_t made = 0, used = 0;
    };
    mutable std::mutex mutex_;
    std::unordered_map<ContentDigest, One, Hash> all_;
    std::uint32_t turn_ = 0;
};

/// A zone as the next snapshot is made from. Keys are names in lower case, as on the wire.
struct ZoneState {
    Name name;
    std::string origin;
    std::uint32_t number = 0;
    std::uint32_t serial = 0;
    std::uint32_t changed_at = 0; ///< when it got its serial
    std::unordered_map<std::string, StaticSets> statics;
    std::unordered_map<std::string, std::shared_ptr<const Tailored>> dynamics;
    /// Every name that exists, those between others too, with how many are right below it.
    struct Place {
        std::uint32_t children = 0;
        bool data = false;
        std::uint32_t signed_at = 0;
    };
    std::unordered_map<std::string, Place> places;
    std::unordered_set<std::string> cuts;
    std::shared_ptr<const SigningKey> key;
    std::shared_ptr<ZoneTallies> tallies;
    std::shared_ptr<TransferSignatures> transferred = std::make_shared<TransferSignatures>();
};
using Statics = std::unordered_map<std::string, StaticSets>;

struct Authority::State {
    explicit State(Options options_);

    Options options;
    const Clock& clock;
    mutable Epochs<Answerer> epochs;
    mutable RateLimit rate_limit;
    std::atomic<const Snapshot*> current{nullptr};
    std::atomic<std::uint64_t> changes{0};
    std::shared_ptr<std::atomic<int>> transfers = std::make_shared<std::atomic<int>>(0);

    // --- Of the writer -------------------------------------------------------------------------------------------------
    mutable std::mutex writing;
    std::unordered_map<std::string, std::unique_ptr<ZoneState>> zones;
    NameTable table;
    std::unique_ptr<const Snapshot> published;
    std::size_t deepest = 0;
    struct Retired {
        std::uint64_t turn = 0;
        NameTable::Garbage garbage;
        std::unique_ptr<const Snapshot> snapshot;
    };
    std::deque<Retired> retired;
    std::size_t names = 0;
    struct MadeSignature {
        std::vector<std::uint8_t> data;
        std::uint32_t made = 0;
    };
    mutable std::map<ContentDigest, MadeSignature> made_signatures; ///< but those of SOA records: every change makes another
    mutable std::uint32_t oldest_signature = 0;                     ///< of those used since it was set to now
    std::uint32_t now() const;
    /// From the cache, where it is young enough. `made` is set to the oldest that was used.
    std::vector<std::uint8_t> signature(const ZoneState& zone, const SetToSign& set) const;
    /// Adds the signatures, and NSEC, to an entry's sets.
    void sign_sets(const ZoneState& zone, const NameKey& name, const Entry& entry, std::vector<Entry::Set>& sets,
                   std::vector<std::uint8_t>& bytes) const;
    void sign_dynamic(const ZoneState& zone, const NameKey& name, Dynamic& dynamic) const;

    /// The deepest zone that holds the name; nothing if none does. From `skip` labels on.
    ZoneState* zone_of(std::string_view key, std::size_t skip = 0) const;
    Result<Unit> check(const Update& update, const std::unordered_map<std::string, Statics>& staged) const;
    Result<Unit> apply(Update update);
    void publish(const std::unordered_set<ZoneState*>& touched);
    /// Gives a zone its next serial: this one, if it is later than the one it has.
    void set_serial(ZoneState& zone, std::uint32_t wanted);
    void tidy();

    // Names whose entries must be made anew, and zones whose SOA must.
    struct Dirty {
        std::unordered_map<ZoneState*, std::unordered_set<std::string>> names;
        std::unordered_set<ZoneState*> zones;
    };
    void replace_statics(ZoneState& zone, Statics statics, Dirty& dirty);
    void rebuild_places(ZoneState& zone, Dirty& dirty);
    void update_place(ZoneState& zone, const std::string& key, Dirty& dirty);
    void add_below(ZoneState& zone, const std::string& key, Dirty& dirty);
    void drop_below(ZoneState& zone, const std::string& key, Dirty& dirty);
    void remake(ZoneState& zone, const std::string& key);
    std::shared_ptr<const ZoneView> view_of(const ZoneState& zone) const;
};

inline Bytes bytes_of(std::string_view key) { return {reinterpret_cast<const std::uint8_t*>(key.data()), key.size()}; }
/// Without its first label.
inline std::string_view above(std::string_view key) { return key.substr(1U + static_cast<std::uint8_t>(key[0])); }
Name name_of_key(std::string_view key);
bool is_below(std::string_view key, std::string_view zone); ///< or the same
const StaticSet* set_in(const StaticSets& sets, std::uint16_t wanted);
std::uint32_t read32(Bytes bytes, std::size_t at);

} // namespace orrery::dns
