#include "dns/edns.h"
#include "dns/snapshot.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace orrery::dns {

namespace {

using Section = Writer::Section;
using Kind = RateLimit::Kind;

/// What is at a name, or near it.
struct Located {
    enum class How { nowhere, exact, wildcard, missing, delegated };
    How how = How::nowhere;
    const Entry* entry = nullptr; ///< what answers; of a missing name the closest that exists, of a delegated one the cut
};

/// `deepest`: names with more labels are not there.
Located locate(const Snapshot& snapshot, const NameKey& key) {
    const auto labels = key.label_count();
    std::size_t skip = labels > snapshot.deepest ? labels - snapshot.deepest : 0;
    const Entry* entry = nullptr;
    for (; skip <= labels; ++skip) {
        entry = NameTable::find(*snapshot.names, key.hash(skip), key.tail(skip));
        if (entry != nullptr) break;
    }
    if (entry == nullptr) return {};
    while (entry->is(Entry::below_cut)) { // whatever hides it is above, and is there
        ++skip;
        if (const auto* up = NameTable::find(*snapshot.names, key.hash(skip), key.tail(skip))) entry = up;
    }
    if (skip == 0) return {Located::How::exact, entry};
    if (entry->is(Entry::cut)) return {Located::How::delegated, entry};
    if (entry->is(Entry::wildcard_child)) {
        // RFC 4592: the wildcard right below the closest encloser, and no other.
        static constexpr std::array<std::uint8_t, 2> star{1, '*'};
        std::array<std::uint8_t, Name::longest + 2> name;
        const auto tail = key.tail(skip);
        std::memcpy(name.data(), star.data(), 2);
        std::memcpy(&name[2], tail.data(), tail.size());
        const auto* wildcard =
            NameTable::find(*snapshot.names, NameKey::hash_below(key.hash(skip), star), Bytes(name).first(2 + tail.size()));
        if (wildcard != nullptr) return {Located::How::wildcard, wildcard};
    }
    return {Located::How::missing, entry};
}

/// One answer being made.
class Answering {
public:
    Answering(const Authority::Options& options, const Snapshot& snapshot, Answerer& self, const Query& query, const Asker& asker,
              const AskedOptions& asked, const Clock& clock, Writer& writer)
        : clock_(clock),
          options_(options),
          snapshot_(snapshot),
          self_(self),
          query_(query),
          asker_(asker),
          asked_(asked),
          writer_(writer) {}

    Writer::Finish finish{.authoritative = false};
    std::uint8_t scope = 0;
    Kind kind = Kind::error;

    void answer() {
        if (query_.dns_class == dns_class::chaos) return chaos();
        if (query_.dns_class != dns_class::in && query_.dns_class != dns_class::any) return refuse(Rcode::refused);
        switch (query_.type) {
        case type::axfr:
        case type::ixfr:
            // Who may take a zone over TCP was served before this.
            return refuse(asker_.transport == Asker::Transport::udp ? Rcode::notimp : Rcode::refused);
        case type::maila:
        case type::mailb:
        case type::tkey:
        case type::tsig: return refuse(Rcode::notimp);
        case type::nxname: return refuse(Rcode::formerr); // RFC 9824 3.5
        default: break;
        }
        const NameKey key(query_.name);
        const auto found = locate(snapshot_, key);
        if (found.how == Located::How::nowhere) return refuse(Rcode::refused);
        if (auto& tally = snapshot_.zones[found.entry->zone]->tallies->each[self_.place]; true) {
            tally.queries.add();
            if (found.how == Located::How::missing) tally.nxdomain.add();
        }
        finish.authoritative = true;
        switch (found.how) {
        case Located::How::missing: return negative(*snapshot_.zones[found.entry->zone], key, nullptr, Rcode::nxdomain);
        case Located::How::delegated: return refer(*found.entry);
        default: break;
        }
        if (found.entry->is(Entry::cut) && query_.type != type::ds) return refer(*found.entry);
        at(*found.entry, key, found.how == Located::How::wildcard);
    }

private:
    void refuse(Rcode rcode) {
        writer_.clear();
        finish.rcode = rcode;
        finish.authoritative = false;
        kind = Kind::error;
    }

