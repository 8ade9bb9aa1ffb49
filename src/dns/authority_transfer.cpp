#include "dns/authority_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace orrery::dns {

namespace {

constexpr int max_transfers = 8;
constexpr std::size_t message_size = 16384; ///< compression pointers cannot refer to offsets beyond it

constexpr std::array<std::uint16_t, 4> signing_types{type::rrsig, type::nsec, 50, 51}; ///< the last ones: NSEC3, NSEC3PARAM

/// The records of a signed zone for a secondary: every RRset with its signature, and a conventional NSEC chain. Compact denial,
/// which this server uses for its own responses, needs the private key for each query, which a secondary does not have. Signs one
/// name at a time, while the zone is sent.
class SignedRecords {
public:
    struct Zone {
        std::string origin;
        std::shared_ptr<const SigningKey> key;
        std::unordered_set<std::string> cuts;
        std::shared_ptr<TransferSignatureCache> signatures;
        std::uint32_t now = 0, signature_lifetime = 0;
        std::uint32_t nsec_ttl = 0;
    };
    /// `records`: SOA first.
    SignedRecords(Zone zone, std::vector<ZoneRecord> records) : zone_(std::move(zone)), soa_(records.front()) {
        zone_.signatures->begin_transfer();
        std::unordered_map<std::string, std::size_t> index_of;
        for (auto& record : records) {
            if (std::find(signing_types.begin(), signing_types.end(), record.type) != signing_types.end()) continue;
            const auto key = NameKey(record.owner).text();
            const auto [at, is_new] = index_of.try_emplace(key, owners_.size());
            if (is_new) owners_.push_back({key, record.owner, is_occluded(key), {}});
            owners_[at->second].records.push_back(std::move(record));
        }
        std::sort(owners_.begin(), owners_.end(),
                  [](const Owner& one, const Owner& other) { return canonical_less(bytes_of(one.key), bytes_of(other.key)); });
    }

    /// The records of the next name; false after the last one. Sets `failed` if signing failed.
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
        if (owner.is_occluded) {
            out = std::move(owner.records);
            return true;
        }
        const bool cut = zone_.cuts.contains(owner.key);
        std::vector<std::uint16_t> types;
        for (std::size_t i = 0; i < owner.records.size();) {
            RrsetToSign set{bytes_of(owner.key), owner.records[i].type, owner.records[i].ttl, {}};
            const auto first = i;
            for (; i < owner.records.size() && owner.records[i].type == set.type; ++i) set.data.emplace_back(owner.records[i].data);
            // RFC 4035 section 2.2: the NS RRset at a delegation and glue are not signed.
            if (!cut || set.type == type::ns || set.type == type::ds) types.push_back(set.type);
            const bool to_sign = !cut || set.type == type::ds;
            auto signature = to_sign ? sign(set, owner.owner) : Result<ZoneRecord>(ZoneRecord{});
            failed = failed || !signature.ok();
            for (std::size_t k = first; k < i; ++k) out.push_back(owner.records[k]);
            if (to_sign && signature.ok()) out.push_back(std::move(*signature));
        }
        auto after = at_;
        while (after < owners_.size() && owners_[after].is_occluded) ++after;
        const auto& following = after < owners_.size() ? owners_[after].key : zone_.origin;
        ZoneRecord nsec{owner.owner, type::nsec, zone_.nsec_ttl, make_nsec(bytes_of(following), std::move(types)), 0};
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
        bool is_occluded = false; ///< below a delegation
        std::vector<ZoneRecord> records;
    };
    bool is_occluded(std::string_view key) const {
        while (key.size() > zone_.origin.size()) {
            key = parent_key(key);
            if (zone_.cuts.contains(std::string(key))) return true;
        }
        return false;
    }
    Result<ZoneRecord> sign(const RrsetToSign& set, const Name& owner) const {
        TRY(auto data, zone_.signatures->get(*zone_.key, bytes_of(zone_.origin), set, zone_.now, zone_.signature_lifetime));
        return ZoneRecord{owner, type::rrsig, set.ttl, std::move(data), 0};
    }

    Zone zone_;
    ZoneRecord soa_;
    std::vector<Owner> owners_;
    std::size_t at_ = 0;
};

/// Sends `records` and then those of a signed zone, in as many messages as necessary (RFC 5936).
class ZoneTransfer final : public Transfer {
public:
    ZoneTransfer(std::shared_ptr<std::atomic<int>> active, Bytes query, std::vector<ZoneRecord> records,
                 std::unique_ptr<SignedRecords> rest)
        : active_(std::move(active)),
          bytes_(query.begin(), query.end()),
          parsed_(read_query(bytes_)),
          records_(std::move(records)),
          rest_(std::move(rest)) {}
    ~ZoneTransfer() override { active_->fetch_sub(1); }

