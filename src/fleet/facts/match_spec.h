#pragma once

#include "core/result.h"
#include "fleet/facts/condition.h"
#include "fleet/facts/fact.h"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::fleet {

/// One position of an entry: a literal, a variable, a condition, or a variable with a condition.
struct MatchElement {
    std::string text;                   ///< as written
    std::string variable;               ///< "x" of $x and $$x; empty: none
    bool identifying = false;           ///< $$x: finds the site record of this machine
    std::optional<Condition> condition; ///< of a literal too: equality
};

/// One line of a spec: four positions for category, item, key and value.
struct MatchEntry {
    std::array<MatchElement, 4> elements;
    int line = 1;
    /// ('disk', '$disk', 'size', 'gt(4)')
    std::string text() const;
};

/// Why an entry was not satisfied, with the fact that came nearest.
struct MatchFailure {
    std::size_t entry = 0; ///< index
    std::string message;
};

/// The result of a match: the variables, or the entries that failed.
struct MatchOutcome {
    bool matches = false;
    std::map<std::string, std::string> variables;
    std::vector<MatchFailure> failures;
};

/// A spec of ahc-match: a list of entries that a machine's facts must satisfy. Each fact satisfies at most one entry, so that two
/// entries for a disk need two disks. A variable that was bound must have the same value wherever it occurs again.
class MatchSpec {
public:
    /// Reads a spec file as ahc-match does: a Python list of 4-tuples with comments. The text is parsed and never evaluated. All
    /// errors at once, each with its line.
    static Result<MatchSpec> parse(std::string_view text);

    const std::vector<MatchEntry>& entries() const { return entries_; }
    /// Tries the facts in order for the entries in order, with backtracking. The search is bounded: a spec that would need more
    /// than `max_steps` comparisons does not match and says so.
    MatchOutcome match(const std::vector<Fact>& facts) const;

    static constexpr std::size_t max_entries = 50;
    static constexpr std::size_t max_text = 64u << 10;
    static constexpr std::size_t max_steps = 500'000;

private:
    std::vector<MatchEntry> entries_;
};

} // namespace orrery::fleet