    /// It does not fit. Nothing of it is better than a part: over TCP there is all of it.
    void truncate() {
        writer_.clear();
        scope = 0;
        if (asker_.transport == Asker::Transport::tcp) return refuse(Rcode::servfail);
        finish.truncated = true;
    }

    void chaos() {
        static const auto version = {*Name::from_text("version.bind"), *Name::from_text("version.server")};
        static const auto identity = {*Name::from_text("id.server"), *Name::from_text("hostname.bind")};
        const auto is_one_of = [&](const auto& names) { return std::find(names.begin(), names.end(), query_.name) != names.end(); };
        std::string_view text;
        if (is_one_of(version)) text = options_.version;
        if (is_one_of(identity)) text = options_.identity;
        if (text.empty()) return refuse(Rcode::refused);
        finish.authoritative = true;
        kind = Kind::positive;
        if (query_.type != type::txt && query_.type != type::any) return;
        std::array<std::uint8_t, 256> data{};
        const auto size = std::min<std::size_t>(text.size(), 255);
        data[0] = static_cast<std::uint8_t>(size);
        std::memcpy(&data[1], text.data(), size);
        if (!writer_.raw(Section::answer, query_.name, type::txt, dns_class::chaos, 0, Bytes(data).first(1 + size))) truncate();
    }

    bool is_signed(const ZoneView& zone) const { return zone.key && query_.edns && query_.edns->dnssec_ok; }

    /// `entry`: what is at the name, or the wildcard that stands for it; nothing where there is no name.
    void negative(const ZoneView& zone, const NameKey& key, const Entry* entry, Rcode rcode) {
        finish.rcode = rcode;
        kind = rcode == Rcode::nxdomain ? Kind::nxdomain : Kind::nodata;
        scope = 0;
        if (!soa(zone, key)) return truncate();
        if (is_signed(zone) && !deny(zone, key, query_.name, entry)) truncate();
    }

    /// Proof that the name has nothing of the type (RFC 9824): the name is said to be there, with no types but those it has.
    bool deny(const ZoneView& zone, const NameKey& key, const Name& owner, const Entry* entry) {
        if (!writer_.raw(Section::authority, zone.name, type::rrsig, dns_class::in, zone.negative_ttl, zone.soa_signature))
            return false;
        if (entry == nullptr && !query_.edns->compact_ok) finish.rcode = Rcode::noerror;
        const bool ours = entry != nullptr && snapshot_.zones[entry->zone].get() == &zone;
        const bool exact = ours && std::equal(entry->name().begin(), entry->name().end(), key.tail().begin(), key.tail().end());
        const bool may_have =
            entry != nullptr && entry->dynamic &&
            ((query_.type == type::a && entry->dynamic->has_v4) || (query_.type == type::aaaa && entry->dynamic->has_v6));
        const auto* ready = exact && !may_have ? entry->set(type::nsec) : nullptr;
        if (ready != nullptr) {
            RecordViews records(entry->bytes(*ready));
            RecordView record;
            records.next(record);
            return writer_.raw(Section::authority, owner, type::nsec, dns_class::in, record.ttl, record.data) &&
                   sign_set(Section::authority, owner, key, *entry, *ready, zone);
        }
        std::vector<std::uint16_t> types;
        if (entry == nullptr)
            types.push_back(type::nxname);
        else if (!ours)
            types.push_back(type::ns); // a zone of ours below: of it the parent says no more than that
        else
            for (const auto& set : entry->sets())
                if (set.type != query_.type && set.type != type::cname && (set.type != type::ds || !entry->is(Entry::apex)))
                    types.push_back(set.type);
        if (ours && entry->dynamic && entry->dynamic->has_v4 && query_.type != type::a) types.push_back(type::a);
        if (ours && entry->dynamic && entry->dynamic->has_v6 && query_.type != type::aaaa) types.push_back(type::aaaa);
        const auto data = make_nsec(key.tail(), std::move(types));
        return writer_.raw(Section::authority, owner, type::nsec, dns_class::in, zone.negative_ttl, data) &&
               sign(Section::authority, owner, key, zone, {key.tail(), type::nsec, zone.negative_ttl, {Bytes(data)}});
    }

