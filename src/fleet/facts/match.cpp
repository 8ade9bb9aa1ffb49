#include "core/truncate.h"
#include "fleet/facts/match_spec.h"

#include <fmt/format.h>

#include <unordered_map>

/// The search for facts that satisfy a spec.
namespace orrery::fleet {

namespace {

const std::string& part_of(const Fact& fact, std::size_t position) {
    switch (position) {
    case 0: return fact.category;
    case 1: return fact.item;
    case 2: return fact.key;
    default: return fact.value;
    }
}

bool satisfies_alone(const MatchElement& element, const std::string& part) {
    return !element.condition || element.condition->holds(part);
}

/// How many positions, from the left, the fact satisfies without regard to variables.
std::size_t satisfied_positions(const MatchEntry& entry, const Fact& fact) {
    std::size_t out = 0;
    while (out < 4 && satisfies_alone(entry.elements[out], part_of(fact, out))) ++out;
    return out;
}

/// Of two facts that fail in the value only: is `fact` nearer to the limit than `best`?
bool is_nearer(Condition::Op op, const Fact& fact, const Fact& best) {
    const auto a = parse_number(fact.value), b = parse_number(best.value);
    if (!a || !b) return false;
    if (op == Condition::Op::gt || op == Condition::Op::ge) return *a > *b;
    if (op == Condition::Op::lt || op == Condition::Op::le) return *a < *b;
    return false;
}

struct Nearest {
    const Fact* fact = nullptr;
    std::size_t positions = 0;
};

Nearest nearest_fact(const MatchEntry& entry, const std::vector<Fact>& facts) {
    Nearest out;
    for (const auto& fact : facts) {
        const auto positions = satisfied_positions(entry, fact);
        const auto& value = entry.elements[3].condition;
        const bool nearer =
            out.fact != nullptr && positions == out.positions && positions == 3 && value && is_nearer(value->op(), fact, *out.fact);
        if (positions > out.positions || nearer) out = {&fact, positions};
    }
    return out;
}

/// One search. Entries are tried in order; each has the facts of its category only, where the category is a literal.
class MatchSearch {
public:
    MatchSearch(const std::vector<MatchEntry>& entries, const std::vector<Fact>& facts)
        : entries_(entries), facts_(facts), used_(facts.size(), false), candidates_(entries.size()) {
        std::unordered_map<std::string_view, std::vector<std::size_t>> by_category;
        for (std::size_t i = 0; i < facts.size(); ++i) by_category[facts[i].category].push_back(i);
        for (std::size_t i = 0; i < entries.size(); ++i) {
            const auto& category = entries[i].elements[0];
            const bool literal = category.variable.empty() && category.condition->op() == Condition::Op::equals;
            if (!literal) {
                for (std::size_t fact = 0; fact < facts.size(); ++fact) add_candidate(i, fact);
            } else if (const auto found = by_category.find(category.text); found != by_category.end()) {
                for (const auto fact : found->second) add_candidate(i, fact);
            }
        }
    }

    /// The first entry that no fact satisfies even alone; entries_.size() where there is none.
    bool has_candidates(std::size_t entry) const { return !candidates_[entry].empty(); }

    bool search(std::size_t entry) {
        if (entry == entries_.size()) return true;
        if (entry >= deepest_) {
            deepest_ = entry;
            bindings_at_deepest_ = variables_;
        }
        for (const auto at : candidates_[entry]) {
            if (++steps_ > MatchSpec::max_steps) return false;
            if (used_[at]) continue;
            std::vector<std::string> bound;
            if (bind(entries_[entry], facts_[at], bound)) {
                used_[at] = true;
                if (search(entry + 1)) return true;
                used_[at] = false;
            }
            for (const auto& name : bound) variables_.erase(name);
        }
        return false;
    }

    bool exhausted() const { return steps_ > MatchSpec::max_steps; }
    std::size_t deepest() const { return deepest_; }
    const std::map<std::string, std::string>& bindings_at_deepest() const { return bindings_at_deepest_; }
    std::map<std::string, std::string>& variables() { return variables_; }

private:
    void add_candidate(std::size_t entry, std::size_t fact) {
        if (satisfied_positions(entries_[entry], facts_[fact]) == 4) candidates_[entry].push_back(fact);
    }
    /// Binds the variables of the entry; false where one has another value already.
    bool bind(const MatchEntry& entry, const Fact& fact, std::vector<std::string>& bound) {
        for (std::size_t i = 0; i < 4; ++i) {
            const auto& name = entry.elements[i].variable;
            if (name.empty()) continue;
            const auto [found, inserted] = variables_.emplace(name, part_of(fact, i));
            if (inserted)
                bound.push_back(name);
            else if (found->second != part_of(fact, i))
                return false;
        }
        return true;
    }

    const std::vector<MatchEntry>& entries_;
    const std::vector<Fact>& facts_;
    std::vector<bool> used_;
    std::vector<std::vector<std::size_t>> candidates_;
    std::map<std::string, std::string> variables_, bindings_at_deepest_;
    std::size_t deepest_ = 0, steps_ = 0;
};

std::string unmatched_message(const MatchEntry& entry, const std::vector<Fact>& facts) {
    const auto near = nearest_fact(entry, facts);
    if (near.fact == nullptr) return fmt::format("no fact satisfies {}", entry.text());
    const auto& fact = *near.fact;
    return fmt::format("no fact satisfies {}; the nearest is ('{}', '{}', '{}', '{}')", entry.text(), truncate(fact.category, 64),
                       truncate(fact.item, 64), truncate(fact.key, 64), truncate(fact.value, 64));
}

} // namespace

MatchOutcome MatchSpec::match(const std::vector<Fact>& facts) const {
    MatchOutcome out;
    MatchSearch search(entries_, facts);
    for (std::size_t i = 0; i < entries_.size(); ++i)
        if (!search.has_candidates(i)) out.failures.push_back({i, unmatched_message(entries_[i], facts)});
    if (!out.failures.empty()) return out;
    if (search.search(0)) {
        out.matches = true;
        out.variables = std::move(search.variables());
        return out;
    }
    const auto deepest = search.deepest();
    std::string message = fmt::format("no further fact satisfies {}", entries_[deepest].text());
    if (search.exhausted())
        message = fmt::format("the search for {} ended after {} comparisons", entries_[deepest].text(), max_steps);
    std::string separator = " with ";
    for (const auto& [name, value] : search.bindings_at_deepest()) {
        message += fmt::format("{}${}={}", separator, name, truncate(value, 64));
        separator = ", ";
    }
    out.failures.push_back({deepest, std::move(message)});
    return out;
}

} // namespace orrery::fleet
