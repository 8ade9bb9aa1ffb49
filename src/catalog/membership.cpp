#include "catalog/membership.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>

namespace orrery::catalog {

std::string_view name_of(State state) {
    switch (state) {
    case State::registered: return "registered";
    case State::usable: return "usable";
    case State::passing: return "passing";
    }
    return "registered";
}

Result<State> parse_state(std::string_view text) {
    for (const auto state : {State::registered, State::usable, State::passing})
        if (text == name_of(state)) return state;
    return Error{Code::invalid, fmt::format("\"{}\" is no state of an instance", text),
                 "states are registered, usable and passing"};
}

std::size_t Members::count(State at_least) const {
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [&](const Member& m) { return m.state >= at_least; }));
}

std::vector<Member> Members::having(State at_least) const {
    std::vector<Member> out;
    std::copy_if(all.begin(), all.end(), std::back_inserter(out), [&](const Member& m) { return m.state >= at_least; });
    return out;
}

std::string Members::digest(State at_least) const {
    std::string text;
    for (const auto& member : all) {
        if (member.state < at_least) continue;
        // Lengths keep "a","bc" apart from "ab","c".
        for (const auto* part : {&member.node, &member.id, &member.address})
            fmt::format_to(std::back_inserter(text), "{}:{}", part->size(), *part);
        fmt::format_to(std::back_inserter(text), "{}#{}", member.port, member.tags.size());
        for (const auto& tag : member.tags) fmt::format_to(std::back_inserter(text), "{}:{}", tag.size(), tag);
        text += '\n';
    }
    std::array<unsigned char, 16> sum{};
    crypto_generichash(sum.data(), sum.size(), reinterpret_cast<const unsigned char*>(text.data()), text.size(), nullptr, 0);
    std::string out;
    for (const auto byte : sum) fmt::format_to(std::back_inserter(out), "{:02x}", byte);
    return out;
}

} // namespace orrery::catalog