    /// The signatures of a set that was answered with. They were made with the set, unless a wildcard stands for the name.
    bool sign_set(Section section, const Name& owner, const NameKey& key, const Entry& entry, const Entry::Set& set,
                  const ZoneView& zone) {
        if (!is_signed(zone)) return true;
        if (std::equal(entry.name().begin(), entry.name().end(), key.tail().begin(), key.tail().end())) {
            RecordViews records(entry.bytes(set.signature_at, set.signature_size));
            for (RecordView record; set.signature_count > 0 && records.next(record);)
                if (!writer_.raw(section, owner, type::rrsig, dns_class::in, record.ttl, record.data)) return false;
            return true;
        }
        SetToSign to_sign{key.tail(), set.type, 0, {}};
        RecordViews records(entry.bytes(set));
        for (RecordView record; records.next(record);) {
            to_sign.ttl = record.ttl;
            to_sign.data.push_back(record.data);
        }
        return sign(section, owner, key, zone, to_sign);
    }

    /// Signs what nobody could have signed before it was asked for; so many a second.
    bool sign(Section section, const Name& owner, const NameKey& key, const ZoneView& zone, const SetToSign& set) {
        if (!is_signed(zone)) return true;
        const auto now =
            static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(clock_.wall().time_since_epoch()).count());
        if (!self_.signatures) self_.signatures = std::make_unique<SignatureCache>();
        const auto digest = content_digest(set);
        auto& kept = self_.signatures->at(digest);
        const bool ours = kept.data.size() > 18 && (kept.data[16] << 8 | kept.data[17]) == zone.key->tag();
        if (!ours || kept.of != digest || now - kept.made >= options_.signature_life / 2) {
            if (self_.signing_second != now) self_.signing_second = now, self_.signed_in_it = 0;
            if (self_.signed_in_it >= options_.signatures_a_second) {
                self_.unsigned_for_load.add();
                return false;
            }
            ++self_.signed_in_it;
            auto data = make_rrsig(*zone.key, bytes_of(zone.origin), set, signing_times(now, options_.signature_life));
            if (!data.ok()) return false;
            kept = {digest, now, std::move(*data)};
            self_.signed_on_demand.add();
        }
        return writer_.raw(section, owner, type::rrsig, dns_class::in, set.ttl, kept.data);
    }

    /// The SOA for a negative answer, with pointers to the end of the question's name, which is the zone's.
    bool soa(const ZoneView& zone, const NameKey& key) {
        std::array<std::uint8_t, 2 * Name::longest + 64> bytes;
        std::memcpy(bytes.data(), zone.negative.data(), zone.negative.size());
        const auto pointer = 12 + key.size() - zone.origin.size();
        for (std::size_t i = 0; i < zone.patch_count; ++i) {
            bytes[zone.patches[i]] = static_cast<std::uint8_t>(0xC0 | pointer >> 8);
            bytes[zone.patches[i] + 1U] = static_cast<std::uint8_t>(pointer);
        }
        return writer_.records(Section::authority, Bytes(bytes).first(zone.negative.size()), 1);
    }

    void refer(const Entry& cut) {
        finish.authoritative = false;
        kind = Kind::referral;
        const auto owner = plain_name(cut.name());
        const auto* set = cut.set(type::ns);
        const auto each_target = [&](auto&& see) {
            RecordViews records(cut.bytes(*set));
            for (RecordView record; records.next(record);)
                if (!see(plain_name(record.data), record.ttl)) return false;
            return true;
        };
        if (!each_target([&](const Name& target, std::uint32_t ttl) {
                return writer_.name(Section::authority, owner, type::ns, ttl, target);
            }))
            return truncate();
        if (const auto& zone = *snapshot_.zones[cut.zone]; is_signed(zone)) {
            // The DS, or that there is none.
            const NameKey key(cut.name());
            const auto* proof = cut.set(type::ds) != nullptr ? cut.set(type::ds) : cut.set(type::nsec);
            if (proof == nullptr) return truncate();
            RecordViews records(cut.bytes(*proof));
            for (RecordView record; records.next(record);)
                if (!writer_.raw(Section::authority, owner, proof->type, dns_class::in, record.ttl, record.data)) return truncate();
            if (!sign_set(Section::authority, owner, key, cut, *proof, zone)) return truncate();
        }
        const bool whole = each_target([&](const Name& target, std::uint32_t) {
            const NameKey key(target);
            const auto* glue = NameTable::find(*snapshot_.names, key.hash(), key.tail());
            if (glue == nullptr || glue->zone != cut.zone) return true;
            // RFC 9471: addresses that cannot be had elsewhere are all there, or the answer is truncated.
            const bool needed = target.is_within(owner);
            for (const auto wanted : {type::a, type::aaaa})
                if (const auto* addresses = glue->set(wanted)) {
                    RecordViews records(glue->bytes(*addresses));
                    for (RecordView record; records.next(record);)
                        if (!writer_.raw(Section::additional, target, wanted, dns_class::in, record.ttl, record.data) && needed)
                            return false;
                }
            return true;
        });
        if (!whole) truncate();
    }

