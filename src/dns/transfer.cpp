#include "dns/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace orrery::dns {

namespace {

constexpr int max_transfers = 8;
constexpr std::size_t message_size = 16384; ///< what is further back than this cannot be pointed to

constexpr std::array<std::uint16_t, 4> made_by_signing{type::rrsig, type::nsec, 50, 51}; ///< the last: NSEC3, NSEC3PARAM

/// A signed zone as a secondary serves it: every set with its signature, and the names in a chain of NSEC records. (Our own denials
/// are made for each question with the key, which a secondary has not.) Signatures are made a name at a time, as they are sent.
class SignedRecords {
public:
    struct Zone {
        std::string origin;
        std::shared_ptr<const SigningKey> key;
        std::unordered_set<std::string> cuts;
        std::shared_ptr<TransferSignatures> signatures;
        std::uint32_t now = 0, life = 0; ///< of signatures
        std::uint32_t nsec_ttl = 0;
    };
    /// The SOA is the first of the records.
    SignedRecords(Zone zone, std::vector<ZoneRecord> records) : zone_(std::move(zone)), soa_(records.front()) {
        zone_.signatures->begin();
        std::unordered_map<std::string, std::size_t> places;
        for (auto& record : records) {
            if (std::find(made_by_signing.begin(), made_by_signing.end(), record.type) != made_by_signing.end()) continue;
            const auto key = NameKey(record.owner).text();
            const auto [at, is_new] = places.try_emplace(key, owners_.size());
            if (is_new) owners_.push_back({key, record.owner, is_hidden(key), {}});
            owners_[at->second].records.push_back(std::move(record));
        }
        std::sort(owners_.begin(), owners_.end(),
                  [](const Owner& one, const Owner& other) { return canonically_before(bytes_of(one.key), bytes_of(other.key)); });
    }

    /// The records of the next name; nothing after the last. `failed` where it cannot be signed.
    bool next(std::vector<ZoneRecord>& out, bool& failed) {
        out.clear();
        if (at_ > owners_.size()) return false;
        if (at_ == owners_.size()) {
            ++at_;
            out.push_back(soa_);
            return true;
        }
        auto& owner = owners_[at_++];
        std::sort(owner.records.begin(), owner.records.end(), [](const ZoneRecord& one, const ZoneRecord& other) {
            const auto rank = [](const ZoneRecord& of) { return std::pair(of.type != type::soa, of.type); };
            return rank(one) != rank(other) ? rank(one) < rank(other) : one.data < other.data;
        });
        if (owner.hidden) {
            out = std::move(owner.records);
            return true;
        }
        const bool cut = zone_.cuts.contains(owner.key);
        std::vector<std::uint16_t> types;
        for (std::size_t i = 0; i < owner.records.size();) {
            SetToSign set{bytes_of(owner.key), owner.records[i].type, owner.records[i].ttl, {}};
            const auto first = i;
            for (; i < owner.records.size() && owner.records[i].type == set.type; ++i) set.data.emplace_back(owner.records[i].data);
            // RFC 4035 2.2: the NS set at a delegation, and glue beside it, are not ours to sign.
            if (!cut || set.type == type::ns || set.type == type::ds) types.push_back(set.type);
            const bool to_sign = !cut || set.type == type::ds;
            auto signature = to_sign ? sign(set, owner.owner) : Result<ZoneRecord>(ZoneRecord{});
            failed = failed || !signature.ok();
            for (std::size_t k = first; k < i; ++k) out.push_back(owner.records[k]);
            if (to_sign && signature.ok()) out.push_back(std::move(*signature));
        }
        auto after = at_;
        while (after < owners_.size() && owners_[after].hidden) ++after;
        const auto& following = after < owners_.size() ? owners_[after].key : zone_.origin;
        ZoneRecord nsec{owner.owner, type::nsec, zone_.nsec_ttl, make_nsec_to(bytes_of(following), std::move(types)), 0};
        auto signature = sign({bytes_of(owner.key), type::nsec, zone_.nsec_ttl, {Bytes(nsec.data)}}, owner.owner);
        failed = failed || !signature.ok();
        out.push_back(std::move(nsec));
        if (signature.ok()) out.push_back(std::move(*signature));
        owner.records.clear();
        return true;
    }

private:
    struct Owner {
        std::string key;
        Name owner;
        bool hidden = false; ///< by a delegation above
        std::vector<ZoneRecord> records;
    };
    bool is_hidden(std::string_view key) const {
        while (key.size() > zone_.origin.size()) {
            key = above(key);
            if (zone_.cuts.contains(std::string(key))) return true;
        }
        return false;
    }
    Result<ZoneRecord> sign(const SetToSign& set, const Name& owner) const {
        TRY(auto data, zone_.signatures->get(*zone_.key, bytes_of(zone_.origin), set, zone_.now, zone_.life));
        return ZoneRecord{owner, type::rrsig, set.ttl, std::move(data), 0};
    }

