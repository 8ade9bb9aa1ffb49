#include "dns/compiled_answers.h"

#include "dns/message.h"

#include <algorithm>
#include <cstring>

namespace orrery::dns {

void append_record(std::vector<std::uint8_t>& out, std::uint16_t record_type, std::uint32_t ttl, Bytes data) {
    const std::array<std::uint8_t, 12> head{0xC0,
                                            0x0C,
                                            static_cast<std::uint8_t>(record_type >> 8),
                                            static_cast<std::uint8_t>(record_type),
                                            0,
                                            1,
                                            static_cast<std::uint8_t>(ttl >> 24),
                                            static_cast<std::uint8_t>(ttl >> 16),
                                            static_cast<std::uint8_t>(ttl >> 8),
                                            static_cast<std::uint8_t>(ttl),
                                            static_cast<std::uint8_t>(data.size() >> 8),
                                            static_cast<std::uint8_t>(data.size())};
    out.insert(out.end(), head.begin(), head.end());
    out.insert(out.end(), data.begin(), data.end());
}

namespace {

void add_address(CompiledAnswerSet::Family& family, const AnswerSet& answer_set, std::size_t record_size, std::uint16_t record_type,
                 const std::uint8_t* address, std::size_t address_size) {
    family.record_of.push_back(-1);
    if (address == nullptr) return;
    // Candidates may share an address; an RRset has no duplicate records.
    for (std::size_t i = 0; i < family.record_count; ++i)
        if (std::memcmp(&family.records[i * record_size + 12], address, address_size) == 0) {
            family.record_of.back() = static_cast<std::int16_t>(i);
            return;
        }
    family.record_of.back() = static_cast<std::int16_t>(family.record_count++);
    append_record(family.records, record_type, answer_set.ttl, Bytes(address, address_size));
}

bool is_equal(const AnswerSet& a, const AnswerSet& b) {
    const auto same_candidate = [](const Candidate& x, const Candidate& y) {
        return x.v4 == y.v4 && x.v6 == y.v6 && x.weight == y.weight && x.identity == y.identity && x.domain == y.domain;
    };
    return a.policy == b.policy && a.ttl == b.ttl && a.max_answers == b.max_answers && a.when_empty == b.when_empty &&
           a.alias == b.alias &&
           std::equal(a.candidates.begin(), a.candidates.end(), b.candidates.begin(), b.candidates.end(), same_candidate);
}

std::shared_ptr<const ClientTable> client_table_of(const DynamicName& from, const std::vector<std::uint32_t>& answer_set_of) {
    static const auto all_clients = std::make_shared<const ClientTable>();
    if (from.client_rules.empty() && !from.clients) return all_clients;
    auto out = std::make_shared<ClientTable>();
    if (from.clients) {
        bool is_identity = true;
        for (std::size_t at = 0; at < answer_set_of.size(); ++at) is_identity = is_identity && answer_set_of[at] == at;
        if (is_identity) return from.clients;
        *out = {from.clients->v4.mapped(answer_set_of), from.clients->v6.mapped(answer_set_of)};
        return out;
    }
    std::vector<ClientMap::Rule> rules4, rules6;
    for (const auto& rule : from.client_rules)
        (rule.prefix.v6 ? rules6 : rules4).push_back({rule.prefix.address, rule.prefix.length, answer_set_of[rule.answer_set]});
    *out = {ClientMap(rules4, 32), ClientMap(rules6, 128)};
    return out;
}

} // namespace

CompiledAnswerSet::CompiledAnswerSet(const AnswerSet& from) : answer_set(from) {
    if (answer_set.alias) append_record(alias, type::cname, answer_set.ttl, answer_set.alias->wire());
    for (auto* family : {&v4, &v6}) {
        const auto which = family == &v4 ? AddressFamily::ipv4 : AddressFamily::ipv6;
        if (needs_family_filter(answer_set, which))
            family->filtered = std::make_unique<const AnswerSet>(filter_by_family(answer_set, which));
        family->source = family->filtered ? family->filtered.get() : &answer_set;
        const auto& candidates = family->source->candidates;
        for (const auto& one : candidates)
            if (family == &v4)
                add_address(v4, answer_set, a_size, type::a, one.v4 ? one.v4->data() : nullptr, 4);
            else
                add_address(v6, answer_set, aaaa_size, type::aaaa, one.v6 ? one.v6->data() : nullptr, 16);
        if (answer_set.policy == SelectionPolicy::weighted && !candidates.empty()) family->alias_table = AliasTable(candidates);
    }
}

CompiledDynamicName::CompiledDynamicName(std::shared_ptr<const DynamicName> from_definition)
    : definition(std::move(from_definition)) {
    const auto& from = *definition;
    // Merge equal answer sets, so that the prefixes that lead to them merge too.
    std::vector<std::uint32_t> merged_index(from.answer_sets.size());
    for (std::size_t i = 0; i < from.answer_sets.size(); ++i) {
        std::size_t k = 0;
        while (k < answer_sets.size() && !is_equal(answer_sets[k].answer_set, from.answer_sets[i])) ++k;
        if (k == answer_sets.size()) answer_sets.emplace_back(from.answer_sets[i]);
        merged_index[i] = static_cast<std::uint32_t>(k);
    }
    clients = client_table_of(from, merged_index);
    depends_on_client = !clients->is_trivial();
    for (const auto& one : answer_sets) {
        has_alias = has_alias || one.answer_set.alias.has_value();
        has_v4 = has_v4 || one.v4.record_count > 0;
        has_v6 = has_v6 || one.v6.record_count > 0;
        depends_on_client = depends_on_client || one.answer_set.policy == SelectionPolicy::sticky;
    }
}

} // namespace orrery::dns