    static Name plain_name(Bytes wire) {
        Name out;
        std::size_t place = 0;
        out.read(wire, place, Name::Pointers::no);
        return out;
    }

    /// The name is there, and is ours to answer for.
    void at(const Entry& entry, const NameKey& key, bool wild) {
        const auto* zone = snapshot_.zones[entry.zone].get();
        if (entry.is(Entry::apex) && query_.type == type::ds && entry.parent_zone != Entry::nowhere)
            zone = snapshot_.zones[entry.parent_zone].get(); // RFC 4035 3.1.4.1
        kind = Kind::positive;
        if (query_.type == type::any) return any(entry, *zone, key);
        if (entry.dynamic && (query_.type == type::a || query_.type == type::aaaa || entry.dynamic->has_alias)) {
            if (dynamic(entry, *zone, key, wild)) return;
        }
        if (const auto* set = entry.set(query_.type)) {
            if (!writer_.records(Section::answer, entry.bytes(*set), set->count) ||
                !sign_set(Section::answer, query_.name, key, entry, *set, *zone))
                truncate();
            return;
        }
        if (entry.is(Entry::alias)) return follow(entry, key, *zone);
        negative(*zone, key, &entry, Rcode::noerror);
    }

    /// RFC 8482: something small that is true.
    void any(const Entry& entry, const ZoneView& zone, const NameKey& key) {
        if (entry.is(Entry::nothing)) return negative(zone, key, &entry, Rcode::noerror);
        if (const auto* alias = entry.set(type::cname)) {
            if (!writer_.records(Section::answer, entry.bytes(*alias), alias->count) ||
                !sign_set(Section::answer, query_.name, key, entry, *alias, zone))
                truncate();
            return;
        }
        static constexpr std::array<std::uint8_t, 21> hinfo{0xC0, 0x0C, 0,   13,  0,   1,   0,   0,   0x0E, 0x10, 0,
                                                            9,    7,    'R', 'F', 'C', '8', '4', '8', '2',  0};
        if (!writer_.records(Section::answer, hinfo, 1) ||
            !sign(Section::answer, query_.name, key, zone, {key.tail(), type::hinfo, 3600, {Bytes(hinfo).subspan(12)}}))
            truncate();
    }

