#include "dns/answering.h"

#include <algorithm>
#include <cstring>

namespace orrery::dns {

bool Answering::dynamic(const Entry& entry, const ZoneView& zone, const NameKey& key, bool wild) {
    const auto& from = *entry.dynamic;
    const bool told = asked_.subnet && asked_.subnet->source > 0;
    const bool v6 = told ? asked_.subnet->v6 : asker_.v6;
    const auto& address = told ? asked_.subnet->address : asker_.address;
    const auto found = (v6 ? from.clients->v6 : from.clients->v4).find(address);
    const auto& ready = from.choices[found.choice];
    const auto& choice = ready.choice;
    scope = told ? found.scope : 0;
    if (!choice.remark.empty()) detail = Detail{extended::other, choice.remark};
    if (choice.alias) {
        if (!writer_.records(Section::answer, ready.alias, 1) ||
            !sign(Section::answer, query_.name, key, zone, {key.tail(), type::cname, choice.ttl, {choice.alias->wire()}}))
            truncate();
        return true;
    }
    if (query_.type != type::a && query_.type != type::aaaa) {
        scope = 0;
        detail.reset();
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
        Draw draw{.random = self_.dice(), .turn = self_.turn++, .client_prefix = 0, .name = 0};
        if (choice.picking == Picking::sticky) {
            const auto bits = std::min<unsigned>(v6 ? 56 : 24, told ? asked_.subnet->source : 128);
            draw.client_prefix = network_hash(address, v6, bits);
            if (told) scope = std::max<std::uint8_t>(scope, v6 ? 56 : 24);
        } else if (choice.picking == Picking::by_name) {
            draw.name = hash_of(query_.name);
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

void Answering::chain_dynamic(const Entry& entry, const Name& owner, const NameKey& key, const ZoneView& zone) {
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
        count =
            pick(ready.choice, {.random = self_.dice(), .turn = self_.turn++, .client_prefix = 0, .name = hash_of(owner)}, picked);
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

} // namespace orrery::dns