    Zone zone_;
    ZoneRecord soa_;
    std::vector<Owner> owners_;
    std::size_t at_ = 0;
};

/// Records in as many messages as they need (RFC 5936): these, or those of a signed zone, the SOA at both ends.
class ZoneTransfer final : public Transfer {
public:
    ZoneTransfer(std::shared_ptr<std::atomic<int>> active, Bytes query, std::vector<ZoneRecord> records,
                 std::unique_ptr<SignedRecords> rest)
        : active_(std::move(active)),
          bytes_(query.begin(), query.end()),
          reading_(read_query(bytes_)),
          records_(std::move(records)),
          rest_(std::move(rest)) {}
    ~ZoneTransfer() override { active_->fetch_sub(1); }

    std::size_t next(std::span<std::uint8_t> out) override {
        if (!more()) return 0;
        Writer writer(out, std::min(message_size, out.size()), reading_.query, bytes_);
        bool any = false;
        while (more() && put(writer)) any = true;
        if (failed_) return 0;
        if (any) return writer.finish({});
        // One that is larger than a message of the usual size has one to itself.
        Writer large(out, out.size(), reading_.query, bytes_);
        return put(large) ? large.finish({}) : 0;
    }

private:
    bool more() {
        while (!failed_ && at_ == records_.size()) {
            at_ = 0;
            if (!rest_ || !rest_->next(records_, failed_)) {
                records_.clear();
                return false;
            }
        }
        return !failed_;
    }
    bool put(Writer& into) {
        const auto& record = records_[at_];
        if (!into.raw(Writer::Section::answer, record.owner, record.type, dns_class::in, record.ttl, record.data)) return false;
        ++at_;
        return true;
    }

    std::shared_ptr<std::atomic<int>> active_;
    std::vector<std::uint8_t> bytes_;
    Reading reading_;
    std::vector<ZoneRecord> records_;
    std::unique_ptr<SignedRecords> rest_; ///< what comes after `records_`
    std::size_t at_ = 0;
    bool failed_ = false;
};

std::uint32_t serial_in(const std::vector<std::uint8_t>& soa) {
    std::uint32_t out = 0;
    for (std::size_t i = soa.size() - 20; i < soa.size() - 16; ++i) out = out << 8 | soa[i];
    return out;
}

/// The SOA first.
std::vector<ZoneRecord> records_of(const ZoneState& zone) {
    std::vector<ZoneRecord> out(1); // the SOA's place
    for (const auto& [key, sets] : zone.statics) {
        const auto owner = name_of_key(key);
        const bool apex = key == zone.origin;
        for (const auto& set : sets) {
            // What the file says of other keys does not hold here.
            if (zone.key && apex &&
                (set.type == type::dnskey || set.type == type::cdnskey || set.type == type::cds || set.type == type::ds))
                continue;
            for (const auto& data : set.data) {
                if (set.type != type::soa) {
                    out.push_back({owner, set.type, set.ttl, data, 0});
                    continue;
                }
                out[0] = {zone.name, set.type, set.ttl, data, 0};
                for (std::size_t i = 0; i < 4; ++i)
                    out[0].data[data.size() - 20 + i] = static_cast<std::uint8_t>(zone.serial >> 8 * (3 - i));
            }
        }
    }
    if (zone.key) {
        const auto ttl = out[0].ttl;
        out.push_back({zone.name, type::dnskey, ttl, zone.key->dnskey(), 0});
        out.push_back({zone.name, type::cdnskey, ttl, zone.key->dnskey(), 0});
        out.push_back({zone.name, type::cds, ttl, zone.key->ds(zone.name), 0});
    }
    for (const auto& [key, tailored] : zone.dynamics) {
        const auto owner = name_of_key(key);
        const ReadyChoice ready(tailored->choices.front());
        if (ready.choice.alias) {
            const auto wire = ready.choice.alias->wire();
            out.push_back({owner, type::cname, ready.choice.ttl, {wire.begin(), wire.end()}, 0});
        }
        for (const auto& [record_type, family] : {std::pair(type::a, &ready.v4), std::pair(type::aaaa, &ready.v6)}) {
            RecordViews records(family->all);
            for (RecordView record; records.next(record);)
                out.push_back({owner, record_type, record.ttl, {record.data.begin(), record.data.end()}, 0});
        }
    }
    return out;
}

} // namespace