    /// Whether it said what there is to say; else static records may.
    bool dynamic(const Entry& entry, const ZoneView& zone, const NameKey& key, bool wild) {
        const auto& from = *entry.dynamic;
        const bool told = asked_.subnet && asked_.subnet->source > 0;
        const bool v6 = told ? asked_.subnet->v6 : asker_.v6;
        const auto& address = told ? asked_.subnet->address : asker_.address;
        const auto found = (v6 ? from.v6 : from.v4).find(address);
        const auto& ready = from.choices[found.choice];
        const auto& choice = ready.choice;
        scope = told ? found.scope : 0;
        if (choice.alias) {
            if (!writer_.records(Section::answer, ready.alias, 1) ||
                !sign(Section::answer, query_.name, key, zone, {key.tail(), type::cname, choice.ttl, {choice.alias->wire()}}))
                truncate();
            return true;
        }
        if (query_.type != type::a && query_.type != type::aaaa) {
            scope = 0;
            return false;
        }
        if (choice.candidates.empty()) {
            switch (choice.when_empty) {
            case Choice::Empty::nodata: negative(zone, key, &entry, Rcode::noerror); break;
            case Choice::Empty::servfail: refuse(Rcode::servfail); break;
            case Choice::Empty::refuse: refuse(Rcode::refused); break;
            }
            return true;
        }
        const auto& family = query_.type == type::a ? ready.v4 : ready.v6;
        const auto size = query_.type == type::a ? ReadyChoice::a_size : ReadyChoice::aaaa_size;
        const auto record = [&](std::size_t place) { return Bytes(family.all).subspan(place * size, size); };
        const bool signing = is_signed(zone);
        const std::vector<std::uint8_t>* signature = nullptr; // made before
        SetToSign to_sign{key.tail(), query_.type, choice.ttl, {}};
        bool fits = true;
        if (choice.picking == Picking::all && choice.most == 0) {
            fits = writer_.records(Section::answer, family.all, family.all_count);
            for (std::size_t i = 0; i < family.all_count && signing; ++i) to_sign.data.push_back(record(i).subspan(12));
            signature = &family.signature;
        } else if (choice.picking == Picking::one) {
            const auto place = family.place_of[ready.table.draw(self_.dice())];
            if (place >= 0) {
                fits = writer_.records(Section::answer, record(static_cast<std::size_t>(place)), 1);
                if (signing) to_sign.data.push_back(record(static_cast<std::size_t>(place)).subspan(12));
                if (signing && static_cast<std::size_t>(place) < family.signatures.size())
                    signature = &family.signatures[static_cast<std::size_t>(place)];
            }
        } else {
            Draw draw{.random = self_.dice(), .turn = self_.turn++, .client_prefix = 0};
            if (choice.picking == Picking::sticky) {
                const auto bits = std::min<unsigned>(v6 ? 56 : 24, told ? asked_.subnet->source : 128);
                draw.client_prefix = network_hash(address, v6, bits);
                if (told) scope = std::max<std::uint8_t>(scope, v6 ? 56 : 24);
            }
            std::array<std::uint16_t, Authority::max_candidates> picked;
            const auto count = pick(choice, draw, picked);
            std::array<std::uint64_t, Authority::max_candidates / 64> there{};
            for (std::size_t i = 0; i < count && fits; ++i) {
                const auto place = family.place_of[picked[i]];
                if (place < 0) continue;
                auto& bits = there[static_cast<std::size_t>(place) / 64];
                const auto bit = 1ULL << (place % 64);
                if ((bits & bit) != 0) continue; // two candidates with one address
                bits |= bit;
                fits = writer_.records(Section::answer, record(static_cast<std::size_t>(place)), 1);
                if (signing) to_sign.data.push_back(record(static_cast<std::size_t>(place)).subspan(12));
            }
            if (to_sign.data.size() == family.all_count) signature = &family.signature;
        }
        if (fits && signing && !to_sign.data.empty())
            fits = signature != nullptr && !signature->empty() && !wild
                       ? writer_.raw(Section::answer, query_.name, type::rrsig, dns_class::in, choice.ttl, *signature)
                       : sign(Section::answer, query_.name, key, zone, to_sign);
        if (!fits)
            truncate();
        else if (writer_.count(Section::answer) == 0)
            negative(zone, key, &entry, Rcode::noerror);
        return true;
    }

    /// The CNAME, and what it leads to as long as that is in the same zone and the same for all who ask.
    void follow(const Entry& first, const NameKey& first_key, const ZoneView& zone) {
        const auto* entry = &first;
        auto owner = query_.name;
        auto key = first_key;
        std::array<const Entry*, 16> seen;
        for (std::size_t links = 0; links < seen.size(); ++links) {
            if (std::find(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(links), entry) !=
                seen.begin() + static_cast<std::ptrdiff_t>(links))
                return;
            seen[links] = entry;
            const auto& link = *entry->set(type::cname);
            RecordViews records(entry->bytes(link));
            RecordView alias;
            records.next(alias);
            const auto target = plain_name(alias.data);
            if (!writer_.name(Section::answer, owner, type::cname, alias.ttl, target) ||
                !sign_set(Section::answer, owner, key, *entry, link, zone))
                return truncate();
            key = NameKey(target);
            const auto found = locate(snapshot_, key);
            if (found.how == Located::How::nowhere || found.how == Located::How::delegated || found.entry->zone != first.zone ||
                found.entry->is(Entry::cut))
                return;
            owner = target;
            entry = found.entry;
            if (found.how == Located::How::missing) return end_of_chain(zone, key, owner, nullptr, Rcode::nxdomain);
            if (entry->dynamic && (entry->dynamic->by_client || entry->dynamic->has_alias)) return;
            if (entry->is(Entry::alias)) continue;
            if (entry->dynamic && (query_.type == type::a || query_.type == type::aaaa))
                return chain_dynamic(*entry, owner, key, zone);
            const auto* set = entry->set(query_.type);
            if (set == nullptr) return end_of_chain(zone, key, owner, entry, Rcode::noerror);
            RecordViews last(entry->bytes(*set));
            for (RecordView record; last.next(record);)
                if (!writer_.raw(Section::answer, owner, query_.type, dns_class::in, record.ttl, record.data)) return truncate();
            if (!sign_set(Section::answer, owner, key, *entry, *set, zone)) truncate();
            return;
        }
    }

