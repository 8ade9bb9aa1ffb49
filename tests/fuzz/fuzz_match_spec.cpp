// A match spec and facts, as files and ramdisks of others bring them: no input crashes the parser or the search, or keeps them
// long; what is refused names its line; a match binds variables to values of facts, and a failure names an entry.
#include "fleet/benchmark/hardware_class.h"
#include "fleet/benchmark/metrics.h"
#include "fleet/facts/match_spec.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using namespace orrery;

void demand(bool holds) {
    if (!holds) std::abort();
}

/// Lines of four words.
std::vector<fleet::Fact> facts_in(std::string_view text) {
    std::vector<fleet::Fact> out;
    while (!text.empty() && out.size() < 64) {
        const auto end = std::min(text.find('\n'), text.size());
        auto line = text.substr(0, end);
        text.remove_prefix(std::min(text.size(), end + 1));
        fleet::Fact fact;
        for (auto* part : {&fact.category, &fact.item, &fact.key, &fact.value}) {
            const auto space = std::min(line.find(' '), line.size());
            *part = line.substr(0, space);
            line.remove_prefix(std::min(line.size(), space + 1));
        }
        out.push_back(std::move(fact));
    }
    return out;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto divider = text.find('\0');
    const auto spec = fleet::MatchSpec::parse(text.substr(0, divider));
    auto facts = facts_in(divider == std::string_view::npos ? "" : text.substr(divider + 1));
    facts.push_back({"disk", "sda", "size", "480"});
    facts.push_back({"memory", "total", "size", "68719476736"});
    std::ignore = fleet::properties_of(facts);
    std::ignore = fleet::metrics_of(facts);
    std::ignore = fleet::hardware_class(facts, {});
    if (!spec.ok()) {
        demand(!spec.error().message.empty());
        for (const auto& field : spec.error().fields) demand(field.path.starts_with("line ") && !field.message.empty());
        return 0;
    }
    const auto outcome = spec->match(facts);
    demand(outcome.matches == outcome.failures.empty());
    for (const auto& failure : outcome.failures) demand(failure.entry < spec->entries().size() && !failure.message.empty());
    for (const auto& [name, value] : outcome.variables)
        demand(std::any_of(facts.begin(), facts.end(), [&, &bound = value](const fleet::Fact& fact) {
            return fact.category == bound || fact.item == bound || fact.key == bound || fact.value == bound;
        }));
    return 0;
}