Result<std::vector<std::uint8_t>> TransferSignatures::get(const SigningKey& key, Bytes zone, const SetToSign& set,
                                                          std::uint32_t now, std::uint32_t life) {
    const auto digest = content_digest(set);
    {
        const std::lock_guard lock(mutex_);
        if (const auto at = all_.find(digest); at != all_.end()) {
            const auto& data = at->second.data;
            const bool ours = data.size() > 18 && (data[16] << 8 | data[17]) == key.tag();
            // A secondary may keep it for as long again before it looks (see refresh_signatures).
            if (ours && now - at->second.made < life / 4) {
                at->second.used = turn_;
                return data;
            }
        }
    }
    TRY(auto data, make_rrsig(key, zone, set, signing_times(now, life)));
    const std::lock_guard lock(mutex_);
    if (set.type != type::soa) all_.insert_or_assign(digest, One{data, now, turn_}); // every change makes another SOA
    return data;
}

void TransferSignatures::begin() {
    const std::lock_guard lock(mutex_);
    ++turn_;
    std::erase_if(all_, [this](const auto& one) { return one.second.used + 2 <= turn_; });
}

Result<std::vector<ZoneRecord>> Authority::zone_records(const Name& origin) const {
    const std::lock_guard lock(state_->writing);
    const auto at = state_->zones.find(NameKey(origin).text());
    if (at == state_->zones.end()) return Error{Code::not_found, fmt::format("there is no zone {}", origin.to_text())};
    return records_of(*at->second);
}

std::unique_ptr<Transfer> Authority::transfer(Bytes query, const Asker& asker) const noexcept {
    const auto& allowed = state_->options.transfer_to;
    if (allowed.empty() || asker.transport != Asker::Transport::tcp) return nullptr;
    const auto reading = read_query(query);
    if (reading.what != Reading::What::answer || reading.query.dns_class != dns_class::in ||
        (reading.query.type != type::axfr && reading.query.type != type::ixfr))
        return nullptr;
    if (std::none_of(allowed.begin(), allowed.end(), [&](const Prefix& prefix) { return holds(prefix, asker.address, asker.v6); }))
        return nullptr;
    if (state_->transfers->fetch_add(1) >= max_transfers) {
        state_->transfers->fetch_sub(1);
        return nullptr;
    }
    std::vector<ZoneRecord> records;
    std::optional<SignedRecords::Zone> signing;
    {
        const std::lock_guard lock(state_->writing);
        const auto at = state_->zones.find(NameKey(reading.query.name).text());
        if (at == state_->zones.end()) {
            state_->transfers->fetch_sub(1);
            return nullptr;
        }
        const auto& zone = *at->second;
        records = records_of(zone);
        if (zone.key)
            signing =
                SignedRecords::Zone{zone.origin,
                                    zone.key,
                                    zone.cuts,
                                    zone.transferred,
                                    state_->now(),
                                    state_->options.signature_life,
                                    std::min(records[0].ttl, read32(records[0].data, records[0].data.size() - 4))}; // RFC 9077
    }
    bool current = false;
    if (reading.query.type == type::ixfr) {
        // RFC 1995: who has this serial, or a later one, needs nothing; all others get the whole zone.
        const auto message = read_message(query);
        if (message.ok() && message->authority.size() == 1 && message->authority[0].type == type::soa &&
            message->authority[0].data.size() >= 20)
            current = static_cast<std::int32_t>(serial_in(message->authority[0].data) - serial_in(records[0].data)) >= 0;
    }
    std::unique_ptr<SignedRecords> with_signatures;
    if (current)
        records.resize(1);
    else if (signing)
        with_signatures = std::make_unique<SignedRecords>(std::move(*signing), std::exchange(records, {}));
    else
        records.push_back(records[0]);
    return std::make_unique<ZoneTransfer>(state_->transfers, query, std::move(records), std::move(with_signatures));
}

} // namespace orrery::dns