    /// RFC 2308 2.1, 6604: the code is that of the last name, and its zone's SOA says for how long.
    void end_of_chain(const ZoneView& zone, const NameKey& key, const Name& owner, const Entry* entry, Rcode rcode) {
        finish.rcode = rcode;
        kind = rcode == Rcode::nxdomain ? Kind::nxdomain : Kind::nodata;
        if (!writer_.soa(Section::authority, zone.name, zone.negative_ttl, zone.soa)) return truncate();
        if (is_signed(zone) && !deny(zone, key, owner, entry)) truncate();
    }

    void chain_dynamic(const Entry& entry, const Name& owner, const NameKey& key, const ZoneView& zone) {
        const auto& ready = entry.dynamic->choices.front();
        const auto& family = query_.type == type::a ? ready.v4 : ready.v6;
        const auto size = query_.type == type::a ? ReadyChoice::a_size : ReadyChoice::aaaa_size;
        if (ready.choice.candidates.empty()) {
            if (ready.choice.when_empty == Choice::Empty::nodata) return end_of_chain(zone, key, owner, &entry, Rcode::noerror);
            return; // whoever asks for the name itself is told
        }
        std::array<std::uint16_t, Authority::max_candidates> picked;
        std::size_t count = 0;
        if (ready.choice.picking == Picking::one)
            picked[count++] = ready.table.draw(self_.dice());
        else
            count = pick(ready.choice, {.random = self_.dice(), .turn = self_.turn++}, picked);
        SetToSign to_sign{key.tail(), query_.type, ready.choice.ttl, {}};
        bool none = true;
        std::array<std::uint64_t, Authority::max_candidates / 64> there{};
        for (std::size_t i = 0; i < count; ++i) {
            const auto place = family.place_of[picked[i]];
            if (place < 0) continue;
            auto& bits = there[static_cast<std::size_t>(place) / 64];
            const auto bit = 1ULL << (place % 64);
            if ((bits & bit) != 0) continue;
            bits |= bit;
            const auto data = Bytes(family.all).subspan(static_cast<std::size_t>(place) * size + 12, size - 12);
            if (!writer_.raw(Section::answer, owner, query_.type, dns_class::in, ready.choice.ttl, data)) return truncate();
            none = false;
            if (is_signed(zone)) to_sign.data.push_back(data);
        }
        if (none) return end_of_chain(zone, key, owner, &entry, Rcode::noerror);
        if (!to_sign.data.empty() && !sign(Section::answer, owner, key, zone, to_sign)) truncate();
    }

    const Clock& clock_;
    const Authority::Options& options_;
    const Snapshot& snapshot_;
    Answerer& self_;
    const Query& query_;
    const Asker& asker_;
    const AskedOptions& asked_;
    Writer& writer_;
};

std::uint32_t seconds_of(const Clock& clock) {
    return static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(clock.wall().time_since_epoch()).count());
}

} // namespace

