#include "dns/entry.h"

#include "dns/message.h"

#include <algorithm>
#include <cstring>
#include <new>

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

void add_address(ReadyChoice::Family& family, const Choice& choice, std::size_t record_size, std::uint16_t record_type,
                 const std::uint8_t* address, std::size_t address_size) {
    family.place_of.push_back(-1);
    if (address == nullptr) return;
    // Candidates may share an address; a set of records has none twice.
    for (std::size_t i = 0; i < family.all_count; ++i)
        if (std::memcmp(&family.all[i * record_size + 12], address, address_size) == 0) {
            family.place_of.back() = static_cast<std::int16_t>(i);
            return;
        }
    family.place_of.back() = static_cast<std::int16_t>(family.all_count++);
    append_record(family.all, record_type, choice.ttl, Bytes(address, address_size));
}

bool same(const Choice& a, const Choice& b) {
    const auto same_candidate = [](const Candidate& x, const Candidate& y) {
        return x.v4 == y.v4 && x.v6 == y.v6 && x.weight == y.weight && x.identity == y.identity && x.domain == y.domain;
    };
    return a.picking == b.picking && a.ttl == b.ttl && a.most == b.most && a.when_empty == b.when_empty && a.alias == b.alias &&
           std::equal(a.candidates.begin(), a.candidates.end(), b.candidates.begin(), b.candidates.end(), same_candidate);
}

std::shared_ptr<const ClientTable> table_of(const Tailored& from, const std::vector<std::uint32_t>& choice_of) {
    static const auto everybody = std::make_shared<const ClientTable>();
    if (from.by_client.empty() && !from.clients) return everybody;
    auto out = std::make_shared<ClientTable>();
    if (from.clients) {
        bool same_numbers = true;
        for (std::size_t at = 0; at < choice_of.size(); ++at) same_numbers = same_numbers && choice_of[at] == at;
        if (same_numbers) return from.clients;
        *out = {from.clients->v4.mapped(choice_of), from.clients->v6.mapped(choice_of)};
        return out;
    }
    std::vector<ClientMap::Rule> rules4, rules6;
    for (const auto& rule : from.by_client)
        (rule.prefix.v6 ? rules6 : rules4).push_back({rule.prefix.address, rule.prefix.length, choice_of[rule.choice]});
    *out = {ClientMap(rules4, 32), ClientMap(rules6, 128)};
    return out;
}

} // namespace

ReadyChoice::ReadyChoice(const Choice& from) : choice(from) {
    if (choice.alias) append_record(alias, type::cname, choice.ttl, choice.alias->wire());
    if (choice.picking == Picking::one && !choice.candidates.empty()) table = AliasTable(choice.candidates);
    for (const auto& one : choice.candidates) {
        add_address(v4, choice, a_size, type::a, one.v4 ? one.v4->data() : nullptr, 4);
        add_address(v6, choice, aaaa_size, type::aaaa, one.v6 ? one.v6->data() : nullptr, 16);
    }
}

Dynamic::Dynamic(std::shared_ptr<const Tailored> tailored_) : tailored(std::move(tailored_)) {
    const auto& from = *tailored;
    // Choices that say the same are one, so that prefixes which lead to them merge.
    std::vector<std::uint32_t> one_of(from.choices.size());
    for (std::size_t i = 0; i < from.choices.size(); ++i) {
        std::size_t k = 0;
        while (k < choices.size() && !same(choices[k].choice, from.choices[i])) ++k;
        if (k == choices.size()) choices.emplace_back(from.choices[i]);
        one_of[i] = static_cast<std::uint32_t>(k);
    }
    clients = table_of(from, one_of);
    by_client = !clients->is_trivial();
    for (const auto& one : choices) {
        has_alias = has_alias || one.choice.alias.has_value();
        has_v4 = has_v4 || one.v4.all_count > 0;
        has_v6 = has_v6 || one.v6.all_count > 0;
        by_client = by_client || one.choice.picking == Picking::sticky;
    }
}

namespace {

std::size_t size_of(std::size_t sets, std::size_t name, std::size_t bytes) {
    return sizeof(Entry) + sets * sizeof(Entry::Set) + name + bytes;
}

} // namespace

void FreeEntry::operator()(const Entry* entry) const {
    const auto size = size_of(entry->set_count, entry->name_size, entry->bytes_size);
    entry->~Entry();
    memory->deallocate(const_cast<Entry*>(entry), size, Entry::alignment);
}

EntryPtr make_entry(std::pmr::memory_resource* memory, Entry like, Bytes name, std::span<const Entry::Set> sets, Bytes bytes) {
    void* place = memory->allocate(size_of(sets.size(), name.size(), bytes.size()), Entry::alignment);
    like.set_count = static_cast<std::uint16_t>(sets.size());
    like.name_size = static_cast<std::uint8_t>(name.size());
    like.bytes_size = static_cast<std::uint32_t>(bytes.size());
    auto* entry = new (place) Entry(std::move(like));
    auto* rest = reinterpret_cast<std::uint8_t*>(entry + 1);
    if (!sets.empty()) std::memcpy(rest, sets.data(), sets.size_bytes());
    rest += sets.size_bytes();
    std::memcpy(rest, name.data(), name.size());
    if (!bytes.empty()) std::memcpy(rest + name.size(), bytes.data(), bytes.size());
    return {entry, {memory}};
}

} // namespace orrery::dns