    std::size_t next(std::span<std::uint8_t> out) override {
        if (!more()) return 0;
        Writer writer(out, std::min(message_size, out.size()), parsed_.query, bytes_);
        bool any = false;
        while (more() && put(writer)) any = true;
        if (failed_) return 0;
        if (any) return writer.finish({});
        // A record larger than the usual message size gets a message of its own.
        Writer large(out, out.size(), parsed_.query, bytes_);
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
    ParsedQuery parsed_;
    std::vector<ZoneRecord> records_;
    std::unique_ptr<SignedRecords> rest_; ///< follow `records_`
    std::size_t at_ = 0;
    bool failed_ = false;
};

std::uint32_t serial_in(const std::vector<std::uint8_t>& soa) { return read32(soa, soa.size() - soa_serial_from_end); }

/// The records of a zone, SOA first.
std::vector<ZoneRecord> records_of(const ZoneState& zone) {
    std::vector<ZoneRecord> out(1); // the SOA goes to the front
    for (const auto& [key, sets] : zone.static_records) {
        const auto owner = name_from_key(key);
        const bool apex = key == zone.origin;
        for (const auto& set : sets) {
            // The records of the zone's key replace those of the zone file.
            if (zone.key && apex &&
                (set.type == type::dnskey || set.type == type::cdnskey || set.type == type::cds || set.type == type::ds))
                continue;
            for (const auto& data : set.data) {
                if (set.type != type::soa) {
                    out.push_back({owner, set.type, set.ttl, data, 0});
                    continue;
                }
                out[0] = {zone.name, set.type, set.ttl, data, 0};
                write32(out[0].data, data.size() - soa_serial_from_end, zone.serial);
            }
        }
    }
    if (zone.key) {
        const auto ttl = out[0].ttl;
        out.push_back({zone.name, type::dnskey, ttl, zone.key->dnskey(), 0});
        out.push_back({zone.name, type::cdnskey, ttl, zone.key->dnskey(), 0});
        out.push_back({zone.name, type::cds, ttl, zone.key->ds(zone.name), 0});
    }
    for (const auto& [key, dynamic_name] : zone.dynamic_names) {
        const auto owner = name_from_key(key);
        const CompiledAnswerSet compiled(dynamic_name->answer_sets.front());
        if (compiled.answer_set.alias) {
            const auto wire = compiled.answer_set.alias->wire();
            out.push_back({owner, type::cname, compiled.answer_set.ttl, {wire.begin(), wire.end()}, 0});
        }
        for (const auto& [record_type, family] : {std::pair(type::a, &compiled.v4), std::pair(type::aaaa, &compiled.v6)}) {
            RecordViews records(family->records);
            for (RecordView record; records.next(record);)
                out.push_back({owner, record_type, record.ttl, {record.data.begin(), record.data.end()}, 0});
        }
    }
    return out;
}

} // namespace

Result<std::vector<ZoneRecord>> Authority::zone_records(const Name& origin) const {
    const std::lock_guard lock(state_->write_mutex);
    const auto at = state_->zones.find(NameKey(origin).text());
    if (at == state_->zones.end()) return Error{Code::not_found, fmt::format("there is no zone {}", origin.to_text())};
    return records_of(*at->second);
}

std::unique_ptr<Transfer> Authority::transfer(Bytes query, const Client& client) const noexcept {
    const auto& allowed = state_->options.transfer_to;
    if (allowed.empty() || client.transport != Client::Transport::tcp || is_suspended()) return nullptr;
    const auto parsed = read_query(query);
    if (parsed.action != ParsedQuery::Action::answer || parsed.query.dns_class != dns_class::in ||
        (parsed.query.type != type::axfr && parsed.query.type != type::ixfr))
        return nullptr;
    if (std::none_of(allowed.begin(), allowed.end(),
                     [&](const Prefix& prefix) { return contains(prefix, client.address, client.v6); }))
        return nullptr;
    if (state_->active_transfers->fetch_add(1) >= max_transfers) {
        state_->active_transfers->fetch_sub(1);
        return nullptr;
    }
    std::vector<ZoneRecord> records;
    std::optional<SignedRecords::Zone> signing;
    {
        const std::lock_guard lock(state_->write_mutex);
        const auto at = state_->zones.find(NameKey(parsed.query.name).text());
        if (at == state_->zones.end()) {
            state_->active_transfers->fetch_sub(1);
            return nullptr;
        }
        const auto& zone = *at->second;
        records = records_of(zone);
        if (zone.key)
            signing =
                SignedRecords::Zone{zone.origin,
                                    zone.key,
                                    zone.cuts,
                                    zone.transfer_signatures,
                                    state_->now(),
                                    state_->options.signature_lifetime,
                                    std::min(records[0].ttl, read32(records[0].data, records[0].data.size() - 4))}; // RFC 9077
    }
    bool is_current = false;
    if (parsed.query.type == type::ixfr) {
        // RFC 1995: a secondary with this serial or a later one gets only the SOA, any other the whole zone.
        const auto message = read_message(query);
        if (message.ok() && message->authority.size() == 1 && message->authority[0].type == type::soa &&
            message->authority[0].data.size() >= 20)
            is_current = static_cast<std::int32_t>(serial_in(message->authority[0].data) - serial_in(records[0].data)) >= 0;
    }
    std::unique_ptr<SignedRecords> signed_records;
    if (is_current)
        records.resize(1);
    else if (signing)
        signed_records = std::make_unique<SignedRecords>(std::move(*signing), std::exchange(records, {}));
    else
        records.push_back(records[0]);
    return std::make_unique<ZoneTransfer>(state_->active_transfers, query, std::move(records), std::move(signed_records));
}

} // namespace orrery::dns
