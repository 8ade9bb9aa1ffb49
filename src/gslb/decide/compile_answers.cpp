#include "gslb/decide/compile_answers.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace orrery::gslb {

namespace {

/// FNV-1a: the same on every server and after every restart.
std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    return hash;
}

std::uint64_t scramble(std::uint64_t x) {
    x += 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31U);
}

dns::SelectionPolicy picking_of(const Answer& answer) {
    switch (answer.policy) {
    case Answers::all: return dns::SelectionPolicy::all;
    case Answers::round_robin: return dns::SelectionPolicy::round_robin;
    case Answers::weighted: return dns::SelectionPolicy::weighted;
    case Answers::weighted_many: return dns::SelectionPolicy::weighted_many;
    case Answers::subset: return dns::SelectionPolicy::subset;
    case Answers::sticky: return dns::SelectionPolicy::sticky;
    case Answers::sticky_by_name: return dns::SelectionPolicy::sticky_by_name;
    }
    return dns::SelectionPolicy::all;
}

dns::AnswerSet::Empty empty_of(AllDown what) {
    if (what == AllDown::servfail) return dns::AnswerSet::Empty::servfail;
    return what == AllDown::refuse ? dns::AnswerSet::Empty::refuse : dns::AnswerSet::Empty::nodata;
}

/// Apart by site where there are several, else by rack: the largest thing that can fail and that they do not all share.
std::vector<std::uint32_t> domains_of(const std::vector<AnswerMember>& candidates) {
    std::set<std::string> sites;
    for (const auto& one : candidates) sites.insert(one.site);
    std::vector<std::uint32_t> out;
    for (const auto& one : candidates) {
        const auto& place = sites.size() > 1 ? one.site : one.rack;
        out.push_back(place.empty() ? 0 : static_cast<std::uint32_t>(hash_of(place) | 1U));
    }
    return out;
}

bool same(const dns::Candidate& a, const dns::Candidate& b) {
    return a.v4 == b.v4 && a.v6 == b.v6 && a.weight == b.weight && a.identity == b.identity && a.domain == b.domain;
}
bool same(const dns::AnswerSet& a, const dns::AnswerSet& b) {
    return a.policy == b.policy && a.ttl == b.ttl && a.max_answers == b.max_answers && a.when_empty == b.when_empty &&
           a.extended_error == b.extended_error && a.alias.has_value() == b.alias.has_value() &&
           (!a.alias || *a.alias == *b.alias) &&
           std::equal(a.candidates.begin(), a.candidates.end(), b.candidates.begin(), b.candidates.end(),
                      [](const auto& x, const auto& y) { return same(x, y); });
}

constexpr std::uint64_t draws = 2048;

/// Random selection input, with the queried name if it is known.
dns::SelectionInput drawn_for(const Answer& answer, dns::SelectionInput input) {
    if (const auto name = dns::Name::from_text(answer.name); !answer.name.empty() && name.ok())
        input.query_name_hash = dns::name_hash(*name);
    return input;
}

} // namespace

dns::AnswerSet compile(const Answer& answer) {
    dns::AnswerSet out;
    out.policy = picking_of(answer);
    out.ttl = answer.ttl;
    out.max_answers = answer.max_answers;
    out.when_empty = empty_of(answer.empty);
    if (answer.panic)
        out.extended_error = "panic: no pool is usable";
    else if (answer.candidates.empty() && answer.alias.empty())
        out.extended_error = "no pool is usable";
    if (!answer.alias.empty()) {
        if (auto name = dns::Name::from_text(answer.alias); name.ok()) out.alias = *name;
        return out;
    }
    const auto domains = domains_of(answer.candidates);
    for (std::size_t at = 0; at < answer.candidates.size(); ++at) {
        const auto& one = answer.candidates[at];
        out.candidates.push_back({.v4 = one.addresses.v4,
                                  .v6 = one.addresses.v6,
                                  .weight = one.weight,
                                  .identity = hash_of(one.member),
                                  .domain = domains[at]});
    }
    return out;
}

dns::DynamicName compile(const Decision& decision, const ClientClasses& clients) {
    dns::DynamicName out;
    std::vector<std::uint32_t> choice_of;
    for (const auto& answer : decision.answers) {
        auto choice = compile(answer);
        std::uint32_t at = 0;
        while (at < out.answer_sets.size() && !same(out.answer_sets[at], choice)) ++at;
        if (at == out.answer_sets.size()) out.answer_sets.push_back(std::move(choice));
        choice_of.push_back(at);
    }
    if (out.answer_sets.size() > 1) clients.write_to(choice_of, out);
    return out;
}

Selected select(const Decision& decision, const ClientClasses& clients, const std::optional<boost::asio::ip::address>& client,
                const dns::SelectionInput& input) {
    Selected out;
    if (decision.answers.empty()) return out;
    const auto place = client ? clients.find(*client) : 0;
    out.answer = &decision.answers[place < decision.answers.size() ? place : 0];
    const auto choice = compile(*out.answer);
    std::vector<std::uint16_t> picked(choice.candidates.size());
    const auto count = dns::select_candidates(choice, drawn_for(*out.answer, input), picked);
    for (std::size_t at = 0; at < count; ++at) out.members.push_back(&out.answer->candidates[picked[at]]);
    return out;
}

Shares predict(const Answer& answer) {
    Shares out;
    out.clients = answer.clients;
    const auto& all = answer.candidates;
    if (all.empty()) return out;
    std::vector<double> shares(all.size(), 0);
    const bool many_names = answer.policy == Answers::sticky_by_name && answer.name.empty();
    const bool one_each =
        answer.policy == Answers::weighted || ((answer.policy == Answers::sticky || many_names) && answer.max_answers == 1);
    if (one_each) {
        double sum = 0;
        for (const auto& one : all) sum += one.weight;
        for (std::size_t at = 0; at < all.size(); ++at)
            shares[at] = sum > 0 ? all[at].weight / sum : 1.0 / static_cast<double>(all.size());
    } else if (answer.policy == Answers::round_robin) {
        std::fill(shares.begin(), shares.end(), 1.0 / static_cast<double>(all.size()));
    } else if (answer.policy == Answers::all) {
        const auto given = answer.max_answers == 0 ? all.size() : std::min<std::size_t>(answer.max_answers, all.size());
        std::fill_n(shares.begin(), given, 1.0 / static_cast<double>(given));
    } else {
        const auto choice = compile(answer);
        std::vector<std::uint16_t> picked(all.size());
        for (std::uint64_t turn = 0; turn < draws; ++turn) {
            const auto random = scramble(turn);
            const auto count = dns::select_candidates(
                choice, drawn_for(answer, {random, static_cast<std::uint32_t>(turn), scramble(random), scramble(random)}), picked);
            for (std::size_t at = 0; at < count; ++at) shares[picked[at]] += 1.0 / (draws * static_cast<double>(count));
        }
    }
    for (std::size_t at = 0; at < all.size(); ++at) {
        out.by_member[all[at].member] += shares[at];
        out.by_pool[all[at].pool] += shares[at];
        out.by_site[all[at].site.empty() ? all[at].pool : all[at].site] += shares[at];
    }
    return out;
}

json::object Shares::to_json() const {
    json::object out;
    if (!clients.empty()) out["clients"] = clients;
    const auto put = [&](const char* key, const std::map<std::string, double>& shares) {
        json::object all;
        for (const auto& [name, share] : shares) all[name] = std::round(share * 10000) / 10000;
        out[key] = std::move(all);
    };
    put("sites", by_site);
    put("pools", by_pool);
    put("members", by_member);
    return out;
}

} // namespace orrery::gslb