std::size_t Authority::respond(Bytes bytes, const Asker& asker, std::span<std::uint8_t> out) const noexcept {
    const auto reading = read_query(bytes);
    if (reading.what == Reading::What::drop) return 0;
    const auto& query = reading.query;
    const auto& options = state_->options;
    const bool udp = asker.transport == Asker::Transport::udp;

    const Epochs<Answerer>::Reader reader(state_->epochs);
    auto& self = reader.local();
    self.queries.add();
    if (!udp) self.tcp.add();

    AskedOptions asked;
    bool refused = reading.what == Reading::What::refuse;
    auto rcode = reading.rcode;
    if (query.edns && rcode != Rcode::badvers && !read_options(query.edns->options, asked)) {
        refused = true;
        rcode = Rcode::formerr;
        asked = {};
    }
    // RFC 7873 5.4: a client may ask for nothing but a cookie.
    const bool only_cookie = refused && rcode == Rcode::formerr && bytes[4] == 0 && bytes[5] == 0 && query.opcode == 0 &&
                             !asked.client_cookie.empty() && !options.cookies.empty();
    if (only_cookie) rcode = Rcode::noerror;

    OptionWriter reply;
    bool trusted = false;
    std::size_t scope_at = 0;
    if (query.edns && (!refused || only_cookie)) {
        if (!asked.client_cookie.empty() && !options.cookies.empty()) {
            const auto now = seconds_of(state_->clock);
            const auto check = check_cookie(options.cookies, asked.client_cookie, asked.server_cookie, asker, now);
            trusted = check.valid;
            if (trusted) self.valid_cookies.add();
            if (check.renew)
                reply.put(option::cookie, asked.client_cookie, make_cookie(options.cookies[0], asked.client_cookie, asker, now));
            else
                reply.put(option::cookie, asked.client_cookie, asked.server_cookie);
        }
        if (asked.nsid && !options.nsid.empty())
            reply.put(option::nsid, Bytes(reinterpret_cast<const std::uint8_t*>(options.nsid.data()), options.nsid.size()));
        if (asked.keepalive && !udp) {
            const std::array<std::uint8_t, 2> time{static_cast<std::uint8_t>(options.tcp_keepalive >> 8),
                                                   static_cast<std::uint8_t>(options.tcp_keepalive)};
            reply.put(option::keepalive, time);
        }
        if (asked.subnet) {
            self.with_subnet.add();
            const auto& subnet = *asked.subnet;
            const std::array<std::uint8_t, 4> head{0, static_cast<std::uint8_t>(subnet.v6 ? 2 : 1), subnet.source, 0};
            scope_at = reply.size() + 4 + 3;
            reply.put(option::subnet, head, Bytes(subnet.address).first((subnet.source + 7U) / 8));
        }
    }

    const std::size_t limit = !udp ? 0xFFFF : query.edns ? std::min(query.edns->size, options.udp_size) : 512;
    Writer writer(out, limit, query, bytes);
    if (reply.size() > 0) writer.keep_for_options(reply.size());
    // The snapshot is read after the place was taken: from here on it stays.
    const auto& snapshot = *state_->current.load();
    Answering answering(options, snapshot, self, query, asker, asked, state_->clock, writer);
    if (refused) {
        answering.finish.rcode = rcode;
        self.malformed.add();
    } else {
        self.by_type[std::min<std::size_t>(query.type, counted_types - 1)].add();
        answering.answer();
    }
    auto& finish = answering.finish;
    const auto log = [&](std::size_t size) {
        if (self.log && query.question_end > 12)
            self.log->push({state_->clock.wall(), asker, query.name, query.type, query.dns_class, finish.rcode,
                            static_cast<std::uint16_t>(size)});
        return size;
    };
    if (udp && !trusted && state_->rate_limit.is_on()) {
        switch (state_->rate_limit.check(asker, answering.kind, state_->clock.steady(), self.dice())) {
        case RateLimit::Verdict::answer: break;
        case RateLimit::Verdict::drop: self.limited.add(); return log(0);
        case RateLimit::Verdict::truncate:
            self.slipped.add();
            writer.clear();
            finish.truncated = true;
            answering.scope = 0;
            break;
        }
    }
    if (scope_at != 0) reply[scope_at] = answering.scope;
    finish.options = reply.bytes();
    if (finish.truncated) self.truncated.add();
    self.by_rcode[std::min<std::size_t>(static_cast<std::size_t>(finish.rcode), counted_rcodes - 1)].add();
    return log(writer.finish(finish));
}

} // namespace orrery::dns
