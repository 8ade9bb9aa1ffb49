#include "catalog/membership.h"

#include "core/context.h"
#include "core/digest.h"
#include "core/log.h"
#include "core/truncate.h"
#include "resource/object.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <functional>

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

namespace {

/// A text from outside as a message quotes it: short, and on a terminal nothing but text.
std::string quotable(std::string_view text) {
    auto out = truncate(text, 128);
    for (char& c : out)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    return out;
}

/// An IP address or a host name; with a final dot and underscores, which hosts have although no standard lets them.
bool is_host(std::string_view text) {
    if (text.ends_with('.')) text.remove_suffix(1);
    std::string plain(text.substr(0, 256));
    std::replace(plain.begin(), plain.end(), '_', 'x');
    return resource::check_format(resource::Format::host, plain).empty();
}

} // namespace

bool is_node_name(std::string_view text) { return is_host(text) || resource::is_valid_name(text); }

std::string member_problem(std::string_view node, std::string_view address) {
    if (!is_node_name(node)) return fmt::format("its node name \"{}\" is not a valid host name", quotable(node));
    if (!address.empty() && !is_host(address))
        return fmt::format("its address \"{}\" is neither an IP address nor a valid host name", quotable(address));
    return {};
}

void Members::add_invalid(const Member& member, std::string problem) {
    ++invalid_count;
    if (invalid.size() == max_invalid) return;
    auto& kept = invalid.emplace_back();
    kept.node = quotable(member.node);
    kept.id = quotable(member.id);
    kept.address = quotable(member.address);
    kept.port = member.port;
    kept.why = std::move(problem);
}

std::string Members::invalid_text() const {
    if (invalid_count == 0) return {};
    return fmt::format("{} instance{}: {}", invalid_count, invalid_count == 1 ? " is not a member" : "s are not members",
                       invalid.front().why);
}

void InvalidMemberLog::note(std::string_view service, const Member& member) {
    if (logged_.size() == max_logged) return;
    const auto key = fmt::format("{}\n{}\n{}\n{}", service, member.node, member.id, member.address);
    if (!logged_.insert(std::hash<std::string>{}(key)).second) return;
    log::warn(Context::background(), "instance \"{}\" of service \"{}\" is not a member: {}", quotable(member.id),
              quotable(service), member_problem(member.node, member.address));
    if (logged_.size() == max_logged)
        log::warn(Context::background(), "{} invalid members were logged; no more are logged until a restart", max_logged);
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
    return to_hex({reinterpret_cast<const char*>(sum.data()), sum.size()});
}

} // namespace orrery::catalog
