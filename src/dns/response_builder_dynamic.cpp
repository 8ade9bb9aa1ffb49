#include "dns/response_builder.h"

#include <algorithm>

namespace orrery::dns {

ResponseBuilder::EffectiveClient ResponseBuilder::effective_client() const {
    const auto& subnet = query_options_.subnet;
    if (subnet && subnet->source > 0) return {subnet->address, subnet->v6, true};
    return {client_.address, client_.v6, false};
}

const CompiledAnswerSet& ResponseBuilder::answer_set_for_client(const CompiledDynamicName& dynamic) {
    const auto client = effective_client();
    const auto match = (client.v6 ? dynamic.clients->v6 : dynamic.clients->v4).find(client.address);
    const auto& compiled = dynamic.answer_sets[match.answer_set];
    scope = client.from_ecs ? match.scope : 0;
    if (!compiled.answer_set.extended_error.empty())
        extended_error = ExtendedError{extended::other, compiled.answer_set.extended_error};
    return compiled;
}

bool ResponseBuilder::build_dynamic(const Entry& entry, const ZoneView& zone, const NameKey& key, bool is_wildcard) {
    const auto& compiled = answer_set_for_client(*entry.dynamic);
    const auto& answer_set = compiled.answer_set;
    if (answer_set.alias) {
        if (!writer_.records(Section::answer, compiled.alias, 1) ||
            !sign_on_demand(Section::answer, query_.name, key, zone,
                            {key.suffix(), type::cname, answer_set.ttl, {answer_set.alias->wire()}}))
            truncate();
        return true;
    }
    if (!is_address_query()) {
        scope = 0;
        extended_error.reset();
        return false;
    }
    if (answer_set.candidates.empty())
        build_empty_answer_set(answer_set, entry, zone, key);
    else
        build_addresses(compiled, entry, zone, key, is_wildcard);
    return true;
}

void ResponseBuilder::build_empty_answer_set(const AnswerSet& answer_set, const Entry& entry, const ZoneView& zone,
                                             const NameKey& key) {
    switch (answer_set.when_empty) {
    case AnswerSet::Empty::nodata: return build_negative(zone, key, &entry, Rcode::noerror);
    case AnswerSet::Empty::servfail: return reject(Rcode::servfail);
    case AnswerSet::Empty::refuse: return reject(Rcode::refused);
    }
}

SelectionInput ResponseBuilder::selection_input(const AnswerSet& answer_set) {
    SelectionInput out{.random = self_.next_random(), .rotation = self_.rotation++, .client_hash = 0, .query_name_hash = 0};
    if (answer_set.policy == SelectionPolicy::sticky) {
        const auto client = effective_client();
        const std::uint8_t network = client.v6 ? 56 : 24;
        const auto bits = std::min<unsigned>(network, client.from_ecs ? query_options_.subnet->source : 128);
        out.client_hash = network_hash(client.address, client.v6, bits);
        if (client.from_ecs) scope = std::max(scope, network);
    } else if (answer_set.policy == SelectionPolicy::sticky_by_name) {
        out.query_name_hash = name_hash(query_.name);
    }
    return out;
}

void ResponseBuilder::select_records(const CompiledAnswerSet::Family& family, const SelectionInput& input, Selected& out) {
    const auto candidates = select_candidates(*family.source, input, out.records);
    std::array<std::uint64_t, Authority::max_candidates / 64> seen{};
    out.count = 0;
    for (std::size_t i = 0; i < candidates; ++i) {
        const auto record = family.record_of[out.records[i]];
        if (record < 0) continue;
        auto& bits = seen[static_cast<std::size_t>(record) / 64];
        const auto bit = 1ULL << (record % 64);
        if ((bits & bit) != 0) continue; // two candidates with the same address
        bits |= bit;
        out.records[out.count++] = static_cast<std::uint16_t>(record);
    }
}

void ResponseBuilder::build_addresses(const CompiledAnswerSet& compiled, const Entry& entry, const ZoneView& zone,
                                      const NameKey& key, bool is_wildcard) {
    const auto& answer_set = compiled.answer_set;
    const auto& family = query_.type == type::a ? compiled.v4 : compiled.v6;
    const auto size = query_.type == type::a ? CompiledAnswerSet::a_size : CompiledAnswerSet::aaaa_size;
    const bool signing = is_signed(zone);
    const std::vector<std::uint8_t>* signature = nullptr; // made in advance
    RrsetToSign to_sign{key.suffix(), query_.type, answer_set.ttl, {}};
    const auto record = [&](std::size_t index) { return Bytes(family.records).subspan(index * size, size); };
    const auto write = [&](std::size_t index) {
        if (signing) to_sign.data.push_back(record(index).subspan(12));
        return writer_.records(Section::answer, record(index), 1);
    };
    bool fits = true;
    if (answer_set.policy == SelectionPolicy::all && answer_set.max_answers == 0) {
        fits = writer_.records(Section::answer, family.records, family.record_count);
        for (std::size_t i = 0; i < family.record_count && signing; ++i) to_sign.data.push_back(record(i).subspan(12));
        signature = &family.signature;
    } else if (family.source->candidates.empty()) {
        // No member has an address of this family.
    } else if (answer_set.policy == SelectionPolicy::weighted) {
        const auto drawn = family.record_of[family.alias_table.draw(self_.next_random())];
        if (drawn >= 0) {
            const auto index = static_cast<std::size_t>(drawn);
            fits = write(index);
            if (signing && index < family.record_signatures.size()) signature = &family.record_signatures[index];
        }
    } else {
        Selected selected;
        select_records(family, selection_input(answer_set), selected);
        for (std::size_t i = 0; i < selected.count && fits; ++i) fits = write(selected.records[i]);
        if (to_sign.data.size() == family.record_count) signature = &family.signature;
    }
    if (fits && signing && !to_sign.data.empty())
        fits = signature != nullptr && !signature->empty() && !is_wildcard
                   ? writer_.raw(Section::answer, query_.name, type::rrsig, dns_class::in, answer_set.ttl, *signature)
                   : sign_on_demand(Section::answer, query_.name, key, zone, to_sign);
    if (!fits)
        truncate();
    else if (writer_.count(Section::answer) == 0)
        build_negative(zone, key, &entry, Rcode::noerror);
}

void ResponseBuilder::end_chain_with_addresses(const Entry& entry, const Name& owner, const NameKey& key, const ZoneView& zone) {
    const auto& compiled = entry.dynamic->answer_sets.front();
    const auto& answer_set = compiled.answer_set;
    const auto& family = query_.type == type::a ? compiled.v4 : compiled.v6;
    const auto size = query_.type == type::a ? CompiledAnswerSet::a_size : CompiledAnswerSet::aaaa_size;
    if (answer_set.candidates.empty()) {
        if (answer_set.when_empty == AnswerSet::Empty::nodata) return end_chain(zone, key, owner, &entry, Rcode::noerror);
        return; // a query for the target itself gets the error
    }
    if (family.source->candidates.empty()) return end_chain(zone, key, owner, &entry, Rcode::noerror);
    Selected selected;
    if (answer_set.policy == SelectionPolicy::weighted) {
        const auto drawn = family.record_of[family.alias_table.draw(self_.next_random())];
        if (drawn >= 0) selected.records[selected.count++] = static_cast<std::uint16_t>(drawn);
    } else {
        // The target does not depend on the client here, so there is no client hash.
        select_records(
            family,
            {.random = self_.next_random(), .rotation = self_.rotation++, .client_hash = 0, .query_name_hash = name_hash(owner)},
            selected);
    }
    if (selected.count == 0) return end_chain(zone, key, owner, &entry, Rcode::noerror);
    RrsetToSign to_sign{key.suffix(), query_.type, answer_set.ttl, {}};
    for (std::size_t i = 0; i < selected.count; ++i) {
        const auto data = Bytes(family.records).subspan(selected.records[i] * size + 12, size - 12);
        if (!writer_.raw(Section::answer, owner, query_.type, dns_class::in, answer_set.ttl, data)) return truncate();
        if (is_signed(zone)) to_sign.data.push_back(data);
    }
    if (!to_sign.data.empty() && !sign_on_demand(Section::answer, owner, key, zone, to_sign)) truncate();
}

} // namespace orrery::dns
