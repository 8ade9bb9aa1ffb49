#include "dns/response_builder.h"

#include <algorithm>
#include <cstring>

namespace orrery::dns {

namespace {

Name name_from_wire(Bytes wire) {
    Name out;
    std::size_t at = 0;
    out.read(wire, at, Name::Pointers::no);
    return out;
}

/// Calls `visit` with the target and the TTL of each NS record of a delegation, until it returns false.
template <class F> bool for_each_nameserver(const Entry& cut, F&& visit) {
    RecordViews records(cut.bytes(*cut.rrset(type::ns)));
    for (RecordView record; records.next(record);)
        if (!visit(name_from_wire(record.data), record.ttl)) return false;
    return true;
}

} // namespace

LookupResult find_name(const Snapshot& snapshot, const NameKey& key) {
    const auto labels = key.label_count();
    std::size_t skip = labels > snapshot.max_labels ? labels - snapshot.max_labels : 0;
    const Entry* entry = nullptr;
    for (; skip <= labels; ++skip) {
        entry = NameTable::find(*snapshot.names, key.hash(skip), key.suffix(skip));
        if (entry != nullptr) break;
    }
    if (entry == nullptr) return {};
    while (entry->is(Entry::below_cut)) { // the zone cut above it exists
        ++skip;
        if (const auto* up = NameTable::find(*snapshot.names, key.hash(skip), key.suffix(skip))) entry = up;
    }
    if (skip == 0) return {LookupResult::Kind::exact, entry};
    if (entry->is(Entry::cut)) return {LookupResult::Kind::delegation, entry};
    if (entry->is(Entry::has_wildcard_child)) {
        // RFC 4592: only the wildcard directly below the closest encloser matches.
        static constexpr std::array<std::uint8_t, 2> star{1, '*'};
        std::array<std::uint8_t, Name::max_size + 2> name;
        const auto suffix = key.suffix(skip);
        std::memcpy(name.data(), star.data(), 2);
        std::memcpy(&name[2], suffix.data(), suffix.size());
        const auto* wildcard =
            NameTable::find(*snapshot.names, NameKey::hash_below(key.hash(skip), star), Bytes(name).first(2 + suffix.size()));
        if (wildcard != nullptr) return {LookupResult::Kind::wildcard, wildcard};
    }
    return {LookupResult::Kind::nxdomain, entry};
}

bool ResponseBuilder::reject_meta_type() {
    switch (query_.type) {
    case type::axfr:
    case type::ixfr:
        if (client_.transport == Client::Transport::tcp)
            reject_transfer();
        else
            reject(Rcode::notimp, ExtendedError{extended::not_supported, "over TCP only"});
        return true;
    case type::maila:
    case type::mailb:
    case type::tkey:
    case type::tsig: reject(Rcode::notimp, ExtendedError{extended::not_supported, {}}); return true;
    case type::nxname: reject(Rcode::formerr, ExtendedError{extended::invalid_type, {}}); return true; // RFC 9824 section 3.5
    default: return false;
    }
}

void ResponseBuilder::build() {
    if (query_.dns_class == dns_class::chaos) return build_chaos();
    if (query_.dns_class != dns_class::in && query_.dns_class != dns_class::any)
        return reject(Rcode::refused, ExtendedError{extended::not_supported, "class"});
    if (reject_meta_type()) return;
    const NameKey key(query_.name);
    const auto found = find_name(snapshot_, key);
    if (found.kind == LookupResult::Kind::not_authoritative)
        return reject(Rcode::refused, ExtendedError{extended::not_authoritative, {}});
    const auto& zone = *snapshot_.zones[found.entry->zone];
    auto& counters = zone.counters->slots[self_.slot];
    counters.queries.add();
    header.authoritative = query_.dns_class == dns_class::in; // no server is authoritative for class ANY
    switch (found.kind) {
    case LookupResult::Kind::nxdomain:
        counters.nxdomain.add();
        if (is_proof_query() && is_signed(zone)) return build_proof(zone, key, nullptr);
        return build_negative(zone, key, nullptr, Rcode::nxdomain);
    case LookupResult::Kind::delegation: return build_referral(*found.entry);
    default: break;
    }
    if (found.entry->is(Entry::cut) && query_.type != type::ds) return build_referral(*found.entry);
    build_at(*found.entry, key, found.kind == LookupResult::Kind::wildcard);
}

void ResponseBuilder::reject_transfer() {
    const auto found = find_name(snapshot_, NameKey(query_.name));
    if (found.kind != LookupResult::Kind::exact || !found.entry->is(Entry::apex))
        return reject(Rcode::refused, ExtendedError{extended::not_authoritative, {}});
    const auto& allowed = options_.transfer_to;
    const bool is_allowed =
        std::any_of(allowed.begin(), allowed.end(), [&](const Prefix& one) { return contains(one, client_.address, client_.v6); });
    reject(Rcode::refused, is_allowed ? ExtendedError{extended::other, "too many transfers at once"}
                                      : ExtendedError{extended::prohibited, "transfer"});
}

void ResponseBuilder::reject(Rcode rcode, std::optional<ExtendedError> reason) {
    writer_.clear();
    if (reason) extended_error = reason;
    header.rcode = rcode;
    header.authoritative = false;
    kind = Kind::error;
}

void ResponseBuilder::truncate() {
    writer_.clear();
    scope = 0;
    if (client_.transport == Client::Transport::tcp) return reject(Rcode::servfail);
    header.truncated = true;
}

void ResponseBuilder::build_chaos() {
    static const auto version = {*Name::from_text("version.bind"), *Name::from_text("version.server")};
    static const auto identity = {*Name::from_text("id.server"), *Name::from_text("hostname.bind")};
    const auto is_one_of = [&](const auto& names) { return std::find(names.begin(), names.end(), query_.name) != names.end(); };
    std::string_view text;
    if (is_one_of(version)) text = options_.version;
    if (is_one_of(identity)) text = options_.identity;
    if (text.empty()) return reject(Rcode::refused, ExtendedError{extended::prohibited, {}});
    header.authoritative = true;
    kind = Kind::positive;
    if (query_.type != type::txt && query_.type != type::any) return;
    std::array<std::uint8_t, 256> data{};
    const auto size = std::min<std::size_t>(text.size(), 255);
    data[0] = static_cast<std::uint8_t>(size);
    std::memcpy(&data[1], text.data(), size);
    if (!writer_.raw(Section::answer, query_.name, type::txt, dns_class::chaos, 0, Bytes(data).first(1 + size))) truncate();
}

void ResponseBuilder::build_negative(const ZoneView& zone, const NameKey& key, const Entry* entry, Rcode rcode) {
    header.rcode = rcode;
    kind = rcode == Rcode::nxdomain ? Kind::nxdomain : Kind::nodata;
    scope = 0;
    if (!write_soa(zone, key)) return truncate();
    if (is_signed(zone) && !write_denial(zone, key, query_.name, entry)) truncate();
}

bool ResponseBuilder::write_soa(const ZoneView& zone, const NameKey& key) {
    std::array<std::uint8_t, 2 * Name::max_size + 64> bytes;
    std::memcpy(bytes.data(), zone.negative.data(), zone.negative.size());
    const auto pointer = 12 + key.size() - zone.origin.size();
    for (std::size_t i = 0; i < zone.pointer_count; ++i) {
        bytes[zone.pointer_offsets[i]] = static_cast<std::uint8_t>(0xC0 | pointer >> 8);
        bytes[zone.pointer_offsets[i] + 1U] = static_cast<std::uint8_t>(pointer);
    }
    return writer_.records(Section::authority, Bytes(bytes).first(zone.negative.size()), 1);
}

void ResponseBuilder::build_referral(const Entry& cut) {
    header.authoritative = false;
    kind = Kind::referral;
    const auto owner = name_from_wire(cut.name());
    const bool fits = for_each_nameserver(cut,
                                          [&](const Name& target, std::uint32_t ttl) {
                                              return writer_.name(Section::authority, owner, type::ns, ttl, target);
                                          }) &&
                      write_delegation_proof(cut, owner) &&
                      for_each_nameserver(cut, [&](const Name& target, std::uint32_t) { return write_glue(cut, owner, target); });
    if (!fits) truncate();
}

/// The DS records or, without any, the NSEC that proves it.
bool ResponseBuilder::write_delegation_proof(const Entry& cut, const Name& owner) {
    const auto& zone = *snapshot_.zones[cut.zone];
    if (!is_signed(zone)) return true;
    const NameKey key(cut.name());
    const auto* proof = cut.rrset(type::ds) != nullptr ? cut.rrset(type::ds) : cut.rrset(type::nsec);
    if (proof == nullptr) return false;
    RecordViews records(cut.bytes(*proof));
    for (RecordView record; records.next(record);)
        if (!writer_.raw(Section::authority, owner, proof->type, dns_class::in, record.ttl, record.data)) return false;
    return write_signatures(Section::authority, owner, key, cut, *proof, zone);
}

bool ResponseBuilder::write_glue(const Entry& cut, const Name& owner, const Name& target) {
    const NameKey key(target);
    const auto* glue = NameTable::find(*snapshot_.names, key.hash(), key.suffix());
    if (glue == nullptr || glue->zone != cut.zone) return true;
    const bool is_required = target.is_within(owner);
    for (const auto wanted : {type::a, type::aaaa})
        if (const auto* addresses = glue->rrset(wanted)) {
            RecordViews records(glue->bytes(*addresses));
            for (RecordView record; records.next(record);)
                if (!writer_.raw(Section::additional, target, wanted, dns_class::in, record.ttl, record.data) && is_required)
                    return false;
        }
    return true;
}

void ResponseBuilder::build_at(const Entry& entry, const NameKey& key, bool is_wildcard) {
    const auto* zone = snapshot_.zones[entry.zone].get();
    if (entry.is(Entry::apex) && query_.type == type::ds && entry.parent_zone != Entry::no_zone)
        zone = snapshot_.zones[entry.parent_zone].get(); // RFC 4035 section 3.1.4.1: the parent answers for DS
    kind = Kind::positive;
    if (query_.type == type::any) return build_any(entry, *zone, key);
    if (is_proof_query()) {
        if (is_signed(*zone)) return build_proof(*zone, key, &entry);
        if (is_wildcard) return build_negative(*zone, key, &entry, Rcode::noerror); // the NSEC there is of the wildcard's own name
    }
    if (is_address_query()) {
        const auto& table = entry.inline_tables[query_.type == type::a ? 0 : 1];
        if (table.cells > 0 && !is_signed(*zone)) {
            const auto record = entry.draw_record(
                table, query_.type == type::a ? CompiledAnswerSet::a_size : CompiledAnswerSet::aaaa_size, self_.next_random());
            if (record.empty()) return build_negative(*zone, key, &entry, Rcode::noerror);
            if (!writer_.records(Section::answer, record, 1)) truncate();
            return;
        }
    }
    if (entry.dynamic && (is_address_query() || entry.dynamic->has_alias) && build_dynamic(entry, *zone, key, is_wildcard)) return;
    if (const auto* rrset = entry.rrset(query_.type)) {
        if (!writer_.records(Section::answer, entry.bytes(*rrset), rrset->count) ||
            !write_signatures(Section::answer, query_.name, key, entry, *rrset, *zone))
            truncate();
        return;
    }
    if (entry.is(Entry::has_cname)) return follow_cname(entry, key, *zone);
    build_negative(*zone, key, &entry, Rcode::noerror);
}

void ResponseBuilder::build_any(const Entry& entry, const ZoneView& zone, const NameKey& key) {
    if (entry.is(Entry::empty_non_terminal)) return build_negative(zone, key, &entry, Rcode::noerror);
    if (const auto* alias = entry.rrset(type::cname)) {
        if (!writer_.records(Section::answer, entry.bytes(*alias), alias->count) ||
            !write_signatures(Section::answer, query_.name, key, entry, *alias, zone))
            truncate();
        return;
    }
    static constexpr std::array<std::uint8_t, 21> hinfo{0xC0, 0x0C, 0,   13,  0,   1,   0,   0,   0x0E, 0x10, 0,
                                                        9,    7,    'R', 'F', 'C', '8', '4', '8', '2',  0};
    if (!writer_.records(Section::answer, hinfo, 1) ||
        !sign_on_demand(Section::answer, query_.name, key, zone, {key.suffix(), type::hinfo, 3600, {Bytes(hinfo).subspan(12)}}))
        truncate();
}

void ResponseBuilder::follow_cname(const Entry& first, const NameKey& first_key, const ZoneView& zone) {
    const auto* entry = &first;
    auto owner = query_.name;
    auto key = first_key;
    std::array<const Entry*, 16> visited; // also the maximum length of a chain
    for (std::size_t links = 0; links < visited.size(); ++links) {
        const auto end = visited.begin() + static_cast<std::ptrdiff_t>(links);
        if (std::find(visited.begin(), end, entry) != end) return; // a loop: the resolver detects it
        visited[links] = entry;
        const auto& cname = *entry->rrset(type::cname);
        RecordViews records(entry->bytes(cname));
        RecordView record;
        records.next(record);
        const auto target = name_from_wire(record.data);
        if (!writer_.name(Section::answer, owner, type::cname, record.ttl, target) ||
            !write_signatures(Section::answer, owner, key, *entry, cname, zone))
            return truncate();
        key = NameKey(target);
        const auto found = find_name(snapshot_, key);
        if (found.kind == LookupResult::Kind::not_authoritative || found.kind == LookupResult::Kind::delegation ||
            found.entry->zone != first.zone || found.entry->is(Entry::cut))
            return;
        owner = target;
        entry = found.entry;
        if (found.kind == LookupResult::Kind::nxdomain) return end_chain(zone, key, owner, nullptr, Rcode::nxdomain);
        // A resolver would cache the answer of one client for all: the query for the target itself gets it.
        if (entry->dynamic && (entry->dynamic->depends_on_client || entry->dynamic->has_alias)) return;
        if (entry->is(Entry::has_cname)) continue;
        if (entry->dynamic && is_address_query()) return end_chain_with_addresses(*entry, owner, key, zone);
        const auto* rrset = entry->rrset(query_.type);
        if (rrset == nullptr) return end_chain(zone, key, owner, entry, Rcode::noerror);
        RecordViews last(entry->bytes(*rrset));
        for (RecordView one; last.next(one);)
            if (!writer_.raw(Section::answer, owner, query_.type, dns_class::in, one.ttl, one.data)) return truncate();
        if (!write_signatures(Section::answer, owner, key, *entry, *rrset, zone)) truncate();
        return;
    }
}

void ResponseBuilder::end_chain(const ZoneView& zone, const NameKey& key, const Name& owner, const Entry* entry, Rcode rcode) {
    header.rcode = rcode;
    kind = rcode == Rcode::nxdomain ? Kind::nxdomain : Kind::nodata;
    if (!writer_.soa(Section::authority, zone.name, zone.negative_ttl, zone.soa)) return truncate();
    if (is_signed(zone) && !write_denial(zone, key, owner, entry)) truncate();
}

} // namespace orrery::dns
